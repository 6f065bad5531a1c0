"""Scenarios: the algorithm, the task and the world of a run. An empty file is Stride in the paper's world."""

from __future__ import annotations

import copy
import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spyker.algorithms.builtin import ALGORITHMS
from spyker.algorithms.stride import Stride
from spyker.compression.settings import CompressionSettings
from spyker.config import kernel_names
from spyker.config.algorithms import NAMES, find_algorithm, parameter_sections
from spyker.config.delays import Delays, Gaussian, read_delays
from spyker.config.presets import PRESETS
from spyker.config.privacy_checks import check_client_privacy, check_masking
from spyker.config.privacy_settings import PrivacySettings
from spyker.config.sections import convert, kebab, keys, read, refuse_unknown, rule_of, show, to_toml, write
from spyker.config.suggest import suggest
from spyker.config.world import Geography, fill_world, latency_seconds, place_clients
from spyker.errors import UsageError
from spyker.parameters import Rule, parameter
from spyker.placement import Placement, Topology
from spyker.protocol.server import Server
from spyker.robust.update_filter import FilterParameters
from spyker.untrusted_files import load_settings

CONTINUE, STOP = "continue", "stop"
SERVERS, CLIENTS, BOTH = "servers", "clients", "both"


@dataclass(frozen=True, slots=True)
class Training:
    """Local training: the keys of ``[training]``."""

    delay_ms: Delays = parameter(
        Gaussian(),
        "duration of a training in ms: a distribution, normal { mean, std, floor } or log-normal { median, ratio }; a "
        "list with one entry per client; 'paper', 'heterogeneous' or 'uneven'; or a file with one number per line",
    )
    rate: float | None = parameter(
        0.05, "η_init: learning rate; a Flower app's own rate applies unless this is set", above=0
    )
    epochs: int = parameter(1, "T_k: local epochs", at_least=1)
    batch_size: int = parameter(32, "B: batch size", at_least=1)
    optimiser: str = parameter(
        "sgd",
        "optimiser of a client: sgd, momentum (0.9), adam, or the name of a class in torch.optim, such as AdamW; reset "
        "before each training",
    )
    device: str = parameter("cpu", "PyTorch device: cpu, cuda or cuda:N")
    kernel: str = parameter(
        kernel_names.TORCH,
        "implementation: torch, or the name of an installed kernel, such as native of spyker-fl-lab, which is faster "
        "on a CPU",
    )
    proximal: float = parameter(0.0, "μ: proximal term μ/2 · ‖W - W_received‖² of the loss", at_least=0)
    optimiser_options: Mapping[str, object] | None = parameter(
        None, "{ name = value }: arguments of the optimiser except the rate, such as weight-decay"
    )
    keep_optimiser: bool | None = parameter(None, "true: keep a client's optimiser state between trainings")
    schedule: str | None = parameter(
        None,
        "learning rate schedule per epoch, counted over all of a client's trainings: the name of a class in "
        "torch.optim.lr_scheduler, such as CosineAnnealingLR; unset: the server's rate",
    )
    schedule_options: Mapping[str, object] | None = parameter(
        None, "{ name = value }: arguments of the schedule, such as T-max"
    )
    clip_norm: float | None = parameter(None, "clip the gradient norm to this; unset: no clipping", above=0)
    report_loss: bool | None = parameter(
        None, "true: clients report their mean training loss, in facts of the kind report"
    )
    on_client_error: str | None = parameter(
        None,
        "reaction of an emulation to a training that raises an exception or returns weights that are not finite: "
        "continue without the client, or stop with the error; unset: continue",
        choices=(CONTINUE, STOP),
    )
    accumulate: int | None = parameter(
        None, "gradient accumulation: number of batches per optimiser step; unset: 1", at_least=1
    )
    autocast: str | None = parameter(
        None,
        "precision of torch.autocast in training and evaluation; weights stay in float32; unset: no autocast",
        choices=("bfloat16",),
    )
    personal: tuple[str, ...] | None = parameter(
        None,
        "patterns of the names of parameters that stay with each client, such as head.*; buffers: all buffers and the "
        "weights and biases of BatchNorm layers; unset: those of the task, which are none for built-in tasks",
    )


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Evaluation of the servers' models, which takes no virtual time: the keys of ``[evaluation]``."""

    interval: float = parameter(1.0, "virtual seconds between evaluations", above=0)
    by: str | None = parameter(
        None,
        "where models are evaluated: servers, with central test data; clients, each with its own test data; or both; "
        "unset: wherever there is test data; if there is none, clients with a held-out part of their data",
        choices=(SERVERS, CLIENTS, BOTH),
    )
    holdout: float = parameter(
        0.2, "evaluation by clients: part of its data that a client without test data holds out", above=0, at_most=0.9
    )
    targets: tuple[float, ...] | None = parameter(
        None, "report when the servers' mean score first reaches these; unset: the defaults of the task's metric"
    )
    stop_at: float | None = parameter(
        None, "end an emulation one evaluation after the servers' mean score reaches this; unset: never"
    )
    stop_after: float = parameter(0.0, "with stop-at: virtual seconds for which the mean must stay there", at_least=0)
    patience: float | None = parameter(
        None,
        "end an emulation when the servers' mean has not improved for this number of virtual seconds; unset: never",
        above=0,
    )


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """The task and its options: a raw table until the task has checked them, then the task's options class."""

    name: str = "digits"
    options: Any = field(default_factory=dict)
    given: Any = None
    """The task object or factory, if a program passed one instead of a name."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A complete, checked scenario."""

    algorithm: str = parameter(Stride.name, "algorithm")
    seed: int = parameter(1, "seed of all random numbers", at_least=0)
    duration: float = parameter(60.0, "length of the run in virtual seconds", above=0)
    task: TaskChoice = field(default_factory=TaskChoice)
    world: Geography = field(default_factory=Geography)
    training: Training = field(default_factory=Training)
    evaluation: Evaluation = field(default_factory=Evaluation)
    robust: FilterParameters = field(default_factory=FilterParameters)
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    compression: CompressionSettings = field(default_factory=CompressionSettings)
    algorithms: Mapping[str, Any] = field(default_factory=dict)
    """The parameters of every algorithm, by section."""
    derived: frozenset[str] = field(default=frozenset(), compare=False)
    """Unset keys, as section.key, whose values are derived from other keys."""
    left_out: tuple[str, ...] = field(default=(), compare=False)
    """Regions of the default world that are left out, because each region needs a client."""

    @property
    def chosen(self) -> type[Server]:
        """The algorithm's server class."""
        return find_algorithm(self.algorithm)

    @property
    def parameters(self) -> Any:
        """The chosen algorithm's parameters."""
        return self.algorithms[self.chosen.section]

    @property
    def client_count(self) -> int:
        """n_C: total number of clients."""
        assert self.world.clients is not None
        return sum(self.world.clients)

    def placement(self) -> Placement:
        """Return the initial placement of servers and clients."""
        assert self.world.clients is not None
        return Placement.begin(self.chosen.topology, self.world.clients, self.world.server_region, self.helper_regions)

    @property
    def helper_regions(self) -> tuple[int, ...]:
        """Regions of the servers that only open sums of masked updates."""
        if not self.privacy.masking:
            return ()
        if self.privacy.helpers is None:
            return (self.world.server_region,) if self.chosen.topology is Topology.SINGLE else ()
        return self.privacy.helpers

    def mask_helpers(self) -> dict[int, tuple[int, ...]]:
        """Return, per server with clients, the servers that open its sums, the nearest first."""
        places, latency = self.placement(), latency_seconds(self.world)
        regions, helpers = places.server_regions, places.helpers or places.servers

        def nearest(home: int) -> tuple[int, ...]:
            region = regions[home]
            trips = {j: latency[region][regions[j]] + latency[regions[j]][region] for j in helpers if j != home}
            return tuple(sorted(trips, key=lambda j: (trips[j], j)))

        return {home: nearest(home) for home in places.learners}


