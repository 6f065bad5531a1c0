"""The whole reproduction as one Markdown document. Every number in it comes from the runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from spyker import __version__
from spyker.experiments.claims import Verdict
from spyker.experiments.item import Profile, Section
from spyker.experiments.items import ITEMS
from spyker.experiments.reading import READING, REASONS
from spyker.experiments.reproduce import Plan, count, markdown


def document(
    plans: Sequence[Plan],
    sections: Mapping[str, Section],
    profile: Profile,
    seeds: int,
    picture: Callable[[str], str],
) -> str:
    """All sections, with an overview before them."""
    claims = [claim for section in sections.values() for claim in section.claims]
    counts = {verdict: sum(claim.verdict is verdict for claim in claims) for verdict in Verdict}
    tally = (
        f"{counts[Verdict.HOLDS]} hold, {counts[Verdict.DIRECTION]} hold in direction but not in size, "
        f"{counts[Verdict.FAILS]} do not hold, and {counts[Verdict.OPEN]} could not be decided"
    )
    names = "all" if set(sections) == set(ITEMS) else " ".join(sections)
    parts = [
        "# The paper, reproduced\n",
        f"Written by `spyker reproduce {names} --profile {profile.name} --seeds {seeds}`, version "
        f"{__version__}. Profile {profile.name}: {profile.says}; {count(seeds, 'seed')}. No number here is "
        "typed by hand.\n",
        "Times are virtual seconds of the emulated world. Unless a table says otherwise the score is the mean of the "
        "servers' scores, a time is that of the first evaluation at which it reached a target, and “and stays” is that "
        "of the first evaluation from which on it never fell below again. A claim holds in direction if every seed "
        "shows it, and in size if our effect is at least four fifths of the paper's.\n",
        f"Of {len(claims)} claims: {tally}.\n",
        "## How the paper is read\n",
        REASONS + "\n",
        reading_table(),
    ]
    for plan in plans:
        section = sections[plan.item.name]
        parts.append(markdown(plan.item, section, profile, seeds, picture(plan.item.name)))
    return "\n".join(parts)


def reading_table() -> str:
    """The settings of the reading, by task."""
    rows = [f"| {task} | `{key}` | `{value}` |\n" for task, keys in READING.items() for key, value in keys.items()]
    return "| task | key | value |\n| --- | --- | --- |\n" + "".join(rows) if rows else ""
