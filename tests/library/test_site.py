"""The documentation as a site: ``make docs``."""

import dataclasses
import inspect
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

import spyker
from spyker.algorithms.builtin import ALGORITHMS
from spyker.config.scenario import SECTIONS
from spyker.config.sections import kebab
from spyker.net.server_config import DeploymentOptions

pytest.importorskip("material", reason="the site needs pip install 'spyker-fl[docs]'")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return folder


def text_of(page: Path) -> str:
    return unescape(re.sub(r"<[^>]+>", "", page.read_text("utf-8")))


def test_every_page_is_there_and_in_the_menu(site: Path) -> None:
    front = (site / "index.html").read_text("utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        place = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / place).exists()
        assert f'href="{place}"' in front
    assert "architecture.html" in front


def test_every_parameter_is_explained(site: Path) -> None:
    page = text_of(site / "reference" / "parameters.html")
    sections = [*SECTIONS.values(), DeploymentOptions, *(algorithm.Parameters for algorithm in ALGORITHMS.values())]
    for field in (field for section in sections for field in dataclasses.fields(section)):
        assert kebab(field.name) in page
        assert " ".join(field.metadata["rule"].doc.split()) in " ".join(page.split())


def test_every_name_of_the_library_is_explained(site: Path) -> None:
    page = (site / "reference" / "python.html").read_text("utf-8")
    for name in set(spyker.__all__) - {"__version__"}:
        assert f'id="spyker.{name}"' in page, f"docs/reference/python.md has no ::: spyker.{name}"
    assert ":class:" not in page


WITH_TABLES = [
    "run",
    "compare",
    "sweep",
    "load",
    "EarlyStopping",
    "TorchTask",
    "ExtraMetric",
    "Metric",
    "LazyDataset",
    "StreamedDataset",
    "TrainingResult",
]


@pytest.mark.parametrize("name", WITH_TABLES)
def test_every_argument_is_in_the_table_of_its_function(name: str) -> None:
    text = (ROOT / "docs" / "reference" / "python.md").read_text("utf-8")
    section = text.partition(f"::: spyker.{name}\n")[2].partition("\n:::")[0]
    rows = re.findall(r"^\| (`[^|]*`) \|", section, re.MULTILINE)
    told = [argument for row in rows for argument in re.findall(r"`([^`]*)`", row)]
    assert sorted(told) == sorted(set(inspect.signature(getattr(spyker, name)).parameters) - {"self"})


def test_files_that_pages_link_to_can_be_read(site: Path) -> None:
    assert "class Stride" in text_of(site / "source" / "spyker" / "algorithms" / "stride.py.html")
    assert "Twelve clients" in text_of(site / "source" / "examples" / "first_look.ipynb.html")
    page = (site / "tutorials" / "examples.html").read_text("utf-8")
    assert 'href="../source/examples/own_task.py.html"' in page


def test_nothing_comes_from_elsewhere_when_a_page_is_read(site: Path) -> None:
    for page in site.rglob("*.html"):
        html = page.read_text("utf-8")
        assert not re.findall(r"<(?:script|img|link|iframe)\b[^>]*(?:src|href)=\"(https?:[^\"]+)", html), page
