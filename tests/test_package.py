"""The wheel: what it holds, what an index shows of it, and what it does where extras are not installed."""

import email
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.message import Message
from importlib.metadata import packages_distributions
from pathlib import Path
from subprocess import PIPE

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from spyker.api.read_scenario import read_scenario
from spyker.extras import EXTRAS
from spyker.tasks.registry import task_spec
from spyker.tasks.served_model import ServedModel, write_served_model

ROOT = Path(__file__).parents[1]
BUILD = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1]))"
FOR_DEVELOPERS = {"dev", "docs"}
HEAVY = {"matplotlib", "pandas", "pooch", "requests", "scikit-learn", "torch"}
HIDE = """
import sys, importlib.machinery
found = importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = lambda name, *more: None if name in {} else found(name, *more)
"""
SERVER = """
scenario = "scenario.toml"
[deploy]
server = 0
listen-clients = "127.0.0.1:0"
"""


@dataclass
class Wheel:
    folder: Path
    metadata: Message

    def spyker(self, *args: str, cwd: Path, extras: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """Run a command of the unpacked wheel where only these extras can be imported."""
        code = f"from spyker.cli.main import main; sys.exit(main({list(args)!r}))"
        return self.python(code, cwd=cwd, extras=extras)

    def python(self, code: str, *, cwd: Path, extras: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        with self.process(code, cwd=cwd, extras=extras) as process:
            output, errors = process.communicate(timeout=200)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def process(self, code: str, *, cwd: Path, extras: Sequence[str] = ()) -> subprocess.Popen[str]:
        installed = {module for extra in extras for module in EXTRAS[extra]}
        hidden = {module for modules in EXTRAS.values() for module in modules} - installed
        command = [sys.executable, "-c", HIDE.format(sorted(hidden)) + code]
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        return subprocess.Popen(command, cwd=cwd, env=environment, stdout=PIPE, stderr=PIPE, text=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


def build(source: Path, folder: Path) -> Wheel:
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install hatchling")
    command = [sys.executable, "-c", BUILD, str(folder)]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=200, check=True)
    with zipfile.ZipFile(folder / built.stdout.strip()) as file:
        file.extractall(folder / "unpacked")
    (metadata,) = folder.glob("unpacked/*.dist-info/METADATA")
    return Wheel(folder / "unpacked", email.message_from_string(metadata.read_text("utf-8")))


def test_it_says_who_made_it_and_where_to_find_it(wheel: Wheel) -> None:
    assert wheel.metadata["Author"] == "The Spyker authors"
    links = dict(url.split(", ") for url in wheel.metadata.get_all("Project-URL", []))
    assert set(links) == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    assert all(url.startswith(links["Homepage"]) for url in links.values())
    versions = [f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)]
    assert set(versions) <= set(wheel.metadata.get_all("Classifier", []))


def test_its_readme_renders_and_every_link_of_it_is_whole(wheel: Wheel) -> None:
    markdown = pytest.importorskip("readme_renderer.markdown", reason="pip install 'readme_renderer[md]'")
    html = markdown.render(wheel.metadata.get_payload())
    assert html is not None
    pictures, links = re.findall(r'<img[^>]* src="([^"]*)"', html), re.findall(r'<a href="([^"]*)"', html)
    assert len(pictures) == (ROOT / "README.md").read_text("utf-8").count("](docs/images/")
    home = dict(url.split(", ") for url in wheel.metadata.get_all("Project-URL", []))["Homepage"]
    assert all(picture.startswith(f"{home}/raw/main/docs/images/") for picture in pictures)
    written = [link for link in links if not link.startswith("#user-content-")]  # those stand at the headings
    assert len(written) > 20
    assert all(link.startswith("https://") for link in written)
    for link in (*pictures, *written):
        if link.startswith((f"{home}/raw/main/", f"{home}/blob/main/")):
            place = link.partition("/main/")[2].partition("#")[0]
            assert (ROOT / place).exists(), link


def test_it_holds_what_is_not_python(wheel: Wheel) -> None:
    assert (wheel.folder / "spyker/py.typed").exists()


def test_the_lab_is_a_wheel_of_its_own(wheel: Wheel, tmp_path: Path) -> None:
    lab = build(ROOT / "lab", tmp_path)
    assert (lab.folder / "spyker_lab/native/kernels.c").exists()
    assert {path.name for path in lab.folder.iterdir() if path.suffix != ".dist-info"} == {"spyker_lab"}
    assert {path.name for path in wheel.folder.iterdir() if path.suffix != ".dist-info"} == {"spyker"}


def installed_by(wheel: Wheel, extra: str) -> set[str]:
    """The packages that an extra asks for, and those of the extras that it names."""
    wanted = [Requirement(line) for line in wheel.metadata.get_all("Requires-Dist", [])]
    chosen = [each for each in wanted if each.marker is None or each.marker.evaluate({"extra": extra})]
    others = [other for each in chosen if each.name == "spyker-fl" for other in each.extras]
    return {each.name for each in chosen} - {"spyker-fl"} | {
        name for other in others for name in installed_by(wheel, other)
    }


def test_the_library_knows_which_extra_installs_a_package(wheel: Wheel) -> None:
    assert set(wheel.metadata.get_all("Provides-Extra", [])) - FOR_DEVELOPERS - {"all"} == set(EXTRAS)
    packages = packages_distributions()
    for extra, modules in EXTRAS.items():
        there = [module for module in modules if module in packages]  # Flower is not in every environment
        assert all({canonicalize_name(name) for name in packages[m]} & installed_by(wheel, extra) for m in there), extra


def test_a_server_needs_nothing_heavy(wheel: Wheel) -> None:
    assert not installed_by(wheel, "server") & HEAVY
    assert installed_by(wheel, "client") & HEAVY == {"torch"}


def test_what_protoc_generated_runs_with_the_oldest_protobuf_that_is_allowed() -> None:
    """Code that is newer than the library refuses to run, and other packages keep the library old: Flower below 7."""
    generated = (ROOT / "spyker/net/spyker_pb2.py").read_text("utf-8")
    (version,) = re.findall(r"Protobuf Python Version: ([\d.]+)", generated)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert f"protobuf>={version}" in extras["server"]


def test_all_extras_but_those_of_flower_are_in_one(wheel: Wheel) -> None:
    named = set().union(*(installed_by(wheel, extra) for extra in EXTRAS if not extra.startswith("flower")))
    assert installed_by(wheel, "all") == named


@pytest.mark.parametrize(("task", "extras"), [("quadratic", []), ("digits", ["simulation"])])
def test_it_runs_with_what_the_task_needs(wheel: Wheel, tmp_path: Path, task: str, extras: list[str]) -> None:
    size = ["--clients", "8", "--duration", "2", "--workers", "0"]
    done = wheel.spyker("run", "--task", task, *size, "--out", "a", "--json", "--quiet", cwd=tmp_path, extras=extras)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["finished"]


def test_every_command_has_help_without_extras(wheel: Wheel, tmp_path: Path) -> None:
    code = "from spyker.cli.main import COMMANDS, parser; print(*(parser(name).format_help() for name in COMMANDS))"
    done = wheel.python(code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_server_with_a_model_file_runs_without_torch(wheel: Wheel, tmp_path: Path) -> None:
    """It has neither the task nor its data."""
    model = ServedModel.of(task_spec(read_scenario(task="digits", clients=4)).make())
    write_served_model(tmp_path / "model.safetensors", model)
    (tmp_path / "scenario.toml").write_text('algorithm = "fedasync"\n[task]\nname = "mnist"\n')
    (tmp_path / "server.toml").write_text(SERVER + 'model = "model.safetensors"\n')
    checked = wheel.spyker("serve", "server.toml", "--check", "--insecure", cwd=tmp_path, extras=["server"])
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "server 0 can start here\n", "")
    code = "from spyker.cli.main import main; sys.exit(main(['serve', 'server.toml', '--insecure']))"
    with wheel.process(code, cwd=tmp_path, extras=["server"]) as server:
        assert server.stderr is not None
        log = [json.loads(server.stderr.readline())["event"] for _ in range(2)]
        server.terminate()
    assert (log, server.returncode) == (["waiting", "listening"], 0)


def test_a_server_without_a_model_file_says_that_it_needs_torch_for_the_task(wheel: Wheel, tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text('algorithm = "fedasync"\n[task]\nname = "digits"\n')
    (tmp_path / "server.toml").write_text(SERVER)
    for more in ([], ["--check"]):
        done = wheel.spyker("serve", "server.toml", "--insecure", *more, cwd=tmp_path, extras=["server"])
        assert done.returncode == 2
        assert done.stderr.endswith(
            "task digits: needs sklearn, torch, which are not installed. "
            "Install them: pip install 'spyker-fl[simulation]'\n"
        )


def test_without_torch_a_model_is_exported_as_safetensors(wheel: Wheel, tmp_path: Path) -> None:
    wheel.spyker("run", "--task", "quadratic", "--clients", "4", "--duration", "1", "--out", "a", cwd=tmp_path)
    done = wheel.spyker("export", "a", "--out", "model", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in tmp_path.iterdir()} == {"a", "model.safetensors"}


NEEDED = {
    "": [
        ("simulation", "run --task digits --workers 0"),
        ("simulation", "run --task own:make"),
        ("simulation", "compare --task quadratic"),
        ("simulation", "sweep --task quadratic --vary seed=1,2"),
        ("simulation", "plot x"),
        ("simulation", "data --task digits"),
        ("server", "up --task quadratic"),
        ("server", "federation create own:make --server a=127.0.0.1:1 --client b"),
        ("server", "serve x.toml"),
        ("client", "join x --server 127.0.0.1:1 --clients 0"),
        ("flower,simulation", "run --flower app:app"),
        ("dashboard", "dash x"),
        ("dashboard", "run --task quadratic --dashboard"),
    ],
    "simulation": [
        ("client", "join x --server 127.0.0.1:1 --clients 0"),
        ("flower", "run --flower app:app"),
        ("ray", "run --engine ray --duration 1"),
    ],
    "server": [("client", "join scenario.toml --server 127.0.0.1:1 --clients 0 --insecure")],
}
"""By the extra that is installed: commands, and the extra that they ask for."""
EACH = """
import contextlib, io, json
from spyker.cli.main import main
for args in {!r}:
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = main(args.split())
    print(json.dumps([code, said.getvalue()]))
"""


@pytest.mark.parametrize("there", NEEDED)
def test_who_needs_an_extra_is_told_what_to_install(wheel: Wheel, tmp_path: Path, there: str) -> None:
    """One process for all commands: most of its time goes into imports."""
    (tmp_path / "own.py").write_text("import torch\n")
    (tmp_path / "scenario.toml").write_text('[task]\nname = "own:make"\n')
    done = wheel.python(EACH.format([args for _, args in NEEDED[there]]), cwd=tmp_path, extras=there.split())
    assert (done.returncode, done.stderr) == (0, "")
    for (extra, args), line in zip(NEEDED[there], done.stdout.splitlines(), strict=True):
        code, said = json.loads(line)
        assert (code, said.count("\n")) == (2, 1), args
        wanted = extra if extra in ("pandas", "ray") else f"'spyker-fl[{extra}]'"
        assert said.endswith(f": pip install {wanted}\n"), args
    assert not {path.name for path in tmp_path.iterdir()} - {"own.py", "scenario.toml", "__pycache__"}


def test_and_so_is_who_needs_one_in_python(wheel: Wheel, tmp_path: Path) -> None:
    run = "import spyker; run = spyker.run(task='quadratic', clients=4, duration=1, progress=False); run.curve"
    done = wheel.python(run, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("needs pandas, which is not installed. Install it: pip install pandas\n")


def test_make_demo_installs_what_the_python_examples_need(wheel: Wheel, tmp_path: Path) -> None:
    recipe = re.search(r"^\.venv/installed:.*?-e '\.\[(.*?)\]'", (ROOT / "Makefile").read_text("utf-8"), re.S | re.M)
    assert recipe is not None
    code = (
        "import spyker; runs = spyker.compare(['stride'], task='quadratic', clients=4, duration=1, progress=False); "
        "print(runs.table, runs['stride'].curve, runs['stride'].state_dict()); runs.plot('a.png')"
    )
    done = wheel.python(code, cwd=tmp_path, extras=recipe[1].split(","))
    assert (done.returncode, done.stderr) == (0, "")


def absolute() -> Callable[[str, str], str]:
    sys.path.insert(0, str(ROOT))
    try:
        from hatch_build import absolute as found
    finally:
        sys.path.remove(str(ROOT))
    return found


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("[a](docs/a.md)", "[a](https://x/blob/main/docs/a.md)"),
        ("![a b](docs/a.png)", "![a b](https://x/raw/main/docs/a.png)"),
        ("[the model](#the-model)", "[the model](https://x/blob/main/README.md#the-model)"),
        ("[`a[0]`](a.py), [b](b)", "[`a[0]`](https://x/blob/main/a.py), [b](https://x/blob/main/b)"),
        ("[Ray](https://docs.ray.io)", "[Ray](https://docs.ray.io)"),
        ("f(x)[0](y z)", "f(x)[0](y z)"),
    ],
)
def test_links_become_whole(text: str, whole: str) -> None:
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install hatchling")
    assert absolute()(text, "https://x") == whole
