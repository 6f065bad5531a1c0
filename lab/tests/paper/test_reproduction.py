"""Every item from end to end, at a miniature size: the embedded digits, for less than a virtual second."""

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from spyker.cli.main import main
from spyker.records import RunRecord
from spyker.sweeps.runner import folder_of, run_all
from spyker_lab.paper.item import Profile, Section
from spyker_lab.paper.items import ITEMS, PAPER
from spyker_lab.paper.profiles import PROFILES
from spyker_lab.paper.reproduction import ItemPlan, plan, tell
from spyker_lab.paper.reproduction_document import document

DIGITS = {"task.name": "digits"}
MINIATURE = Profile(
    "miniature",
    1,
    "a test",
    tasks={"mnist": DIGITS, "cifar10": DIGITS, "wikitext2": DIGITS},
    settings={"duration": 0.8, "evaluation.interval": 0.4, "evaluation.stop-at": 2.0},
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[ItemPlan], dict[str, Section]]:
    out = tmp_path_factory.mktemp("reproduce")
    plans = [plan(item, MINIATURE) for item in ITEMS.values()]
    scenarios = [s for p in plans for s in p.all()]
    runs = {folder_of(s, out / "runs"): r for s, r in zip(scenarios, run_all(scenarios, out / "runs"), strict=True)}
    sections = {}
    for p in plans:
        mine: dict[str, Sequence[RunRecord | None]] = {
            label: [runs[folder_of(s, out / "runs")] for s in seeded] for label, seeded in p.scenarios.items()
        }
        sections[p.item.name] = tell(p, mine, out / p.item.name)
    return out, plans, sections


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ITEMS)
def test_an_item_leaves_a_figure_numbers_and_a_section(
    name: str, made: tuple[Path, list[ItemPlan], dict[str, Section]]
) -> None:
    folder = made[0] / name
    with Image.open(folder / "figure.png") as picture:
        low, high = picture.convert("L").getextrema()
        assert low < 100 < 200 < high  # something is drawn, on white
    assert (folder / "figure.pdf").read_bytes().startswith(b"%PDF")
    rows = list(csv.reader((folder / "numbers.csv").open()))
    assert rows[0] == ["run", "measure", "seed 1"]
    assert {row[0] for row in rows[1:]} >= set(ITEMS[name].runs) or name in ("readings", "sensitivity")
    assert any(row[2] for row in rows[1:])
    text = (folder / "section.md").read_text()
    assert f"## {name}\n" in text
    assert "Profile miniature, 1 seed" in text
    assert "| " in text


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_items_share_identical_runs(made: tuple[Path, list[ItemPlan], dict[str, Section]]) -> None:
    out, plans, _ = made
    assert len(list((out / "runs").iterdir())) < sum(len(p.scenarios) for p in plans)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_document_has_every_section_and_every_claim(made: tuple[Path, list[ItemPlan], dict[str, Section]]) -> None:
    _, plans, sections = made
    text = document(plans, sections, lambda name: f"{name}.png")
    for name, section in sections.items():
        assert f"![{section.caption}]({name}.png)" in text
        assert all(claim.sentence in text for claim in section.claims)
    claims = [claim for item in PAPER for claim in sections[item.name].claims]
    assert f"Of {sum(not claim.again for claim in claims)} claims of the paper" in text.split("|")[0]
    assert f"Of {sum(claim.again for claim in claims)} second readings" in text.split("|")[0]
    assert all(f"](#{item.name}) | {c.sentence} |" in text for item in PAPER for c in sections[item.name].claims)
    assert "at most Δ per round trip" in text
    assert "with the paper's latencies it arrived " in text
    assert "; with uniform latencies it arrived " in text
    assert "On MNIST (`readings`) Spyker takes less time than FedAsync to 90 % by " in text


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_what_is_not_finished_is_named_and_the_rest_told(made: tuple[Path, list[ItemPlan], dict[str, Section]]) -> None:
    _, plans, sections = made
    text = document(plans, {"queues": sections["queues"]}, lambda name: f"{name}.png")
    assert "## queues" in text
    assert "Not finished, and not included: latency, scalability," in text


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_claim_can_be_explained(made: tuple[Path, list[ItemPlan], dict[str, Section]]) -> None:
    unexplained = [c.sentence for section in made[2].values() for c in section.claims if not c.why]
    assert unexplained == []


