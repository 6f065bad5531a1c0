"""Training delays: a distribution sampled once per client, or a list with one delay per client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from spyker.config.sections import convert, keys, read, show
from spyker.errors import UsageError
from spyker.parameters import Rule, parameter
from spyker.untrusted_files import read_text


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Training delays sampled once per client from a normal distribution."""

    mean: float = parameter(150.0, "in ms", at_least=0)
    std: float = parameter(7.5, "in ms", at_least=0)
    floor: float = parameter(15.0, "lower bound in ms", at_least=0)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Training delays sampled once per client from a log-normal distribution with a heavy tail."""

    median: float = parameter(150.0, "median in ms", above=0)
    ratio: float = parameter(10.0, "ratio of the 95th to the 5th percentile", at_least=1)


Delays: TypeAlias = Gaussian | LogNormal | tuple[float, ...]
PRESETS: dict[str, Gaussian | LogNormal] = {
    "paper": Gaussian(),
    "heterogeneous": Gaussian(std=60.0),
    "uneven": LogNormal(),
}
RULE = Rule("", at_least=0)


def read_delays(value: object, where: str, folder: Path) -> Delays:
    """Parse training delays: a distribution, a list, the name of a preset, or a file in ``folder``."""
    if isinstance(value, Mapping):
        if value.keys() & set(keys(LogNormal)):
            return read(LogNormal, value, where)
        return read(Gaussian, value, where)
    if isinstance(value, str):
        if value in PRESETS:
            return PRESETS[value]
        try:
            value = [float(word) for word in read_text(folder / value).split()]
        except (OSError, ValueError) as error:
            raise UsageError(
                where,
                f"{show(value)} is neither {' nor '.join(PRESETS)} nor a readable file of numbers ({error})",
                "Write one delay in milliseconds per line, one line per client",
            ) from None
    delays: tuple[float, ...] = convert(value, tuple[float, ...], RULE, where)
    return delays