TOP = {"algorithm": str, "seed": int, "duration": float}
"""Keys above all sections, and their types."""
SECTIONS: dict[str, type[Any]] = {
    "world": Geography,
    "training": Training,
    "evaluation": Evaluation,
    "robust": FilterParameters,
    "privacy": PrivacySettings,
    "compression": CompressionSettings,
}


def load(
    source: Path | Mapping[str, Any] | None,
    overrides: Mapping[str, object] | None = None,
    *,
    task: str | None = None,
    clients: int | None = None,
    preset: str = "paper",
    others: Sequence[str] = (),
) -> Scenario:
    """Load and check a scenario.

    Args:
        source: a TOML file, a table with the same content, or ``None`` for the defaults.
        overrides: values ``{"section.key": value}`` that replace those of the source.
        task: another task; the options of the source's task no longer apply.
        clients: total number of clients, spread evenly over the regions.
        preset: name of the preset that provides values for keys that are not set.
        others: further algorithms whose parameters are allowed in the source.

    Returns:
        The checked scenario.

    Raises:
        UsageError: a file cannot be read, or a key or value is invalid.

    """
    path = source if isinstance(source, Path) else None
    table: dict[str, Any] = copy.deepcopy(dict(source)) if isinstance(source, Mapping) else {}
    if path is not None:
        table = load_settings(path)
    if task is not None and read_task(table.get("task", {})).name != task:
        table["task"] = {"name": task}
    for dotted, value in (overrides or {}).items():
        set_key(table, dotted, value)
    apply_preset(table, preset)
    left_out: tuple[str, ...] = ()
    if clients is not None:
        world = table.setdefault("world", {})
        if isinstance(world, dict):  # otherwise from_table raises an error
            left_out = place_clients(world, clients)
    return replace(from_table(table, path.parent if path else Path(), others), left_out=left_out)