def test_every_item_of_the_paper_makes_a_claim_and_asks_for_sizes_that_exist() -> None:
    for profile in PROFILES.values():
        for item in ITEMS.values():
            if profile.name in item.minutes:
                assert plan(item, profile, 1).scenarios
    assert {item.name for item in PAPER} == {
        "mnist", "cifar10", "wikitext2", "scalability", "scalability-each", "queues", "latency", "imbalance",
        "update-density", "decay", "bandwidth",
    }  # fmt: skip


def test_standard_decides_at_the_papers_number_of_clients_and_shares_runs() -> None:
    standard = PROFILES["standard"]
    plans = {name: plan(item, standard) for name, item in ITEMS.items() if standard.name in item.minutes}
    assert {item.name for item in PAPER} <= set(plans)
    learnt = [s for p in plans.values() for s in p.all() if s.task.name in ("mnist", "cifar10", "wikitext2")]
    assert {s.evaluation.interval for s in learnt} == {0.25}
    assert all(s.evaluation.stop_at is not None for s in learnt)
    assert min(s.client_count for s in learnt) == 100
    assert (plans["mnist"].seeds, plans["cifar10"].seeds) == (5, 3)
    first = {name: plans[name].scenarios for name in ("mnist", "latency", "scalability", "scalability-each")}
    spyker = [first["mnist"]["Spyker"], first["latency"]["Spyker, AWS"], first["scalability"]["Spyker, 100 clients"]]
    assert all(folder_of(s[0], Path()) == folder_of(spyker[0][0], Path()) for s in spyker)
    each = {c: first["scalability-each"][f"Spyker, {c} clients"][0].task.options for c in (100, 200, 300)}
    assert [o.training_images for o in each.values()] == [6_000, 12_000, 18_000]


def test_the_smoke_test_says_that_it_is_one() -> None:
    assert "decides nothing" in PROFILES["quick"].says


def test_the_command_writes_all_of_it_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["reproduce", "queues", "--out", str(tmp_path / "out"), "--jobs", "1"]
    assert main([*arguments, "--document", str(tmp_path / "doc.md")]) == 0
    assert "FedAsync's queue" in capsys.readouterr().out
    assert (tmp_path / "images" / "doc" / "queues.png").exists()
    assert "images/doc/queues.png" in (tmp_path / "doc.md").read_text()
    first = {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "runs").glob("*/facts.jsonl")}
    assert len(first) == 2
    assert main(arguments) == 2
    assert main([*arguments, "--resume"]) == 0
    (tmp_path / "doc.md").unlink()
    capsys.readouterr()
    tell_more = ["reproduce", "queues", "bandwidth", "--out", str(tmp_path / "out"), "--tell"]
    assert main([*tell_more, "--document", str(tmp_path / "doc.md")]) == 0
    assert "bandwidth: not finished" in capsys.readouterr().out
    assert "## queues" in (tmp_path / "doc.md").read_text()
    assert main(["reproduce", "queues", "--seeds", "2", "--out", str(tmp_path / "out"), "--tell"]) == 0
    assert "queues: not finished" in capsys.readouterr().out  # one of two seeds is there
    assert first == {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "runs").glob("*/facts.jsonl")}


def test_unknown_items_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "table-9", "--out", str(tmp_path / "out")]) == 2
    assert "scalability" in capsys.readouterr().err
    assert main(["reproduce", "--out", str(tmp_path / "out")]) == 2
    assert "--list" in capsys.readouterr().err
    assert main(["reproduce", "paper", "nonsense", "--out", str(tmp_path / "out")]) == 2
    assert main(["reproduce", "queues", "--out", str(tmp_path / "out"), "--document", str(tmp_path)]) == 2
    assert "--document" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_list_names_every_item(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ITEMS)
