"""The report: one self-contained HTML file about some runs."""

from __future__ import annotations

import base64
import hashlib
import html
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spyker.dashboard.bundle import STYLE, json_text, script, text
from spyker.dashboard.run_list import RunList
from spyker.dashboard.watched_run import EVENTS, WatchedRun
from spyker.plots.run_groups import RunGroups, group_runs
from spyker.plots.table import rows
from spyker.protocol.facts import SyncStarted, TokenArrived
from spyker.records import SCENARIO, InitialModelLoaded, RecordError
from spyker.untrusted_files import read_text
from spyker.untrusted_text import printable_line

MOMENTS = 80  # states of each run for the slider
HOPS = 2  # token moves in the default replay
LEAD = 0.15  # seconds before the first exchange at which the default replay starts


def report(folders: Sequence[Path], window: tuple[float, float] | None = None) -> str:
    """Return the report on the runs in some folders.

    Args:
        folders: run records, or folders of run records.
        window: interval that can be replayed event by event; default: the first exchanges.

    Raises:
        RecordError: a run has no facts yet, or consists of several records.

    """
    run_list = RunList(folders)
    run_list.refresh()
    runs = {number: read_all(run) for number, run in run_list.runs.items()}
    if not runs:
        raise RecordError(f"{folders[0]}: no facts yet. Let it run longer")
    for run in runs.values():
        if len(run.parts) > 1:
            places = " ".join(shlex.quote(str(part.folder)) for part in run.parts)
            raise RecordError(f"a report needs one record per run. Merge them: spyker merge {places} --out DIR")
    shown = group_runs([run.records[0] for run in runs.values()])
    interval = window or first_exchanges(next(iter(runs.values())))
    infos = run_list.payload()
    for info in infos:
        info["folder"] = Path(info["folder"]).name  # do not publish paths of this machine
    data = {
        "runs": infos,
        "timelines": {number: run.timeline() | {"state": run.present()} for number, run in runs.items()},
        "moments": {number: moments(run) for number, run in runs.items()},
        "windows": {number: run.window(*interval) for number, run in runs.items()},
    }
    titles = {info["id"]: str(info["label"]) for info in infos}
    commands = "".join(reproduction(titles[number], run) for number, run in runs.items())
    return page(shown, data, commands)


def read_all(run: WatchedRun) -> WatchedRun:
    """Read all facts of a run."""
    while run.advance():
        pass
    return run


def moments(run: WatchedRun) -> list[dict[str, Any]]:
    """Return evenly spaced states of a run, and the last one."""
    end = run.state.t
    return [run.at(end * i / MOMENTS) for i in range(MOMENTS)] + [run.present()]


def first_exchanges(run: WatchedRun) -> tuple[float, float]:
    """Return the default interval to replay: the first exchange and the next token moves, or the start of the run."""
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


def reproduction(title: str, run: WatchedRun) -> str:
    """Return the commands that reproduce a run, and its scenario."""
    start, record = run.world.start, run.records[0]
    extras = "simulation" if start.began is None else "server,simulation"
    lines = [f"pip install {shlex.quote(f'spyker-fl[{extras}]=={start.spyker}')}"]
    if start.began is None:
        command = ["spyker", "run", SCENARIO]
        loaded = next(record.facts(InitialModelLoaded), None)
        if loaded is not None:
            command += ["--initial-model", loaded.fact.model]
            lines.insert(0, printable_line(f"# initial model: {loaded.fact.model}, SHA-256 {loaded.fact.sha256}"))
    else:
        command = ["spyker", "up", SCENARIO]
        lines.insert(0, "# a deployment in real time: another run will be similar, not identical")
    lines.append(shlex.join(command))
    scenario = read_text(record.folder / SCENARIO)
    commands = html.escape("\n".join(lines))
    return (
        f"<h3>{html.escape(title)}</h3>\n<p>Save the scenario below as <code>{SCENARIO}</code>, then:</p>\n"
        f"<pre>{commands}</pre>\n<details><summary>{SCENARIO}, resolved</summary>\n"
        f"<pre>{html.escape(scenario)}</pre></details>\n"
    )


def page(shown: RunGroups, data: dict[str, Any], commands: str) -> str:
    """Return the HTML. Its content security policy allows only its own script and style, and no requests."""
    code, style = script(), text(STYLE)
    policy = (
        f"default-src 'none'; script-src {digest(code)}; style-src {digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    embedded = json_text(data).replace("<", "\\u003c")
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
<h2>Reproduce</h2>
{commands}</section>
<footer id="transport" tabindex="-1"></footer>
<div id="announcer" class="visually-hidden" aria-live="polite"></div>
<script type="application/json" id="data">{embedded}</script>
<script>{code}</script>
</body>
</html>
"""


def replayed(data: dict[str, Any]) -> str:
    """Describe the interval that can be replayed."""
    found = {(max(0.0, window["from"]), window["to"]) for window in data["windows"].values()}
    intervals = " and ".join(f"{start:.2f} to {end:.2f} s" for start, end in sorted(found))
    return f"Play, step or slide below. Single events are available from {intervals}; otherwise {MOMENTS} states."


def digest(content: str) -> str:
    """Return the hash of an inline script or style for the content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def summary(shown: RunGroups) -> str:
    """Describe the results in a few sentences."""
    first, results = shown.first, []
    for label, curves in shown.lines.items():
        scores = [curve.mean[-1] for curve in curves]
        score = sum(scores) / len(scores)
        seeds = f", mean of {len(curves)} seeds" if len(curves) > 1 else ""
        results.append(f"{label} ended with {first.metric} {score:.3f} after {curves[0].time[-1]:g} s{seeds}")
    unit = "virtual" if first.virtual else "real"
    of = "the clients' evaluations, weighted by examples" if first.by_clients else "the servers"
    return f"{'; '.join(results)}. Times are {unit} seconds; {first.metric} is the mean of {of}."


def table(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return an HTML table."""
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
