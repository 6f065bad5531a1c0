"""Warnings in the summaries of runs, as lines below a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spyker.plots.run_groups import join_words

NAMED = 5  # maximum number of clients or runs named in a line


def warning_lines(summaries: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """Return a line for each kind of warning, and for failed clients, in summaries by name of the run.

    A line about several runs has the numbers of the first.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for name, summary in summaries.items():
        for warning in (summary or {}).get("warnings", ()):
            text = f"{warning['message']}. {warning['remedy']}."
            found.setdefault(warning["kind"], []).append((name, text))
        if failed := (summary or {}).get("failed_clients"):
            total = len((summary or {})["updates_per_client"])
            found.setdefault("failed clients", []).append((name, failed_clients(failed, total)))
    return [line(kind, concerned, len(summaries)) for kind, concerned in found.items()]


def line(kind: str, concerned: Sequence[tuple[str, str]], runs: int) -> str:
    """Return the line about one kind of warning."""
    name, text = concerned[0]
    if runs == 1:
        return f"warning ({kind}): {text}"
    if len(concerned) == 1:
        return f"warning ({kind}) in {name}: {text}"
    return f"warning ({kind}) in {named([name for name, _ in concerned])}: in the first, {text}"


def failed_clients(failed: Sequence[Mapping[str, Any]], clients: int) -> str:
    """List the failed clients with times, and the reason of the first."""
    which = named([f"client {each['client']} at {each['time']:.4g} s" for each in failed])
    first = "" if len(failed) == 1 else "The first: "
    return f"{len(failed):,} of {clients:,} clients failed and left the run, {which}. {first}{failed[0]['reason']}"


def named(names: Sequence[str]) -> str:
    """Return the first names and the number of further ones."""
    more = len(names) - NAMED
    return join_words([*names[:NAMED], f"{more:,} more"] if more > 0 else names)
