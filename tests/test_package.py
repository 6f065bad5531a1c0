"""The wheel: what it holds, what an index shows of it, and what it does where no extra is installed."""

import email
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1]))"
EXTRAS = {
    "net": ["cryptography", "google.protobuf", "grpc", "grpc_health", "prometheus_client"],
    "flower": ["flwr"],
    "flower-datasets": ["flwr_datasets"],
    "dashboard": ["starlette", "uvicorn"],
    "pandas": ["pandas"],
    "ray": ["ray"],
}
"""What is imported of each extra. A new extra belongs here, and into the test of what is said without it."""
FOR_DEVELOPERS = {"dev", "docs"}
BLOCKED = [name for names in EXTRAS.values() for name in names]


@dataclass
class Wheel:
    folder: Path
    metadata: Message

    def spyker(self, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a command of the unpacked wheel where no extra can be imported."""
        code = f"from spyker.cli.main import main; sys.exit(main({list(args)!r}))"
        return self.python(code, cwd=cwd)

    def python(self, code: str, *, cwd: Path) -> subprocess.CompletedProcess[str]:
        begin = f"import sys; sys.modules.update(dict.fromkeys({BLOCKED!r}))\n"
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        command = [sys.executable, "-c", begin + code]
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=110)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


def build(source: Path, folder: Path) -> Wheel:
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install hatchling")
    command = [sys.executable, "-c", BUILD, str(folder)]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=100, check=True)
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


def test_every_extra_is_looked_at(wheel: Wheel) -> None:
    assert set(wheel.metadata.get_all("Provides-Extra", [])) - FOR_DEVELOPERS == set(EXTRAS)


@pytest.mark.parametrize("task", ["quadratic", "digits"])
def test_it_runs_without_extras(wheel: Wheel, tmp_path: Path, task: str) -> None:
    size = ["--clients", "8", "--duration", "2", "--workers", "0"]
    done = wheel.spyker("run", "--task", task, *size, "--out", "a", "--json", "--quiet", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["finished"]


@pytest.mark.parametrize(
    ("extra", "args"),
    [
        ("net", ["up", "--task", "quadratic"]),
        ("net", ["certs", "x", "--servers", "1", "--clients", "1"]),
        ("net", ["serve", "x.toml"]),
        ("net", ["join", "--server", "127.0.0.1:1", "--clients", "0"]),
        ("flower", ["run", "--flower", "app:app"]),
        ("dashboard", ["dash", "x"]),
        ("ray", ["run", "--engine", "ray", "--duration", "1"]),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_who_needs_an_extra_is_told_what_to_install(wheel: Wheel, tmp_path: Path, extra: str, args: list[str]) -> None:
    done = wheel.spyker(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"pip install 'spyker-fl[{extra}]'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_and_so_is_who_needs_one_in_python(wheel: Wheel, tmp_path: Path) -> None:
    run = "import spyker; run = spyker.run(task='quadratic', clients=4, duration=1, progress=False); run.curve"
    done = wheel.python(run, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("DataFrames need pandas. Install it: pip install 'spyker-fl[pandas]'\n")


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
