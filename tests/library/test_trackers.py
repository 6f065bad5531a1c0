"""``follow``: who else is told a run. Each tracker's own reader says what arrived."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from events import runs, scalars, settings

import spyker
from spyker.cli.main import main
from spyker.errors import UsageError
from spyker.plots.trackers.forwarding import TrackerForwarder
from spyker.plots.trackers.rows import MetricRow
from spyker.plots.trackers.tensorboard import TensorBoard
from spyker.plots.trackers.tracker import RunDescription, RunLog, Tracker
from spyker.records import Evaluated, RunStarted

QUICK: dict[str, Any] = {"task": "quadratic", "duration": 3.0, "clients": 8, "progress": False, "workers": 0}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    return tmp_path


def evaluations(run: spyker.Run) -> list[tuple[float, Evaluated]]:
    return [(t, fact) for t, fact, _ in run.record.facts(Evaluated)]


# --- TensorBoard -----------------------------------------------------------------------------------------------------


def test_tensorboard_has_every_evaluation_by_updates_and_virtual_time() -> None:
    run = spyker.run(out="a", trackers=["tensorboard=logs"], settings={"evaluation.targets": [0.3]}, **QUICK)
    told, there = scalars(Path("logs/a"), "covered/mean"), evaluations(run)
    assert [step for step, _, _ in told] == [fact.updates for _, fact in there]
    assert [t for _, t, _ in told] == pytest.approx([t for t, _ in there], abs=1e-3)
    assert [value for _, _, value in told] == pytest.approx([fact.mean for _, fact in there])
    assert scalars(Path("logs/a"), "covered of servers/Paris")[-1][2] == pytest.approx(there[-1][1].servers[1])
    counted = scalars(Path("logs/a"), "update/count")[-1]
    assert counted[2] == counted[0] == there[-1][1].updates, "each update was told, and once"
    reached = run.reached(0.3)
    assert reached is not None
    assert scalars(Path("logs/a"), "reached 0.3/seconds")[0][2] == pytest.approx(reached.time)
    shown = settings(Path("logs/a"))
    assert (shown["algorithm"], shown["seed"], shown["training.rate"], shown["task.name"]) == (
        "stride", 1, 0.05, "quadratic",
    )  # fmt: skip
    assert "fedavg.fraction" not in shown, "it did not run"


def test_a_record_has_the_same_bytes_whoever_follows() -> None:
    spyker.run(out="a", trackers=["tensorboard=logs"], **QUICK)
    spyker.run(out="b", **QUICK)
    assert Path("a/facts.jsonl").read_bytes() == Path("b/facts.jsonl").read_bytes()


def test_a_comparison_and_a_sweep_are_runs_below_a_name(here: Path) -> None:
    spyker.compare(["stride", "fedavg"], out="c", trackers=["tensorboard=logs"], **QUICK)
    vary: dict[str, list[object]] = {"training.rate": [0.05, 0.2]}
    many = {key: value for key, value in QUICK.items() if key != "workers"}
    done = spyker.sweep(vary=vary, out="s", jobs=1, trackers=["tensorboard=logs"], **many)
    names = [Path(row.folders[0]).name for row in done.rows]
    assert runs(Path("logs")) == sorted(["c/stride", "c/fedavg", *(f"s/{name}" for name in names)])
    assert [settings(Path("logs/s", name))["training.rate"] for name in names] == [0.05, 0.2]
    before = {path: path.stat().st_mtime_ns for path in Path("logs/s").rglob("events*")}
    vary = {"training.rate": [0.05, 0.2, 0.1]}
    spyker.sweep(vary=vary, out="s", jobs=1, resume=True, trackers=["tensorboard=logs"], **many)
    after = {path: path.stat().st_mtime_ns for path in Path("logs/s").rglob("events*")}
    assert before.items() < after.items(), "finished runs are not told again"
    assert len(after) == 3


def test_a_resumed_run_is_told_whole() -> None:
    whole = spyker.run(out="whole", trackers=["tensorboard=logs"], **QUICK)
    spyker.run(out="parts", trackers=["tensorboard=logs"], callbacks=[lambda t, fact: t > 1.4], **QUICK)
    spyker.run(out="parts", resume=True, trackers=["tensorboard=logs"], progress=False, workers=0)
    for tag in ("covered/mean", "update/count", "update/staleness"):
        told = [(step, value) for step, _, value in scalars(Path("logs/parts"), tag)]
        assert told == [(step, value) for step, _, value in scalars(Path("logs/whole"), tag)]
    assert len(scalars(Path("logs/parts"), "covered/mean")) == len(evaluations(whole))


def test_a_server_that_lost_updates_has_them_forgotten(here: Path) -> None:
    run = spyker.run(out="a", **QUICK)
    tracker = TensorBoard("logs")
    tracker.check()
    page = tracker.open(RunDescription("a", run.record.start, {}, 1e9))
    for updates, t in ((0, 0.0), (10, 1.0), (20, 2.0), (12, 3.0), (15, 4.0)):
        page.write(MetricRow(updates, t, {"x": float(updates)}))
    page.end(None)
    assert [step for step, _, _ in scalars(Path("logs/a"), "x")] == [0, 10, 12, 15]


def test_what_others_have_in_the_folder_stays() -> None:
    theirs = Path("logs/a/events.out.tfevents.1.host")
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"")
    for _ in range(2):
        spyker.run(out="a", overwrite=True, trackers=["tensorboard=logs"], **QUICK)
    assert theirs.exists()
    assert len(list(theirs.parent.iterdir())) == 2, "one of theirs, and the last of ours"


# --- MLflow and Weights & Biases -------------------------------------------------------------------------------------


def test_mlflow_has_parameters_and_metrics() -> None:
    tracking = pytest.importorskip("mlflow", reason="needs the extra [mlflow]")
    compared = spyker.compare(["stride", "fedavg"], out="c", trackers=["mlflow=there"], **QUICK)
    client = tracking.MlflowClient(tracking_uri=f"sqlite:///{Path('there/mlflow.db').resolve()}")
    experiment = client.get_experiment_by_name("spyker")
    found = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(found) == {"c/stride", "c/fedavg"}
    told = found["c/fedavg"]
    assert (told.data.params["algorithm"], told.data.params["training.rate"]) == ("fedavg", "0.05")
    assert told.info.status == "FINISHED"
    history = client.get_metric_history(told.info.run_id, "covered/mean")
    there = evaluations(compared["fedavg"])
    assert [(each.step, each.value) for each in history] == [(fact.updates, fact.mean) for _, fact in there]
    began = told.info.start_time
    assert [each.timestamp - began for each in history] == [round(1000 * t) for t, _ in there]


def test_weights_and_biases_has_them_offline(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="needs the extra [wandb]")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(here))
    run = spyker.run(out="a", trackers=["wandb=digits"], **QUICK)
    wandb.teardown()  # as at the end of a process: what is buffered reaches the disk
    (file,) = here.glob("wandb/offline-run-*/run-*.wandb")
    records = list(wandb_records(file))
    (header,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert (header.project, header.display_name) == ("digits", "a")
    config = {item.key: json.loads(item.value_json) for item in header.config.update}
    assert (config["algorithm"], config["training.rate"]) == ("stride", 0.05)
    rows = [
        {"/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    told = [(row["run/seconds"], row["run/updates"], row["covered/mean"]) for row in rows]
    assert told == [(t, fact.updates, fact.mean) for t, fact in evaluations(run)]
    assert [record.exit.exit_code for record in records if record.WhichOneof("record_type") == "exit"] == [0]


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of an offline run: a log of blocks as LevelDB writes it."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, text, block = path.read_bytes(), 7, b"", 32768
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        text += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(text)
            text = b""


def test_weights_and_biases_wants_a_key_unless_offline(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="needs the extra [wandb]")
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(here / "none"))
    with pytest.raises(UsageError, match="has no API key"):
        spyker.run(out="a", trackers=["wandb=digits"], **QUICK)
    assert not Path("a").exists()


# --- What goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_extra_is_named(
    here: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, kind, None)
    code = main(["run", "--task", "quadratic", "--duration", "1", "--out", "a", "--tracker", f"{kind}=x"])
    said = capsys.readouterr().err
    assert (code, list(here.iterdir())) == (2, [])
    assert f"--tracker {kind}=x: needs {kind}, which is not installed. Run pip install 'spyker-fl[{kind}]'" in said


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("tensorbord=x", "Did you mean 'tensorboard'?"),
        ("aim=x", "Choose one of: tensorboard, mlflow, wandb"),
        ("tensorboard", "Write tensorboard=DIR"),
        ("tensorboard=file/x", "Name a folder that can be written"),
    ],
)
def test_what_makes_no_sense_changes_nothing(here: Path, text: str, remedy: str) -> None:
    Path("file").write_text("")
    with pytest.raises(UsageError, match=remedy.replace("?", r"\?")):
        spyker.run(out="a", trackers=[text], **QUICK)
    assert [path.name for path in here.iterdir()] == ["file"]


class Failing(Tracker):
    """Fails when it is told something."""

    name, module, meaning = "failing", "sys", "AT"

    def prepare(self) -> None:
        pass

    def open(self, about: RunDescription) -> RunLog:
        if self.place == "open":
            raise ConnectionError("no route")
        return FailingPage(self.place)


class FailingPage(RunLog):
    def __init__(self, at: str) -> None:
        self.at = at

    def write(self, row: MetricRow) -> None:
        if self.at == "write":
            raise OSError(28, "No space left on device")

    def end(self, summary: Any) -> None:
        if self.at == "end":
            raise TimeoutError


@pytest.mark.parametrize(("at", "said"), [("open", "no route"), ("write", "No space left"), ("end", "TimeoutError")])
def test_a_tracker_that_fails_is_left_out_and_the_others_go_on(at: str, said: str) -> None:
    run = spyker.run(out="a", **QUICK)
    complaints: list[str] = []
    good = TensorBoard("logs")
    good.check()
    with TrackerForwarder([Failing(at), good], Path("a"), "a", complaints.append) as following:
        for t, fact, _ in run.facts():
            following.fact(t, fact)
        following.end(run.summary)
    assert len(complaints) == 1
    assert said in complaints[0]
    assert len(scalars(Path("logs/a"), "covered/mean")) == len(evaluations(run))


# --- Early stopping --------------------------------------------------------------------------------------------------


def test_early_stopping_ends_a_run_that_gets_no_better() -> None:
    stopping = spyker.EarlyStopping(0.5, min_delta=0.5)
    options = QUICK | {"duration": 30.0, "settings": {"evaluation.interval": 0.25}}
    run = spyker.run(out="a", callbacks=[stopping], **options)
    assert not run.finished
    assert stopping.stopped == pytest.approx(evaluations(run)[-1][0])
    scores = [fact.mean for _, fact in evaluations(run)]
    assert max(scores[-3:]) - scores[-3] <= 0.5


@pytest.mark.parametrize(("higher", "stopped"), [(True, [3.0, 3.5]), (False, [])])
def test_early_stopping_knows_what_is_better(higher: bool, stopped: list[float]) -> None:
    stopping = spyker.EarlyStopping(2.0)
    start = RunStarted(1, "0", "a", "A", "t", "m", higher, [], [], 1, 1, [], 1.0, "emulated", None, None)
    ends = [stopping.fact(0.0, start)]
    for t, score in ((0.5, 5.0), (1.0, 6.0), (2.0, 4.0), (2.5, float("nan")), (3.0, 3.0), (3.5, 2.0)):
        ends.append(stopping.fact(t, Evaluated(0, 0, score, score, score, score, [score])))
    assert [t for t, end in zip((0.0, 0.5, 1.0, 2.0, 2.5, 3.0, 3.5), ends, strict=True) if end] == stopped


def test_early_stopping_remembers_what_was_before_a_resumption() -> None:
    options = QUICK | {"duration": 6.0, "settings": {"evaluation.interval": 0.5}}
    spyker.run(out="a", callbacks=[lambda t, fact: t > 1.4], **options)
    never = spyker.EarlyStopping(2.0, min_delta=10.0)
    run = spyker.run(out="a", resume=True, callbacks=[never], progress=False, workers=0)
    assert never.stopped == 2.0, "counted from the beginning, not from where it went on"
    assert not run.finished


@pytest.mark.parametrize("wrong", [{"patience": 0}, {"patience": 1, "min_delta": -1}, {"patience": 1, "score": "top"}])
def test_early_stopping_refuses_what_makes_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        spyker.EarlyStopping(**wrong)


def test_patience_in_a_scenario_ends_at_the_same_event_every_time() -> None:
    settings = {"evaluation.interval": 0.5, "evaluation.patience": 1.0, "training.rate": 1e-12}
    for out, workers in (("a", 0), ("b", 2)):
        run = spyker.run(out=out, settings=settings, **(QUICK | {"duration": 30.0, "workers": workers}))
        assert run.finished, "that is its end"
        assert [t for t, _ in evaluations(run)] == [0.0, 0.5, 1.0, 1.5], "decided one evaluation late"
    assert Path("a/facts.jsonl").read_bytes() == Path("b/facts.jsonl").read_bytes()
