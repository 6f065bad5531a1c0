"""Runs that depend on those before them: each once, whatever happens in between."""

from pathlib import Path

from spyker.config.scenario import Scenario, load
from spyker.sim.clock import StopRequest
from spyker.sweeps.runner import folder_of
from spyker.tasks.registry import resolve
from spyker_lab.chains import Chain, Steps, run_chains


def scenario(rate: float, algorithm: str) -> Scenario:
    settings = {"task.name": "quadratic", "duration": 1.0, "training.rate": rate, "algorithm": algorithm}
    return resolve(load(None, settings, clients=4))


def halving(algorithm: str, times: int = 3) -> Steps[list[float | None]]:
    """Begins with a rate that diverges or learns, and tries half of it next; returns the final scores."""
    rate, found = 1e30, list[float | None]()
    for _ in range(times):
        run = yield scenario(rate, algorithm)
        found.append(run and (run.summary or {})["final"]["mean"])
        rate = 0.4 if run is None else rate / 2
    return found


def test_chains_end_with_what_they_found_and_are_told_what_diverged(tmp_path: Path) -> None:
    chains = [Chain(halving(name), tmp_path) for name in ("spyker", "fedasync")]
    told: list[int] = []
    run_chains(chains, 2, lambda: told.append(sum(chain.made for chain in chains)))
    assert [chain.next for chain in chains] == [None, None]
    for chain in chains:
        assert chain.result is not None
        assert chain.result[0] is None
        assert None not in chain.result[1:]
    assert told == [1, 2, 3, 4, 5, 6]
    assert len(list(tmp_path.iterdir())) == 6


def test_a_chain_that_was_stopped_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    stop = StopRequest()
    first = Chain(halving("spyker"), tmp_path)

    def enough() -> None:
        stop.requested = first.made == 2

    run_chains([first], 1, enough, stop)
    assert (first.made, first.result) == (2, None)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/facts.jsonl")}
    again = Chain(halving("spyker"), tmp_path)
    assert again.made == 2
    assert again.next is not None
    assert again.next[0] == folder_of(scenario(0.2, "spyker"), tmp_path)
    run_chains([again], 1)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/facts.jsonl")}
    assert before.items() <= after.items()
    assert len(after) == 3
    whole = Chain(halving("spyker"), tmp_path)
    assert whole.result == again.result is not None
