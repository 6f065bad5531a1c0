"""What people do wrong, and what happens to them: one line that helps, an exit code, and nothing lost."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from spyker.cli.help import parse
from spyker.cli.main import main, parser
from spyker.cli.options import scenario_arguments
from spyker.records import Evaluated, RunRecord

QUICK = ["--task", "quadratic", "--duration", "3"]
PROGRAM = [sys.executable, "-m", "spyker"]
NOWHERE = "/proc/spyker-record"  # where nobody can make a folder, not even root


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(args: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command says when it refuses to do anything."""
    assert main(args) == 2
    message = capsys.readouterr().err
    assert message.startswith("spyker: ")
    assert message.count("\n") == 1
    return message


MANY = [*QUICK, "--vary", "seed=1,2", "--jobs", "1"]


@pytest.mark.parametrize(
    ("command", "out"),
    [
        (["run", *QUICK, "--overwrite"], "notes.txt"),
        (["run", *QUICK], "notes.txt"),
        (["run", *QUICK], "notes.txt/run"),
        (["run", *QUICK, "--overwrite"], "notes.txt/run"),
        (["run", *QUICK], NOWHERE),
        (["compare", *QUICK, "--overwrite"], "notes.txt"),
        (["compare", *QUICK], "notes.txt/run"),
        (["compare", *QUICK], NOWHERE),
        (["sweep", *MANY], "notes.txt/run"),
        (["sweep", *MANY], NOWHERE),
        (["reproduce", "latency"], "notes.txt/run"),
    ],
)
def test_a_record_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str], out: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    assert out.split("/")[-1] in refused([*command, "--out", out], capsys)
    assert files(tmp_path) == {"notes.txt": b"mine"}


def test_plots_that_cannot_be_written_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *QUICK, "--out", str(tmp_path / "a")]) == 0
    capsys.readouterr()
    (tmp_path / "notes.txt").write_text("mine")
    for out in (tmp_path / "notes.txt", tmp_path / "notes.txt" / "plots", Path(NOWHERE)):
        assert out.name in refused(["plot", str(tmp_path / "a"), "--out", str(out)], capsys)


@pytest.mark.parametrize("name", ["scenario.toml", "summary.json"])
def test_a_record_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["run", *QUICK, "--out", str(tmp_path / "a")]) == 0
    capsys.readouterr()
    (tmp_path / "a" / name).write_text("{ torn")
    assert name in refused(["plot", str(tmp_path / "a")], capsys)


def limited(size: int, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command whose files cannot grow beyond a size, as on a disk that is full."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return subprocess.run([*PROGRAM, *args], cwd=cwd, capture_output=True, text=True, timeout=200, preexec_fn=limit)


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_full_disk_is_noticed_before_anything_is_begun_or_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    args = [command, *QUICK, "--out", "a"]
    done = limited(0, *args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    assert main(args) == 0
    before = files(tmp_path)
    done = limited(0, *args, "--overwrite", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert files(tmp_path) == before


def test_a_disk_that_becomes_full_fails_the_run_and_leaves_what_it_took(tmp_path: Path) -> None:
    done = limited(40_000, "run", *QUICK, "--out", "a", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1
    assert "cannot write run record" in done.stderr
    assert next(RunRecord(tmp_path / "a").facts(Evaluated)).t == 0


MARKED = """
from pathlib import Path
from spyker.tasks.built_in.quadratic import Options, make as quadratic

def make(clients, seed, training, broken=False):
    Path("made.txt").write_text("the task was made")
    if broken:
        raise RuntimeError("this task is broken")
    return quadratic(Options(), clients, seed, training)
"""


def test_where_the_record_goes_is_tried_before_the_task_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "marked.py").write_text(MARKED)
    monkeypatch.chdir(tmp_path)
    refused(["run", "--task", "marked:make", "--out", NOWHERE], capsys)
    assert not (tmp_path / "made.txt").exists()


@pytest.mark.parametrize("command", ["run", "compare"])
def test_whatever_goes_wrong_before_a_run_costs_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "marked.py").write_text(MARKED)
    monkeypatch.chdir(tmp_path)

    def again(*args: str) -> int:
        return main([command, "--out", "a", "--overwrite", "--duration", "2", *args])

    assert again("--task", "quadratic") == 0
    before = files(tmp_path / "a")
    assert again("--task", "marked:make", "--set", "task.broken=true") == 1
    assert again("--task", "marked:make", "--set", "task.brocken=true") == 2
    assert again("--task", "mnist", "--data-dir", "nowhere") == 2
    assert again("--task", "digits", "--workers", "-1") == 2
    assert again("--task", "digits", "--engine", "ray", "--ray-address", "nowhere:1") == 2
    assert files(tmp_path / "a") == before


def test_a_folder_that_was_made_for_a_run_that_never_began_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(["run", "--clients", "100000", "--out", "new/deep/a"], capsys)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (["run", "--algorithm", "spiker"], "spyker"),
        (["run", "--set", "algorithm=fedsync"], "fedasync"),
        (["compare", "--algorithms", "spyker,hierfawg"], "hierfavg"),
        (["sweep", "--vary", "algorithm=spyker,fedagv"], "fedavg"),
        (["run", "--preset", "tunde"], "tuned"),
        (["run", "--set", "training.optimiser=adma"], "adam"),
        (["reproduce", "latecny"], "latency"),
        (["data", "fetch", "mnits"], "mnist"),
    ],
)
def test_a_name_that_is_nearly_right_is_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], args: list[str], meant: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"Did you mean {meant!r}?" in refused(args, capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["points", "points.py"])
def test_a_module_of_the_folder_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("points.py").write_text("import spyker\nclass Net:\n  pass\nclass Points(spyker.FederatedTask):\n  pass\n")
    assert "is not allowed. Write points:Points\n" in refused(["run", "--task", name], capsys)
    Path("points.py").write_text("def make(clients, seed, training):\n  pass\n")
    assert "is not allowed. Write points:make\n" in refused(["run", "--task", name], capsys)


