"""Client-level differential privacy: what one client can change, the noise, and what servers no longer look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from actions import stated
from noisy_region import ALL, CLIENTS, CLIP, INITIAL, SIZE, NoisyRegion, privacy, step_of

from spyker.protocol.facts import (
    ClientQuarantined,
    ModelRestored,
    NoiseAdded,
    RateHalved,
    RoundEnded,
    UpdateApplied,
    UpdateClipped,
    UpdateRejected,
)
from spyker.protocol.messages import Join, Leave, MaskedModel
from spyker.robust.update_filter import FilterParameters
from spyker.vectors import Vector

ZERO = np.zeros(SIZE, np.float32)
WILD: dict[str, Vector] = {
    "long": np.full(SIZE, 1e6, np.float32),
    "ordinary": step_of(0) * 2,
    "infinite": np.full(SIZE, np.inf, np.float32),
    "overflowing": np.full(SIZE, 3e38, np.float32),
}
BOTH = pytest.mark.parametrize("masks", [False, True], ids=["plain", "masked"])
EVERY = pytest.mark.parametrize("algorithm", ALL)


def pair(algorithm: str, masks: bool, **changed: Any) -> list[NoisyRegion]:
    return [NoisyRegion(algorithm, privacy(**changed), masks=masks) for _ in range(2)]


@EVERY
@BOTH
@pytest.mark.parametrize("kind", WILD)
def test_one_client_changes_a_sum_by_at_most_the_clipping_norm(algorithm: str, masks: bool, kind: str) -> None:
    with_client, without = pair(algorithm, masks)
    with_client.rounds(4, {0: WILD[kind]})
    without.rounds(4, {0: ZERO})
    found = with_client.distance(without)
    assert len(found) == 4
    assert max(found) <= CLIP
    if kind == "long":
        assert min(found) > 0.95 * CLIP


@EVERY
@BOTH
def test_all_clients_have_the_same_weight(algorithm: str, masks: bool) -> None:
    region = NoisyRegion(algorithm, privacy(clip=50.0), masks=masks)
    region.rounds(1)
    assert region.released[0] == pytest.approx(sum(step_of(k) for k in range(CLIENTS)), abs=1e-2)
    if not masks:
        assert region.released[0] == pytest.approx(sum(step_of(k) for k in range(CLIENTS)), abs=1e-5)


@EVERY
@BOTH
def test_a_client_that_answers_twice_in_a_round_counts_once(algorithm: str, masks: bool) -> None:
    with_client, without = pair(algorithm, masks)
    for region, step in ((with_client, WILD["long"]), (without, ZERO)):
        region.train(0, special={0: step})
        region.rejoin(0)  # it gets another task where rounds allow that
        if 0 not in region.tasks:
            region.tell(0, Leave())
            region.rejoin(0)
        again = sorted(region.tasks)
        region.train(*again, special={0: step})
        region.deliver()
    found = with_client.distance(without)
    assert found
    assert max(found) <= CLIP


@BOTH
def test_a_late_update_counts_once_in_the_round_in_which_it_arrives(masks: bool) -> None:
    with_client, without = pair("stride", masks)
    for region, step in ((with_client, WILD["long"]), (without, ZERO)):
        region.train(1, 2, 3, 4)
        region.take(0, region.server.expire("round"))
        region.deliver()
        late = region.answer(0, step)
        region.tell(0, late)
        region.train(*(k for k in sorted(region.tasks) if k))
        region.deliver()
    first, second = with_client.distance(without)
    assert first == 0
    assert 0.95 * CLIP < second <= CLIP


@EVERY
@BOTH
@pytest.mark.parametrize("saved_after", [0, 2, 5], ids=["before", "during", "after"])
def test_a_crash_lets_no_update_into_two_different_sums(algorithm: str, masks: bool, saved_after: int) -> None:
    """The server goes back to a state from before it released a sum; clients send nothing again."""
    with_client, without = pair(algorithm, masks)
    for region, step in ((with_client, WILD["long"]), (without, ZERO)):
        states = [region.server.state()]
        for k in range(CLIENTS):
            region.train(k, special={k: step if k == 0 else step_of(k)})
            states.append(region.server.state())
        region.deliver()
        assert len(region.released) == 1
        region.mail.clear()
        region.crash(states[saved_after])
        region.rejoin(*range(CLIENTS))
        for _ in range(2):  # client 0 answers nothing from now on
            region.train(*(k for k in sorted(region.tasks) if k))
            region.take(0, region.server.expire("round") if algorithm == "stride" else [])
            region.deliver()
    first, *later = with_client.distance(without)
    assert 0.95 * CLIP < first <= CLIP
    assert max(later, default=0.0) < 1e-5  # the models of the others differ, and so do the roundings of their updates


@EVERY
def test_a_client_with_a_spent_budget_counts_no_more(algorithm: str) -> None:
    region = NoisyRegion(algorithm, privacy(participations=2))
    region.rounds(3)
    assert len(region.released) in (2, 3)
    assert not np.any(region.released[2:])
    assert {f.participations for f in stated(region.actions, NoiseAdded)} == {1, 2}


# --- The noise --------------------------------------------------------------------------------------------------------


def noise_of(region: NoisyRegion, quiet: NoisyRegion) -> list[Vector]:
    return [a - b for a, b in zip(region.released, quiet.released, strict=True)]


@EVERY
@BOTH
def test_a_server_adds_noise_of_the_stated_scale_to_every_sum(algorithm: str, masks: bool) -> None:
    noisy = [NoisyRegion(algorithm, privacy(4.0, seed=seed), masks=masks) for seed in range(40)]
    for region in noisy:
        region.rounds(3)
    quiet = NoisyRegion(algorithm, privacy(), masks=masks)
    quiet.rounds(3)
    found = np.array([noise_of(region, quiet) for region in noisy])
    assert found.shape == (40, 3, SIZE)
    assert np.std(found) == pytest.approx(4.0 * CLIP, rel=0.05)
    assert abs(np.mean(found)) < 5 * 4.0 * CLIP / np.sqrt(found.size)
    facts = stated(noisy[0].actions, NoiseAdded)
    assert [f.number for f in facts] == [1, 2, 3]
    assert {(f.clients, f.deviation) for f in facts} == {(CLIENTS, 4.0 * CLIP)}


@EVERY
@BOTH
def test_the_released_sum_is_all_that_the_model_depends_on(algorithm: str, masks: bool) -> None:
    """Whatever clients send, the same released sums lead to the same models, tasks and facts."""
    one, other = pair(algorithm, masks, noise=2.0)
    for region in (one, other):
        region.pretend([step_of(10 + number) for number in range(4)])
    one.rounds(4)
    other.rounds(4, {k: WILD[kind] for k, kind in enumerate(WILD)})
    assert not one.pretended
    assert not other.pretended
    assert one.server.weights.snapshot().tolist() == other.server.weights.snapshot().tolist()
    kinds = (UpdateApplied, RoundEnded, NoiseAdded)
    assert [stated(one.actions, kind) for kind in kinds] == [stated(other.actions, kind) for kind in kinds]
    for k, task in one.tasks.items():
        assert repr(task) == repr(other.tasks[k])


@EVERY
@BOTH
def test_a_restored_server_adds_the_same_noise_to_the_same_sum(algorithm: str, masks: bool) -> None:
    region = NoisyRegion(algorithm, privacy(2.0), masks=masks)
    region.rounds(1)
    state, tasks = region.server.state(), dict(region.tasks)
    region.rounds(1)
    expected = region.released[-1]
    region.crash(state)
    if masks:  # the helper opens nothing twice
        return
    region.tasks = tasks
    region.rounds(1)
    assert region.released[-1].tolist() == expected.tolist()


# --- What servers no longer look at -----------------------------------------------------------------------------------


@EVERY
def test_norms_and_directions_of_single_updates_decide_nothing(algorithm: str) -> None:
    filtered = FilterParameters(when="always", strikes=1)
    region = NoisyRegion(algorithm, privacy(), robust=filtered)
    region.rounds(6, {0: WILD["long"], 1: np.full(SIZE, np.nan, np.float32), 2: -step_of(3) * 100})
    decisions = (UpdateClipped, UpdateRejected, ClientQuarantined, RateHalved, ModelRestored)
    assert not [fact for kind in decisions for fact in stated(region.actions, kind)]
    assert len(region.released) == 6


def test_a_clipping_norm_above_that_of_the_model_does_not_repeat_the_first_round() -> None:
    region = NoisyRegion("stride", privacy(clip=1000.0))
    region.rounds(3)
    assert not stated(region.actions, RateHalved)
    assert not region.server.handles_nonfinite
    assert len(stated(region.actions, RoundEnded)) == 3


def test_masking_clients_are_told_a_bound_that_depends_on_no_update() -> None:
    region = NoisyRegion("stride", privacy(), masks=True)
    told = []
    for step in (1.0, 0.01, 100.0):
        task = region.tasks[0]
        assert isinstance(task, MaskedModel)
        told.append((task.scale, task.bound, task.median, task.largest))
        region.rounds(1, {k: step_of(k) * np.float32(step) for k in range(CLIENTS)})
    assert len(set(told)) == 1
    assert told[0][1] < CLIP


@EVERY
def test_a_mean_has_a_public_denominator(algorithm: str) -> None:
    full, lonely = (NoisyRegion(algorithm, privacy(), masks=False) for _ in range(2))
    full.rounds(1)
    if algorithm != "fedbuff":  # it divides by its buffer
        for k in (1, 2, 3, 4):
            lonely.tell(k, Leave())
        lonely.tasks = {0: lonely.tasks[0]}
        lonely.rounds(1)
        moved = lonely.server.weights.snapshot() - np.array(INITIAL, np.float32)
        once = np.linalg.norm(lonely.released[0]) / CLIENTS
        assert np.linalg.norm(moved) <= 4 * once  # Stride's gain and momentum; alone it would be 5 times as long
    assert full.server.whole_weight(1.0) == CLIENTS


def test_a_join_tells_no_weight() -> None:
    region = NoisyRegion("stride", privacy())
    region.tell(0, Leave())
    region.tell(0, Join(1000))
    assert set(region.server.sizes.values()) == {1}  # type: ignore[attr-defined]
