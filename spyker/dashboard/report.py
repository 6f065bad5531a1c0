"""A report: one file about some runs, which opens without a network and can be sent to a colleague."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spyker.dashboard.bundle import STYLE, script, text
from spyker.dashboard.run_list import RunList
from spyker.dashboard.watched_run import EVENTS, WatchedRun
from spyker.plots.run_groups import RunGroups, together
from spyker.plots.table import rows
from spyker.protocol.facts import SyncStarted, TokenArrived
from spyker.records import SCENARIO, InitialModelLoaded, RecordError

MOMENTS = 80  # of each run that the slider can go to
HOPS = 2  # of the token that the replay shows, if nothing else is asked for
LEAD = 0.15  # seconds before the first exchange where the replay begins


def report(folders: Sequence[Path], window: tuple[float, float] | None = None) -> str:
    """The report on the runs in some folders; ``window`` is the stretch of time that can be replayed event by event."""
    run_list = RunList(folders)
    run_list.look()
    runs = {number: finished(run) for number, run in run_list.runs.items()}
    if not runs:
        raise RecordError(f"{folders[0]} has no facts yet. Let it run a little longer")
    for run in runs.values():
        if len(run.parts) > 1:
            places = " ".join(shlex.quote(str(part.folder)) for part in run.parts)
            raise RecordError(f"a report is of one record. Make one of these first: spyker merge {places} --out DIR")
    shown = together([run.records[0] for run in runs.values()])
    stretch = window or first_exchanges(next(iter(runs.values())))
    infos = run_list.payload()
    for info in infos:
        info["folder"] = Path(info["folder"]).name  # where it was on this machine is nobody's business
    data = {
        "runs": infos,
        "timelines": {number: run.timeline() | {"state": run.present()} for number, run in runs.items()},
        "moments": {number: moments(run) for number, run in runs.items()},
        "windows": {number: run.window(*stretch) for number, run in runs.items()},
    }
    titles = {info["id"]: str(info["label"]) for info in infos}
    repeats = "".join(repeat(titles[number], run) for number, run in runs.items())
    return page(shown, data, repeats)


def finished(run: WatchedRun) -> WatchedRun:
    """A run, read to its end, or as far as it is."""
    while run.advance():
        pass
    return run


def moments(run: WatchedRun) -> list[dict[str, Any]]:
    """Some states of a run, the last among them."""
    end = run.state.t
    return [run.at(end * i / MOMENTS) for i in range(MOMENTS)] + [run.present()]


def first_exchanges(run: WatchedRun) -> tuple[float, float]:
    """The stretch to replay, if none is asked for: the first exchange and the token's next moves, or the beginning."""
    start, hops, end = None, 0, None
    for t, fact, _ in run.records[0].facts(SyncStarted, TokenArrived):
        if start is None and isinstance(fact, SyncStarted):
            start = max(0.0, t - LEAD)
        hops += isinstance(fact, TokenArrived)
        if hops > HOPS:
            end = t
            break
    start = start or 0.0
    most = float(run.window(start, None, EVENTS)["to"])
    return start, min(most, end or most)


def repeat(title: str, run: WatchedRun) -> str:
    """The command that makes a run again, and the scenario that it needs."""
    start, record = run.world.start, run.records[0]
    extras = "simulation" if start.began is None else "server,simulation"
    lines = [f"pip install {shlex.quote(f'spyker-fl[{extras}]=={start.spyker}')}"]
    if start.began is None:
        command = ["spyker", "run", SCENARIO]
        begun = next(record.facts(InitialModelLoaded), None)
        if begun is not None:
            command += ["--initial-model", begun.fact.model]
            lines.insert(0, f"# its first model is {begun.fact.model}, with SHA-256 {begun.fact.sha256}")
    else:
        command = ["spyker", "up", SCENARIO]
        lines.insert(0, "# this run was deployed, in real time: another one will be like it, not the same")
    lines.append(shlex.join(command))
    scenario = (record.folder / SCENARIO).read_text("utf-8", "replace")
    said = html.escape("\n".join(lines))
    return (
        f"<h3>{html.escape(title)}</h3>\n<p>Save the scenario below as <code>{SCENARIO}</code>, then:</p>\n"
        f"<pre>{said}</pre>\n<details><summary>{SCENARIO}, everything resolved</summary>\n"
        f"<pre>{html.escape(scenario)}</pre></details>\n"
    )


def page(shown: RunGroups, data: dict[str, Any], repeats: str) -> str:
    """The file. What may run in it is named by its digest, and nothing may be fetched."""
    code, style = script(), text(STYLE)
    policy = (
        f"default-src 'none'; script-src {digest(code)}; style-src {digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    held = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    heads, body = rows(shown)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Spyker: {html.escape(", ".join(shown.lines))}</title>
<style>{style}</style>
</head>
<body class="report">
<a class="skip" href="#transport">To the playback</a>
<header class="top">
<h1><span class="mark" aria-hidden="true"></span>Spyker</h1>
<p class="subject">{html.escape(shown.about)}</p>
<p id="status" role="status" hidden></p>
<button id="theme" type="button" aria-label="Dark colours"></button>
</header>
<section class="prose">
<h2>Summary</h2>
<p>{html.escape(summary(shown))}</p>
{table(heads, body)}
{f'<p class="warning">{html.escape(shown.warning)}</p>' if shown.warning else ""}
</section>
<p class="prose replayed">{html.escape(replayed(data))}</p>
<main id="runs" tabindex="-1"></main>
<section class="prose">
<h2>To repeat it</h2>
{repeats}</section>
<footer id="transport" tabindex="-1"></footer>
<div id="announcer" class="visually-hidden" aria-live="polite"></div>
<script type="application/json" id="data">{held}</script>
<script>{code}</script>
</body>
</html>
"""


def replayed(data: dict[str, Any]) -> str:
    """Which stretch can be watched closely."""
    found = {(max(0.0, window["from"]), window["to"]) for window in data["windows"].values()}
    stretches = " and ".join(f"{start:.2f} to {end:.2f} s" for start, end in sorted(found))
    return f"Play, step or slide below. Every event can be seen from {stretches}; the rest in {MOMENTS} moments."


def digest(content: str) -> str:
    """What a policy calls a script or a style that stands in the page itself."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def summary(shown: RunGroups) -> str:
    """A few sentences."""
    first, said = shown.first, []
    for label, curves in shown.lines.items():
        scores = [curve.mean[-1] for curve in curves]
        score = sum(scores) / len(scores)
        seeds = f", mean of {len(curves)} seeds" if len(curves) > 1 else ""
        said.append(f"{label} ended with {first.metric} {score:.3f} after {curves[0].time[-1]:g} s{seeds}")
    what = "virtual" if first.virtual else "real"
    return f"{'; '.join(said)}. Times are {what} seconds; {first.metric} is the mean over the servers."


def table(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table of words and numbers."""
    top = "".join(f'<th scope="col">{html.escape(head)}</th>' for head in heads)
    lines = "".join(
        f'<tr><th scope="row">{html.escape(cells[0])}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells[1:])
        + "</tr>\n"
        for cells in body
    )
    return (
        '<div class="scroll panel" tabindex="0" role="group" aria-label="Results"><table>'
        f"<thead><tr>{top}</tr></thead>\n<tbody>{lines}</tbody></table></div>"
    )
