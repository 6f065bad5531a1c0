"""A table of pings as a world."""

import json
import tomllib
from pathlib import Path

import pytest

from spyker.cli.main import main
from spyker.config.pings import read_pings
from spyker.config.scenario import load
from spyker.errors import UsageError

EXAMPLE = Path(__file__).parents[2] / "examples" / "pings.csv"


def table(folder: Path, *lines: str, name: str = "pings.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def test_half_of_a_round_trip_each_way(tmp_path: Path) -> None:
    path = table(tmp_path, "from,to,ms", "A,A,1", "B,B,2", "A,B,100")
    assert read_pings(path) == {"regions": ["A", "B"], "latency-ms": [[0.5, 50], [50, 1]]}


def test_the_median_of_several_and_directions_that_differ(tmp_path: Path) -> None:
    lines = ["# measured at night", "to, ms, from", "A,1,A", "B,1,B", "B,100,A", "B,900,A", "B,110,A", "", "A,300,B"]
    assert read_pings(table(tmp_path, *lines))["latency-ms"] == [[0.5, 55], [150, 0.5]]


def test_json(tmp_path: Path) -> None:
    pings = {"A": {"A": 1, "B": [100, 104, 90]}, "B": {"B": 2.5}}
    path = table(tmp_path, json.dumps(pings), name="pings.json")
    assert read_pings(path) == {"regions": ["A", "B"], "latency-ms": [[0.5, 50], [50, 1.25]]}


def test_the_example_is_the_papers_world_with_equal_ways() -> None:
    world = load({"world": read_pings(EXAMPLE)}).world
    assert world.regions == ("Hongkong", "Paris", "Sydney")
    assert world.latency_ms is not None
    assert world.latency_ms[0] == pytest.approx((1.41, (194.9 + 197.91) / 2, (132.28 + 132.06) / 2))


def test_the_command_prints_a_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "--pings", str(EXAMPLE)]) == 0
    printed = capsys.readouterr().out
    assert load(tomllib.loads(printed)).world.latency_ms == load({"world": read_pings(EXAMPLE)}).world.latency_ms
    assert "# matrix of one-way latencies between regions" in printed


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "has no column 'from'. Start it with the header from,to,ms"),
        (["from,to,ms"], "contains no pings"),
        (["from,to", "A,B"], "has no column 'ms'"),
        (["from,to,ms", "A,B"], "line 2: has 2 entries. There are 3 columns"),
        (["from,to,ms", "A,A,1", ",A,1"], "line 3: column 'from' is empty"),
        (["from,to,ms", "A,A,-1"], "line 2: '-1' is not allowed. Write milliseconds"),
        (["from,to,ms", "A,A,soon"], "line 2: 'soon' is not allowed. Write milliseconds"),
        (["from,to,ms", "A,A,nan"], "line 2: 'nan' is not allowed. Write milliseconds"),
        (["from,to,ms", "A,A,1", "A,B,9"], "has no ping from B to B. Add one: between a client and its own"),
        (["from,to,ms", "A,A,1", "B,B,9"], "has no ping from A to B. Add one: in either direction"),
    ],
)
def test_what_is_missing_or_wrong_is_named(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(UsageError) as error:
        read_pings(table(tmp_path, *lines))
    assert said in str(error.value)


@pytest.mark.parametrize("text", ["[1]", '{"A": 3}', "{"])
def test_other_json_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"pings\.json: is not"):
        read_pings(table(tmp_path, text, name="pings.json"))
    with pytest.raises(UsageError, match="True"):
        read_pings(table(tmp_path, '{"A": {"A": true}}', name="pings.json"))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_pings(tmp_path / "none.csv")
