import dataclasses
import tomllib
from pathlib import Path

import pytest

from spyker.algorithms.builtin import OF_THE_PAPER
from spyker.algorithms.spyker import Spyker
from spyker.config.algorithms import parameter_sections
from spyker.config.delays import Gaussian, LogNormal
from spyker.config.presets import PRESETS
from spyker.config.scenario import SECTIONS, dump, from_table, load, parse_value
from spyker.config.sections import kebab
from spyker.config.world import latency_seconds, split_clients
from spyker.errors import UsageError
from spyker.tasks.registry import resolve


def test_an_empty_file_is_stride_in_the_papers_world(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("")
    scenario = load(tmp_path / "empty.toml")
    assert scenario == load(None)
    assert scenario.algorithm == "stride"
    assert scenario.world.regions == ("Hongkong", "Paris", "Sydney", "California")
    assert scenario.world.clients == (25, 25, 25, 25)
    assert scenario.world.latency_ms is not None
    assert scenario.world.latency_ms[2] == (132.06, 280.11, 2.56, 138.47)
    assert scenario.world.bandwidth_mbit == 100
    assert (scenario.world.mix_ms, scenario.world.average_ms) == (2, 15)
    assert scenario.training.delay_ms == Gaussian(150, 7.5, 15)
    assert (scenario.training.rate, scenario.training.epochs, scenario.training.batch_size) == (0.05, 1, 32)
    spyker = scenario.algorithms["spyker"]
    assert (spyker.client_rate, spyker.staleness_exponent, spyker.peer_rate, spyker.activation) == (0.6, 0.5, 0.6, 1.5)
    assert (spyker.h_inter, spyker.h_intra, spyker.decay, spyker.min_rate) == (5, 350, 0.005, 1e-6)
    assert scenario.algorithms["fedavg"].fraction == 1
    assert scenario.algorithms["hierfavg"].edge_rounds == 2


@pytest.mark.parametrize(
    "given",
    [
        {"training": {"delay-ms": {"ratio": 4.5}}, "evaluation": {"stop-at": 0.5, "stop-after": 1.5}},
        {"world": {"outage": {"region": 2, "seconds": 0.5}}},
    ],
)
def test_what_has_a_table_of_its_own_reads_back_as_the_same(given: dict[str, object]) -> None:
    scenario = resolve(from_table(given))
    assert resolve(from_table(tomllib.loads(dump(scenario)))) == scenario != resolve(from_table({}))


@pytest.mark.parametrize("comments", [False, True])
def test_a_dumped_scenario_reads_back_as_the_same(tmp_path: Path, comments: bool) -> None:
    given = {
        "algorithm": "hierfavg",
        "task": {"name": "quadratic", "optima": [[0.5, -1.0], [0.1, 2.0]]},
        "world": {"regions": ["a", 'b "\\'], "clients": [1, 1], "latency-ms": [[0.0, 1.5], [2.0, 0.0]]},
        "training": {"delay-ms": [10.0, 20.0]},
        "spyker": {"h-inter": 3.0},
    }
    scenario = resolve(from_table(given))
    path = tmp_path / "scenario.toml"
    path.write_text(dump(scenario, comments=comments), encoding="utf-8")
    assert resolve(load(path)) == scenario


def test_the_printed_default_names_and_explains_every_key() -> None:
    text = dump(resolve(load(None)), comments=True)
    table = tomllib.loads(text)
    for name, section in (SECTIONS | parameter_sections(Spyker)).items():
        for field in dataclasses.fields(section):
            assert kebab(field.name) in table[name] or f"\n# {kebab(field.name)} =" in text  # or it is unset
            assert field.metadata["rule"].doc in text


def test_a_printed_scenario_follows_what_is_changed_in_it(tmp_path: Path) -> None:
    path = tmp_path / "printed.toml"
    path.write_text(dump(resolve(load(None)), comments=True))
    assert "\n# h-inter = 5.0  # derived from other keys\n" in path.read_text()
    two: dict[str, object] = {"world.regions": ["Paris", "Sydney"]}
    assert resolve(load(path)) == resolve(load(None))
    assert resolve(load(path, clients=200)) == resolve(load(None, clients=200))
    assert resolve(load(path, two)) == resolve(load(None, two))
    path.write_text(dump(resolve(load(None, {"spyker.h-inter": 5.0})), comments=True))
    assert load(path, clients=200).algorithms["spyker"].h_inter == 5  # that was said, and stays


def test_a_record_holds_what_follows_from_other_keys() -> None:
    table = tomllib.loads(dump(resolve(load(None))))
    assert table["spyker"]["h-inter"] == 5
    assert table["world"]["clients"] == [25, 25, 25, 25]


def test_regions_of_the_paper_bring_their_latencies() -> None:
    world = from_table({"world": {"regions": ["Sydney", "Paris"]}}).world
    assert world.latency_ms == ((2.56, 280.11), (278.83, 0.9))
    assert world.clients == (25, 25)


def test_uniform_latency_is_the_mean_of_the_matrix_on_the_diagonal_too() -> None:
    # (1 + 2 + 3 + 6) / 4 = 3 ms
    world = {"regions": ["a", "b"], "clients": [1, 1], "latency-ms": [[1, 2], [3, 6]], "uniform-latency": True}
    assert latency_seconds(from_table({"world": world}).world) == [[0.003, 0.003], [0.003, 0.003]]


def test_h_inter_follows_the_number_of_clients_and_servers() -> None:
    # 300 clients, 4 servers: 300 / 20
    assert load(None, clients=300).algorithms["spyker"].h_inter == 15
    assert load(None, {"spyker.h-inter": 2}, clients=300).algorithms["spyker"].h_inter == 2


def test_delays_by_name_and_from_a_file(tmp_path: Path) -> None:
    assert load(None, {"training.delay-ms": "heterogeneous"}).training.delay_ms == Gaussian(150, 60, 15)
    assert load(None, {"training.delay-ms": "uneven"}).training.delay_ms == LogNormal(150, 10)
    assert load(None, {"training.delay-ms": {"median": 80}}).training.delay_ms == LogNormal(80, 10)
    (tmp_path / "delays.txt").write_text("100\n150.5\n")
    (tmp_path / "s.toml").write_text(
        '[world]\nregions = ["Paris"]\nclients = [2]\n[training]\ndelay-ms = "delays.txt"\n'
    )
    assert load(tmp_path / "s.toml").training.delay_ms == (100.0, 150.5)


def test_a_world_with_fewer_clients_than_regions_has_the_first_regions_only() -> None:
    world = load(None, clients=2).world
    assert (world.regions, world.clients) == (("Hongkong", "Paris"), (1, 1))
    assert world.latency_ms == ((1.41, 194.9), (197.91, 0.9))
    assert load(None, clients=4).world.clients == (1, 1, 1, 1)
    assert load({"algorithm": "fedavg"}, clients=1).world.regions == ("Hongkong",)


@pytest.mark.parametrize(
    ("world", "count"), [({"regions": ["Paris", "Sydney"]}, 2), ({"latency-ms": [[1.0] * 4] * 4}, 4)]
)
def test_regions_that_a_scenario_names_need_a_client_each(world: dict[str, object], count: int) -> None:
    complaint = rf"--clients: 1 is not allowed: .* {count} regions.*Give at least {count}, or .* fewer"
    with pytest.raises(UsageError, match=complaint):
        load({"world": world}, clients=1)
    with pytest.raises(UsageError, match=r"--clients: 0 is not allowed: a run needs a client\. Give at least 1$"):
        load(None, clients=0)


def test_clients_are_spread_evenly() -> None:
    assert split_clients(10, 4) == [3, 3, 2, 2]


def test_another_task_drops_the_options_of_the_files_own(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('[task]\nname = "quadratic"\ndimension = 3\n')
    assert load(tmp_path / "s.toml", task="quadratic").task.options == {"dimension": 3}
    assert load(tmp_path / "s.toml", task="digits").task.options == {}


def test_values_on_the_command_line_are_toml_or_else_text() -> None:
    assert parse_value("[1, 2]") == [1, 2]
    assert parse_value("0.5") == 0.5
    assert parse_value("quadratic") == "quadratic"


NAN = float("nan")
BAD: list[tuple[dict[str, object], str, str]] = [
    ({"training": {"delay-ms": {"ratio": 0.5}}}, "training.delay-ms.ratio", "at least 1"),
    ({"training": {"delay-ms": {"median": 0}}}, "training.delay-ms.median", "greater than 0"),
    ({"training": {"delay-ms": {"median": 9, "std": 1}}}, "training.delay-ms.std", "median, ratio"),
    ({"world": {"outage": {"region": 4}}}, "world.outage.region", "from 0 to 3"),
    ({"world": {"outage": {"regoin": 1}}}, "world.outage.regoin", "Did you mean 'region'?"),
    ({"world": {"outage": 5}}, "world.outage", "section"),
    ({"evaluation": {"stop-after": -1}}, "evaluation.stop-after", "at least 0"),
    ({"sed": 1}, "sed", "Did you mean 'seed'?"),
    ({"rate": 1}, "rate", "Did you mean 'training.rate' or"),
    ({"h_inter": 1}, "h_inter", "Did you mean 'spyker.h-inter'?"),
    ({"client-rate": 1}, "client-rate", "Did you mean 'spyker.client-rate' or 'fedasync.client-rate'?"),
    ({"bandwith": 1}, "bandwith", "Did you mean 'world.bandwidth-mbit'?"),
    ({"spyker": {"epochs": 1}}, "spyker.epochs", "Did you mean 'training.epochs'?"),
    ({"training": {"lr": 0.1}}, "training.lr", "Did you mean 'training.rate'?"),
    ({"learning_rate": 0.1}, "learning_rate", "Did you mean 'training.rate'?"),
    ({"training": {"precision": "bf16"}}, "training.precision", "Known keys: accumulate, "),
    ({"training": {"drop": 1}}, "training.drop", "Known keys: accumulate, "),
    ({"xyz": 1}, "xyz", "Known keys: algorithm"),
    ({"world": {"latency": 1}}, "world.latency", "latency-ms"),
    ({"spyker": {"h_inter": 1}}, "spyker.h_inter", "h-inter"),
    ({"world": 3}, "world", "[world]"),
    ({"world": {"latency-ms": [[1, 2], [3]]}}, "world.latency-ms", "one row per region"),
    ({"world": {"regions": ["a", "b"], "latency-ms": [[1, 2], [3]]}}, "world.latency-ms[1]", "one per region"),
    ({"world": {"regions": ["a", "b"], "latency-ms": [[1, 2], [-3, 4]]}}, "world.latency-ms[1][0]", "at least 0"),
    ({"world": {"regions": ["a", "b"], "latency-ms": [[1, 2], [NAN, 4]]}}, "world.latency-ms[1][0]", "finite"),
    ({"world": {"regions": ["A", "B", "C", "D", "E"]}}, "world.latency-ms", "5 × 5"),
    (
        {"world": {"regions": ["a", "b", "c"], "latency-ms": [[1, 2], [3, 4]], "clients": [1, 1, 1]}},
        "world.latency-ms",
        "one row per region",
    ),
    ({"world": {"regions": []}}, "world.regions", "at least one"),
    ({"world": {"regions": ["Paris", "Paris"]}}, "world.regions", "distinct"),
    ({"world": {"clients": [25, 0, 25, 25]}}, "world.clients[1]", "at least 1"),
    ({"world": {"clients": []}}, "world.clients", "one number per region"),
    ({"world": {"clients": [1, 2.5, 1, 1]}}, "world.clients[1]", "integer"),
    ({"world": {"clients": 100}}, "world.clients", "square brackets"),
    ({"world": {"server-region": 4}}, "world.server-region", "0 to 3"),
    ({"world": {"bandwidth-mbit": 0}}, "world.bandwidth-mbit", "greater than 0"),
    ({"duration": NAN}, "duration", "finite"),
    ({"duration": float("inf")}, "duration", "finite"),
    ({"duration": "60"}, "duration", "without quotation marks"),
    ({"duration": True}, "duration", "a number"),
    ({"seed": -1}, "seed", "at least 0"),
    ({"algorithm": "fedprox"}, "algorithm", "hierfavg"),
    ({"algorithm": 1}, "algorithm", "quotation marks"),
    ({"training": {"rate": NAN}}, "training.rate", "finite"),
    ({"training": {"epochs": 0}}, "training.epochs", "at least 1"),
    ({"training": {"delay-ms": [1.0]}}, "training.delay-ms", "one delay per client"),
    ({"training": {"delay-ms": {"mean": -1}}}, "training.delay-ms.mean", "at least 0"),
    ({"training": {"delay-ms": "nowhere.txt"}}, "training.delay-ms", "per line"),
    ({"training": {"delay-ms": True}}, "training.delay-ms", "square brackets"),
    ({"fedavg": {"fraction": 1.5}}, "fedavg.fraction", "at most 1"),
    ({"fedasync": {"staleness": "linear"}}, "fedasync.staleness", "hinge"),
    ({"world": {"uniform-latency": 1}}, "world.uniform-latency", "true or false"),
    ({"task": {"name": "imagenet"}}, "task.name", "module:function"),
    ({"task": {"name": "digits", "optima": []}}, "task.optima", "partition"),
    ({"task": "digits"}, "task", "[task]"),
    ({"evaluation": {"interval": 0}}, "evaluation.interval", "greater than 0"),
]


@pytest.mark.parametrize(("table", "field", "remedy"), BAD, ids=[f"{field}-{i}" for i, (_, field, _) in enumerate(BAD)])
def test_bad_scenarios_are_refused_by_field_and_remedy(table: dict[str, object], field: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(from_table(table))
    assert caught.value.field == field
    assert remedy in str(caught.value)


def test_a_preset_speaks_where_nothing_else_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = {
        "spyker": {"training.rate": 0.3, "spyker.client-rate": 0.4},
        "fedavg": {"training.rate": 0.5},
        "stride": {"training.rate": 0.7},
    }
    monkeypatch.setitem(PRESETS, "mine", mine)
    file = tmp_path / "scenario.toml"
    file.write_text('algorithm = "spyker"\n[spyker]\nclient-rate = 0.9\n')
    assert load(None, {"algorithm": "spyker"}, preset="mine").training.rate == 0.3
    assert load(None, preset="mine").training.rate == 0.7
    assert load(None, {"algorithm": "fedavg"}, preset="mine").training.rate == 0.5
    assert load(None, {"algorithm": "hierfavg"}, preset="mine").training.rate == 0.05
    assert load(file, preset="mine").parameters.client_rate == 0.9
    assert load(None, {"training.rate": 0.7}, preset="mine").training.rate == 0.7
    with pytest.raises(UsageError, match="Choose one of: paper, tuned"):
        load(None, preset="other")


@pytest.mark.parametrize("algorithm", OF_THE_PAPER)
def test_every_algorithm_of_the_paper_has_a_tuned_preset_that_can_be_read(algorithm: str) -> None:
    assert PRESETS["tuned"][algorithm]
    keys = [key for key in PRESETS["tuned"][algorithm] if key.startswith("training.")]
    assert keys in ([], ["training.rate"])  # algorithms that are compared share a task
    assert load(None, {"algorithm": algorithm}, preset="tuned") != load(None, {"algorithm": algorithm})