def set_key(table: dict[str, Any], dotted: str, value: object) -> None:
    """Set one key of the table."""
    *sections, key = dotted.split(".")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise UsageError(dotted, f"{section!r} is not a section", "Write section.key=value")
    if sections == ["task"]:  # keys with dashes or underscores
        key = next((k for k in table if kebab(k) == kebab(key)), key)
    table[key] = value


def apply_preset(table: dict[str, Any], preset: str) -> None:
    """Add the preset's values for keys that are not set."""
    if preset not in PRESETS:
        raise UsageError("--preset", f"{show(preset)} is not allowed", suggest(preset, PRESETS))
    for dotted, value in PRESETS[preset].get(str(table.get("algorithm", Scenario().algorithm)), {}).items():
        section, key = dotted.split(".")
        if isinstance(table.setdefault(section, {}), dict):  # otherwise from_table raises an error
            table[section].setdefault(key, value)


def from_table(table: Mapping[str, Any], folder: Path = Path(), others: Sequence[str] = ()) -> Scenario:
    """Check a parsed scenario file and fill in defaults.

    Args:
        table: the parsed file.
        folder: folder that file names in the table are relative to.
        others: further algorithms whose parameters are checked and discarded.

    """
    algorithm = convert(table.get("algorithm", Scenario().algorithm), str, Rule(""), "algorithm")
    parameters = parameter_sections(find_algorithm(algorithm))
    elsewhere = {name: p for other in others for name, p in parameter_sections(find_algorithm(other)).items()}
    known = SECTIONS | elsewhere | parameters
    refuse_unknown(table, (*TOP, "task", *known), "", every_key(known))
    for name, section in known.items():
        if isinstance(table.get(name), Mapping):
            refuse_unknown(table[name], keys(section), name, every_key(known))
    for name in elsewhere.keys() - parameters.keys():
        read(elsewhere[name], table.get(name, {}), name)
    rules = {f.name: rule_of(f) for f in dataclasses.fields(Scenario) if f.name in TOP}
    values = {key: convert(table[key], kind, rules[key], key) for key, kind in TOP.items() if key in table}
    training, delays = table.get("training", {}), Training().delay_ms
    if isinstance(training, Mapping) and "delay-ms" in training:
        delays = read_delays(training["delay-ms"], "training.delay-ms", folder)
        table = {**table, "training": {key: value for key, value in training.items() if key != "delay-ms"}}
    sections = {name: read(section, table.get(name, {}), name) for name, section in SECTIONS.items()}
    sections["privacy"].check()
    given = dict(sections)
    sections["world"] = world = fill_world(sections["world"])
    sections["training"] = replace(sections["training"], delay_ms=delays)
    kernel_names.NAMES.check(sections["training"].kernel, "training.kernel")
    task = read_task(table.get("task", {}))
    if task.name == "flower" and "rate" not in table.get("training", {}):
        sections["training"] = replace(sections["training"], rate=None)  # the app provides it
    if isinstance(delays, tuple) and len(delays) != sum(world.clients or ()):
        raise UsageError(
            "training.delay-ms",
            f"has {len(delays)} entries for {sum(world.clients or ())} clients",
            "Give one delay per client, in the order of regions",
        )
    algorithms = {name: read(cls, table.get(name, {}), name) for name, cls in parameters.items()}
    scenario = Scenario(**values, task=task, **sections, algorithms=algorithms)
    check_masking(scenario)
    check_client_privacy(scenario)
    resolved = resolve_algorithms(scenario)
    return replace(scenario, algorithms=resolved, derived=derived(given | algorithms, sections | resolved))


