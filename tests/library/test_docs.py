"""What the pages in docs/ and the README say can be done, can be done. What is run, and how, is in helpers/pages.py."""

import dataclasses
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest
from pages import KNOWN, NOT_RUN, blocks, check_arguments, program

import spyker.protocol.facts
import spyker.records.run_facts
from spyker.engines import start_engine
from spyker.engines.engine import Engine, InProcessEngine
from spyker.engines.start_engine import available_cores
from spyker.engines.worker_processes import ProcessPoolEngine
from spyker.errors import UsageError
from spyker.protocol.facts import Fact, UpdateApplied
from spyker.records import UnknownFact
from spyker.tasks.registry import TaskSpec

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
every_page = pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES])


def in_this_process(plan: TaskSpec, parameters: int, count: int) -> Engine:
    """The engine where nobody has said how many workers there are: most of their time goes into importing PyTorch."""
    return InProcessEngine(plan.make()) if count == available_cores() else ProcessPoolEngine(plan, parameters, count)


@every_page
@pytest.mark.timeout(900)
def test_the_blocks_of_a_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Path) -> None:
    """All pages run in one process, for the same reason."""
    todo = program(page.read_text("utf-8"))
    if todo.count("\n") == 2:
        return  # nothing but imports
    (tmp_path / "page.py").write_text(todo)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(start_engine, "ProcessPoolEngine", in_this_process)
    before = set(sys.modules)
    try:
        runpy.run_path("page.py", run_name="__main__")
    finally:  # another page has modules of the same name
        for name in sys.modules.keys() - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
                del sys.modules[name]


@every_page
def test_blocks_that_are_not_run_are_marked_and_complete(page: Path) -> None:
    for block in blocks(page.read_text("utf-8")):
        assert block.language in KNOWN, f"{page.name}, line {block.line}: write python, console (with $) or toml"
        if block.language == "console" and not block.run:
            try:
                check_arguments(block.text)
            except UsageError as error:
                pytest.fail(f"{page.name}, line {block.line}: {error}")


@pytest.mark.parametrize(
    "wrong",
    [
        "$ spyker run --no-such-option",
        "$ spyker --version\nspyker 0.0.0",
        "$ reboot",
        "$ pip install 'spyker-fl[no-such]'",
    ],
)
def test_a_command_that_is_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.chdir(tmp_path)
    page = f"```console\n{wrong}\n```\n"
    with pytest.raises(AssertionError):
        exec(program(page), {})


def test_a_file_of_a_page_is_written_and_run_by_its_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = "<!-- File: wrong.py -->\n\n```python\n1 / 0\n```\n"
    exec(program(page), {})
    assert Path("wrong.py").read_text() == "1 / 0\n"
    with pytest.raises(ZeroDivisionError):
        exec(program(page + "```console\n$ python wrong.py\n```\n"), {})


def test_a_program_or_a_scenario_that_is_wrong_is_found() -> None:
    with pytest.raises(ZeroDivisionError):
        exec(program("```python\n1 / 0\n```\n"), {})
    with pytest.raises(UsageError, match=r"world\.region"):
        exec(program("```toml\n[world]\nregion = 3\n```\n"), {})


def test_what_is_not_run_is_checked() -> None:
    (block,) = blocks(f"{NOT_RUN}it would. -->\n\n```console\n$ spyker run --no-such-option\n```\n")
    assert not block.run
    with pytest.raises(UsageError, match="--no-such-option"):
        check_arguments(block.text)


def test_the_reference_of_records_has_every_kind_of_fact_with_its_fields() -> None:
    text = (ROOT / "docs" / "reference" / "records.md").read_text("utf-8")
    rows = re.findall(r"^\| (`[^|]*`) \| (`[^|]*`) \|", text, re.MULTILINE)
    said = {kind: fields.strip("`").split(", ") for kinds, fields in rows for kind in re.findall(r"`([^`]*)`", kinds)}
    for module in (spyker.protocol.facts, spyker.records.run_facts):
        for fact in vars(module).values():
            if isinstance(fact, type) and issubclass(fact, Fact) and fact not in (Fact, UnknownFact):
                fields = [field.name for field in dataclasses.fields(fact)]
                queue = ["queue"] if fact is UpdateApplied else []  # which every server adds
                assert said[fact.kind] == fields + queue, fact.kind


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 900