@pytest.mark.parametrize("command", ["run", "compare"])
def test_only_sweeps_resume(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert "--resume: unrecognized argument. Only sweeps are resumed" in refused([command, "--resume"], capsys)


def test_a_name_that_is_far_off_gets_all_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert "spyker, sync-spyker, fedasync, fedavg, hierfavg" in refused(["run", "--algorithm", "xyz"], capsys)


def test_a_full_standard_output_fails_in_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, "scenario"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, timeout=200
        )
    assert done.returncode == 1
    assert done.stderr == "spyker: standard output: No space left on device\n"


@pytest.mark.parametrize("command", ["scenario", "plot a"])
def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path, command: str) -> None:
    assert main(["run", *QUICK, "--out", str(tmp_path / "a")]) == 0
    process = subprocess.Popen(
        [*PROGRAM, *command.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # as head does, long before the command has anything to say
    assert process.stderr.read() == ""
    assert process.wait(200) == 1


def test_the_module_is_the_program(tmp_path: Path) -> None:
    texts = [
        subprocess.run([sys.executable, "-m", module, "run", "--help"], capture_output=True, text=True, cwd=tmp_path)
        for module in ("spyker", "spyker.cli.main")
    ]
    assert texts[0].returncode == 0
    assert texts[0].stdout == texts[1].stdout
    assert texts[0].stdout.startswith("usage: spyker")


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (
            ["members", "lst", "c.toml"],
            "what: 'lst' is not allowed. Did you mean 'list'? Choose one of: list, add, remove, replace",
        ),
        (
            ["federation", "lst"],
            "ACTION: 'lst' is not allowed. Did you mean 'list'? Choose one of: create, add-client, remove-client, "
            "add-server, list, renew",
        ),
        (
            ["run", "--engine", "locl"],
            "--engine: 'locl' is not allowed. Did you mean 'local'? Choose one of: local, ray",
        ),
        (["members", "list"], "CONFIG: is missing. See spyker members --help"),
        (["join"], "FOLDER: is missing. See spyker join --help"),
        (["run", "--seed", "some"], "--seed: some is not allowed. Give an integer"),
        (["federation", "renew", "a", "--days", "some"], "--days: some is not allowed. Give a number"),
        (["run", "--seed"], "--seed: expected one argument. See spyker run --help"),
        (["run", "a.toml", "b.toml"], "b.toml: unrecognized argument. See spyker --help"),
        ([], "COMMAND: is missing. See spyker --help"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_answered_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], args: list[str], what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(args, capsys) == f"spyker: {what}\n"
    assert not list(tmp_path.iterdir())


JOIN = ["join", "--server", "127.0.0.1:1", "--clients", "0", "--insecure"]


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ([*JOIN, "--patience", "-3"], "--patience: -3 is not allowed. It must be 0 or more"),
        ([*JOIN, "--return-after", "-3"], "--return-after: -3 is not allowed. It must be 0 or more"),
        ([*JOIN, "--give-up", "-3"], "--give-up: -3 is not allowed. It must be 0 or more"),
        ([*JOIN, "--keepalive", "0"], "--keepalive: 0 is not allowed. It must be greater than 0"),
        ([*JOIN, "--stall", "nan"], "--stall: nan is not allowed. It must be greater than 0"),
        (["members", "list", "c.toml", "--timeout", "-8"], "--timeout: -8 is not allowed. It must be 0 or more"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], args: list[str], what: str
) -> None:
    assert refused(args, capsys) == f"spyker: {what}\n"


PRESSED = """
import os, signal, sys
class Pressed:
    def find_spec(self, name, path=None, target=None):
        if name == MOMENT:
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Pressed())
from spyker.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize("command", ["up", "serve", "run"])
@pytest.mark.parametrize("moment", ["spyker.cli.failures", "spyker.cli.help", "spyker.config.sections", "numpy"])
def test_ctrl_c_while_it_loads_is_no_error(tmp_path: Path, command: str, moment: str) -> None:
    words = [sys.executable, "-c", PRESSED.replace("MOMENT", repr(moment)), command]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=200)
    assert (done.returncode, done.stderr) == (130, "")
    assert not list(tmp_path.iterdir())


def test_the_help_says_what_a_task_may_be(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for command in ("run", "compare", "sweep"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text = capsys.readouterr().out
        assert "module:function" in text
        assert "entry point" in text


def test_up_takes_the_scenario_options_of_run() -> None:
    options = (
        "--preset tuned --algorithm fedavg --task quadratic --clients 3 --duration 2 --seed 4 --set world.mix-ms=1"
    )
    run, up = (scenario_arguments(parse(parser(name), [name, *options.split()])) for name in ("run", "up"))
    assert run == up