def every_key(sections: Mapping[str, type[Any]]) -> list[str]:
    """Return all keys, as section.key, except the options of tasks."""
    return [f"{name}.{key}" for name, section in sections.items() for key in keys(section)]


def derived(given: Mapping[str, Any], resolved: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys that were unset and have a derived value."""
    return frozenset(
        f"{name}.{kebab(f.name)}"
        for name, section in given.items()
        for f in dataclasses.fields(section)
        if getattr(section, f.name) is None and getattr(resolved[name], f.name) is not None
    )


def resolve_algorithms(scenario: Scenario) -> dict[str, Any]:
    """Return the parameters with defaults that depend on the numbers of clients and servers."""
    resolved = dict(scenario.algorithms)
    for algorithm in (*ALGORITHMS.values(), scenario.chosen):
        resolve = getattr(resolved[algorithm.section], "resolve", None)
        if resolve is not None:
            servers = 1 if algorithm.topology is Topology.SINGLE else len(scenario.world.regions)
            resolved[algorithm.section] = resolve(scenario.client_count, servers)
    return resolved


def read_task(table: object) -> TaskChoice:
    """Parse the task's name. The task checks its options; their keys may have dashes or underscores."""
    if not isinstance(table, Mapping):
        raise UsageError(
            "task", f"{show(table)} is not allowed: it must be a section", 'Write [task] and below it name = "digits"'
        )
    options = {kebab(key): value for key, value in table.items()}
    if len(options) < len(table):
        twice = next(key for key in table if key not in options)
        raise UsageError(
            f"task.{twice}", f"is the same key as task.{kebab(twice)}, which is also set", "Set one of them"
        )
    name = convert(options.pop("name", TaskChoice().name), str, Rule(""), "task.name")
    return TaskChoice(name, options)


def dump(scenario: Scenario, *, comments: bool = False) -> str:
    """Return the scenario as TOML that loads as the same scenario.

    Args:
        scenario: the scenario.
        comments: whether to describe every key. Derived values are then commented out.

    """
    top = [f for f in dataclasses.fields(Scenario) if f.name in TOP]
    parts = [""]
    for f in top:
        doc = f.metadata["rule"].doc + (f": {', '.join(NAMES.known())}" if f.name == "algorithm" else "")
        parts[0] += (f"# {doc}\n" if comments else "") + f"{f.name} = {show(getattr(scenario, f.name))}\n"
    options = scenario.task.options
    name = ("# task\n" if comments else "") + f"name = {to_toml(scenario.task.name)}\n"
    if isinstance(options, Mapping):
        lines = "".join(f"{key} = {to_toml(value)}\n" for key, value in options.items())
    else:
        lines = write(options, comments=comments).lstrip("\n")
    parts.append("[task]\n" + name + lines)
    for name, section in ({s: getattr(scenario, s) for s in SECTIONS} | dict(scenario.algorithms)).items():
        unset = [key.partition(".")[2] for key in scenario.derived if key.startswith(f"{name}.")]
        parts.append(f"[{name}]\n" + write(section, comments=comments, derived=unset if comments else ()))
    return "\n".join(parts)


def parse_value(text: str) -> object:
    """Parse a value from the command line as TOML; if that fails, return the string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
