"""The whole reproduction as one Markdown document. Every number in it comes from the runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from spyker.experiments.claims import Verdict
from spyker.experiments.item import Profile, Section
from spyker.experiments.items import ITEMS, PAPER
from spyker.experiments.items.readings import BY_AVERAGE, BY_MEAN
from spyker.experiments.reading import OPEN, READING, SEARCH
from spyker.experiments.reproduce import Plan, count, markdown
from spyker.version import __version__


def document(
    plans: Sequence[Plan],
    sections: Mapping[str, Section],
    profile: Profile,
    seeds: int,
    picture: Callable[[str], str],
) -> str:
    """All sections, with an overview before them."""
    claims = [claim for item in PAPER if item.name in sections for claim in sections[item.name].claims]
    counts = {verdict: sum(claim.verdict is verdict for claim in claims) for verdict in Verdict}
    tally = (
        f"{counts[Verdict.HOLDS]} hold, {counts[Verdict.DIRECTION]} hold in direction but not in size, "
        f"{counts[Verdict.FAILS]} do not hold, and {counts[Verdict.OPEN]} could not be decided"
    )
    groups = {frozenset(ITEMS): "all", frozenset(item.name for item in PAPER): "paper"}
    names = groups.get(frozenset(sections), " ".join(sections))
    parts = [
        "# The paper, reproduced\n",
        f"Written by `spyker reproduce {names} --profile {profile.name} --seeds {seeds}`, version "
        f"{__version__}. Profile {profile.name}: {profile.says}; {count(seeds, 'seed')}. No number here is "
        "typed by hand.\n",
        "Times are virtual seconds of the emulated world. Unless a table says otherwise the score is the mean of the "
        "servers' scores, a time is that of the first evaluation at which it reached a target, and “and stays” is that "
        "of the first evaluation from which on it never fell below again. A claim holds in direction if every seed "
        "shows it, and in size if our effect is at least four fifths of the paper's; a level holds within a fifth.\n",
        *([f"Of {len(claims)} claims of the paper {tally}.\n"] if claims else []),
        "## How the paper is read\n",
        OPEN + "\n",
        *searched(sections),
        reading_table(),
    ]
    for plan in plans:
        section = sections[plan.item.name]
        parts.append(markdown(plan.item, section, profile, seeds, picture(plan.item.name)))
    return "\n".join(parts)


def searched(sections: Mapping[str, Section]) -> list[str]:
    """What the items that try other readings found, if they ran."""
    said = []
    for name, task, splits in (
        ("readings", "MNIST", {"IID": "with IID data", "l = 2": "with two labels per client"}),
        ("sensitivity", "digits", {"as it stands": "with IID data", "l = 2": "with two labels per client"}),
    ):
        if name in sections:
            numbers = sections[name].numbers
            each = [
                f"{numbers[split, BY_MEAN].text('.3g', ' %')} {words} ({numbers[split, BY_AVERAGE].text('.3g', ' %')} "
                "by the average of the models)"
                for split, words in splits.items()
            ]
            said.append(f"On {task} (`{name}`) Spyker takes less time than FedAsync to 90 % by {' and '.join(each)}.")
    return [" ".join(said) + "\n", SEARCH + "\n"] if said else []


def reading_table() -> str:
    """The settings of the reading, by task."""
    rows = [f"| {task} | `{key}` | `{value}` |\n" for task, keys in READING.items() for key, value in keys.items()]
    return "| task | key | value |\n| --- | --- | --- |\n" + "".join(rows) if rows else ""
