"""Personalised parameters: those of a model that each client keeps for itself.

Patterns select them by name, as ``fnmatch`` does. The servers' model consists of the other, shared parameters, so
personal ones are in no message, checkpoint or digest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from spyker.config.scenario import Training
from spyker.config.sections import show
from spyker.config.suggest import listed
from spyker.errors import UsageError

WHERE = "training.personal"
BUFFERS = "buffers"
"""Pattern for all buffers and, as in FedBN, the weights and biases of BatchNorm layers."""
CENTRAL_NOTE = "central evaluation uses the initial values of the personal parameters"
MOST_NAMES = 20  # in an error message


def patterns_of(training: Training, default: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of ``[training]``, or those of the task."""
    return tuple(default if training.personal is None else training.personal)


def select_personal(
    names: Sequence[str], patterns: Sequence[str], with_buffers: Collection[str] = ()
) -> frozenset[str]:
    """Return the names that are personal.

    Args:
        names: names of all parameters and buffers.
        patterns: patterns of names.
        with_buffers: what the pattern ``buffers`` selects.

    Raises:
        UsageError: a pattern selects nothing, or the patterns select everything.

    """
    if isinstance(patterns, str):
        raise UsageError(WHERE, f"{show(patterns)} is not allowed", "Give a list of patterns")
    remedy = f"The model has {listed(names, MOST_NAMES)}"
    found: set[str] = set()
    for pattern in patterns:
        named = {name for name in names if fnmatchcase(name, pattern)}
        if pattern == BUFFERS:
            named |= set(with_buffers)
        if not named:
            raise UsageError(WHERE, f"{show(pattern)} matches no parameter", remedy)
        found |= named
    if found and len(found) == len(set(names)):
        problem = f"{show(list(patterns))} is not allowed: it matches every parameter, and none is left to share"
        raise UsageError(WHERE, problem, remedy)
    return frozenset(found)
