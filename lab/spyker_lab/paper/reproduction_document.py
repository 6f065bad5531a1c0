"""The report of the reproduction in Markdown. All numbers come from the runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from spyker.version import __version__
from spyker_lab.paper import explanations
from spyker_lab.paper.claims import Claim, ClaimVerdict
from spyker_lab.paper.item import Section
from spyker_lab.paper.items import ITEMS, PAPER
from spyker_lab.paper.items.readings import BY_AVERAGE, BY_MEAN
from spyker_lab.paper.paper_settings import OPEN, READING, SEARCH
from spyker_lab.paper.reproduction import ItemPlan, command, count, markdown


def document(plans: Sequence[ItemPlan], sections: Mapping[str, Section], picture: Callable[[str], str]) -> str:
    """Return the report: a summary and the finished sections."""
    finished = [p for p in plans if p.item.name in sections]
    missing = [p.item.name for p in plans if p.item.name not in sections]
    profile = plans[0].profile
    parts = [
        "# The paper, reproduced\n",
        *summary(sections),
        *([f"Not finished, and not included: {', '.join(missing)}.\n"] if missing else []),
        f"Written by `{command(plans, words(plans))}`, version {__version__}. Profile {profile.name}: {profile.says}; "
        f"{count(profile.seeds, 'seed')} where a section does not say otherwise. All numbers come from the runs.\n",
        "Times are virtual seconds of the emulated world. Unless a table says otherwise the score is the mean of the "
        "servers' scores, a time is that of the first evaluation at which it reached a target, “and stays” is that of "
        "the first evaluation from which on it never fell below again, and “> 40 s” a target that was not reached when "
        "runs ended. A claim holds in direction if every seed shows it, and in size if our effect is at least four "
        "fifths of the paper's; a level holds within a fifth. In brackets behind a size stands the interval of 95 % of "
        "its mean, from differences or ratios within each seed.\n",
        explanations.section(list(sections.values()), picture("why")),
        "## How the paper is read\n",
        OPEN + "\n",
        *searched(sections),
        reading_table(),
        *(markdown(p, sections[p.item.name], picture(p.item.name)) for p in finished),
    ]
    return "\n".join(part for part in parts if part)


def words(plans: Sequence[ItemPlan]) -> str:
    """Return the items as arguments of the command."""
    names, covered = [p.item.name for p in plans], [n for n, i in ITEMS.items() if plans[0].profile.name in i.minutes]
    groups = {frozenset(covered): "all", frozenset(item.name for item in PAPER): "paper"}
    return groups.get(frozenset(names), " ".join(names))


def summary(sections: Mapping[str, Section]) -> list[str]:
    """Return a table of all claims of the paper."""
    claims = [(item.name, c) for item in PAPER if item.name in sections for c in sections[item.name].claims]
    if not claims:
        return []
    rows = [f"| [{name}](#{name}) | {c.sentence} | {c.there} | {c.here} | {c.verdict.value} |\n" for name, c in claims]
    head = "| | the paper says | there | here | verdict |\n| --- | --- | ---: | ---: | --- |\n"
    first, second = [c for _, c in claims if not c.again], [c for _, c in claims if c.again]
    result = f"Of {count(len(first), 'claim')} of the paper {count_verdicts(first)}."
    again = f" Of {count(len(second), 'second reading')} {count_verdicts(second)}." if second else ""
    return [f"{result}{again}\n", head + "".join(rows)]


def count_verdicts(claims: Sequence[Claim]) -> str:
    """Describe how many claims hold."""
    texts = {
        ClaimVerdict.HOLDS: "hold",
        ClaimVerdict.DIRECTION: "hold in direction but not in size",
        ClaimVerdict.FAILS: "do not hold",
        ClaimVerdict.OPEN: "could not be decided",
    }
    counts = {verdict: sum(claim.verdict is verdict for claim in claims) for verdict in texts}
    parts = [f"{n} {texts[verdict]}" for verdict, n in counts.items() if n or verdict is not ClaimVerdict.OPEN]
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def searched(sections: Mapping[str, Section]) -> list[str]:
    """Describe the results of the items that try other readings, if they ran."""
    results = []
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
            results.append(
                f"On {task} (`{name}`) Spyker takes less time than FedAsync to 90 % by {' and '.join(each)}."
            )
    return [" ".join(results) + "\n", SEARCH + "\n"] if results else []


def reading_table() -> str:
    """Return the settings of the reading, by task."""
    rows = [f"| {task} | `{key}` | `{value}` |\n" for task, keys in READING.items() for key, value in keys.items()]
    return "| task | key | value |\n| --- | --- | --- |\n" + "".join(rows) if rows else ""
