"""How far a client may go, and what becomes of one that goes too far."""

from typing import Any

import numpy as np
import pytest
from actions import stated, timers
from every_algorithm import ALGORITHMS

from spyker.protocol.client import DeltaClient
from spyker.protocol.codec import Sizes
from spyker.protocol.facts import ClientQuarantined, UpdateApplied, UpdateClipped, UpdateRejected
from spyker.protocol.filtered_clients import QUARANTINE
from spyker.protocol.messages import Join, Leave, Model, ToClient, Update
from spyker.protocol.state import Unpacker, pack
from spyker.robust.order_statistics import OrderStatistics, OutlierStatistic
from spyker.robust.sign_flips import SignFlipDetector
from spyker.robust.sketch import LOOKED_AT, Direction, Sketcher
from spyker.robust.update_filter import FilterDecision, FilterParameters, UpdateFilter, Verdict
from spyker.vectors import distance, length

RULES = FilterParameters(clip=3.0, reject=10.0, strikes=3, quarantine=60.0)
CLIENTS = 8


def nothing() -> float:
    return 0.0


class Region:
    """One server with eight clients who want the model to be elsewhere, each a little."""

    def __init__(
        self, build: Any, algorithm: str, liar: Any = None, clients: int = CLIENTS, goal: float = 1.0, **parameters: Any
    ) -> None:
        parameters |= {"exchange_rounds": 10**6} if algorithm == "stride" else {}
        self.server = build(algorithm, [[1] * clients], [0.0] * 16, rate=0.3, robust=RULES, **parameters)[0]
        self.goals = np.random.default_rng(7).normal(goal, 0.5, (clients, 16)).astype(np.float32)
        self.liar = liar
        self.facts: list[Any] = []
        self.tasks: list[tuple[int, Model]] = []
        self.served = 0
        self.perform(list(self.server.start()))

    def perform(self, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, ToClient) and isinstance(action.message, Model):
                self.tasks.append((action.client, action.message))
        self.facts += stated(actions, UpdateClipped | UpdateRejected | ClientQuarantined | UpdateApplied)
        self.timers = timers(actions)

    def answer(self, client: int | None = None) -> None:
        """This client, or whoever was given a task first, answers it; client 0 as the test wants it."""
        at = next((i for i, (k, _) in enumerate(self.tasks) if k == client), 0)
        k, model = self.tasks.pop(at)
        trained = model.weights + np.float32(model.rate) * (self.goals[k] - model.weights)
        if k == 0 and self.liar is not None:
            trained = self.liar(model.weights, trained)
        weights = trained - model.weights if issubclass(self.server.client, DeltaClient) else trained
        self.perform(self.server.handle(k, Update(weights, model.age, model.version)))

    def go_on(self, answers: int) -> None:
        for _ in range(answers):
            if self.tasks:
                self.answer()

    def of(self, kind: type) -> list[Any]:
        return [fact for fact in self.facts if type(fact) is kind]


def huge(given: Any, trained: Any) -> Any:
    return np.full_like(trained, 1e30)


def opposite(given: Any, trained: Any) -> Any:
    return given - (trained - given)


def far(given: Any, trained: Any) -> Any:
    return given + np.float32(6) * (trained - given)


FLAT_OR_SINGLE = [name for name, kind in ALGORITHMS.items() if not name.startswith("hier")]


@pytest.mark.parametrize("algorithm", FLAT_OR_SINGLE)
@pytest.mark.parametrize("liar", [huge, opposite])
def test_a_liar_is_quarantined_and_the_others_go_on(build: Any, algorithm: str, liar: Any) -> None:
    region = Region(build, algorithm, liar)
    region.go_on(400)
    (out,) = region.of(ClientQuarantined)
    assert (out.client, out.reason) == (0, "norm" if liar is huge else "sign-flipped")
    assert len(region.of(UpdateRejected)) == (RULES.strikes if liar is huge else 0), (
        "the first could not be compared yet"
    )
    assert {fact.client for fact in region.of(UpdateApplied)[-50:]} == set(range(1, CLIENTS))
    assert length(region.server.weights.snapshot()) < 10, "and nothing of it is in the model"


@pytest.mark.parametrize("algorithm", FLAT_OR_SINGLE)
def test_nobody_else_is_ever_touched(build: Any, algorithm: str) -> None:
    region = Region(build, algorithm)
    region.go_on(400)
    assert {type(fact) for fact in region.facts} == {UpdateApplied}


def test_after_the_quarantine_it_is_tried_again_and_one_strike_is_enough(build: Any) -> None:
    region = Region(build, "fedasync", huge)
    while not region.of(ClientQuarantined):
        region.answer()
    assert region.timers == [(f"{QUARANTINE}0", 60.0)]
    region.perform(region.server.expire(f"{QUARANTINE}0"))
    assert region.tasks[-1][0] == 0
    region.go_on(CLIENTS)
    assert len(region.of(ClientQuarantined)) == 2
    region.perform(region.server.expire(f"{QUARANTINE}0"))
    region.liar = None
    region.go_on(10 * CLIENTS)
    assert len(region.of(ClientQuarantined)) == 2
    assert not region.server.update_filter.strikes, "whoever behaves is forgiven"


def test_who_leaves_in_quarantine_is_not_let_in_when_it_ends(build: Any) -> None:
    region = Region(build, "spyker", huge)
    while not region.of(ClientQuarantined):
        region.answer()
    assert region.server.handle(0, Leave()) == []
    assert region.server.expire(f"{QUARANTINE}0") == []
    assert [a.client for a in region.server.handle(0, Join(1)) if isinstance(a, ToClient)] == [0]


def test_who_comes_back_in_quarantine_waits_for_its_end(build: Any) -> None:
    region = Region(build, "spyker", huge)
    while not region.of(ClientQuarantined):
        region.answer()
    region.server.handle(0, Leave())
    assert region.server.handle(0, Join(5)) == []
    (given,) = region.server.expire(f"{QUARANTINE}0")
    assert given.client == 0


def test_an_answer_that_goes_too_far_counts_up_to_the_limit(build: Any) -> None:
    region = Region(build, "fedasync", far)
    region.tasks.sort(key=lambda task: -task[0])  # client 0 is the last, when the usual is known
    region.go_on(CLIENTS - 1)
    before = region.server.weights.snapshot().copy()
    region.answer()
    (shortened,) = region.of(UpdateClipped)
    applied = region.of(UpdateApplied)[-1]
    moved = distance(region.server.weights.snapshot(), before)
    assert moved == pytest.approx(0.6 * applied.weight * shortened.limit, rel=1e-4)


def test_what_is_usual_is_a_median_over_clients_and_not_over_answers() -> None:
    bounds = UpdateFilter(RULES, {})
    for k in range(1, 6):
        bounds.judge(k, 1.0, nothing, sign_flipped=False)
    for _ in range(100):
        bounds.judge(0, 50.0, nothing, sign_flipped=False)
    assert bounds.median_norm == 1.0


def test_the_length_of_the_model_is_looked_at_only_if_it_decides() -> None:
    def model() -> float:
        pytest.fail("a pass over all weights, for every answer")

    bounds = UpdateFilter(RULES, {})
    for k in (*range(10), *range(10)):  # none goes anywhere, so that nothing becomes usual
        assert bounds.judge(k, 0.0, model, sign_flipped=False)[0] is FilterDecision.ACCEPTED
    assert bounds.median_norm == 0.0


def test_who_has_nothing_left_to_learn_does_not_shut_out_who_has() -> None:
    bounds = UpdateFilter(RULES, {})
    for length_now in (1.0, 0.01):
        for k in range(10):
            bounds.judge(k, length_now, nothing, sign_flipped=False)
    assert bounds.judge(3, 2.5, nothing, sign_flipped=False)[0] is FilterDecision.ACCEPTED


def test_if_trainings_become_longer_everywhere_the_usual_follows() -> None:
    bounds = UpdateFilter(FilterParameters(strikes=100), {})
    for length_now in (1.0, 40.0, 40.0):
        verdicts = [bounds.judge(k, length_now, nothing, sign_flipped=False)[0] for k in range(10)]
    assert verdicts == [FilterDecision.ACCEPTED] * 10


@pytest.mark.parametrize(
    ("model", "far", "verdict"), [(5.0, 14.0, FilterDecision.ACCEPTED), (0.0, 1e30, FilterDecision.REJECTED)]
)
def test_the_first_answer_may_go_as_far_as_the_model_is_long(model: float, far: float, verdict: FilterDecision) -> None:
    assert (
        UpdateFilter(RULES, dict.fromkeys(range(3), 1)).judge(0, far, lambda: model, sign_flipped=False)[0] is verdict
    )


# --- Without a server -------------------------------------------------------------------------------------------------


def checked(filter: UpdateFilter, client: int, norm: float) -> Verdict:
    """Assign a model of zeros, and check an update of this norm."""
    model = np.zeros(2, np.float32)
    filter.assigned(client, 0, 0.1, model)
    return filter.check(client, np.array([norm, 0], np.float32), 0, model)


@pytest.mark.parametrize(
    ("norm", "decision", "kept"),
    [
        (2.5, FilterDecision.ACCEPTED, 2.5),
        (9.0, FilterDecision.CLIPPED, RULES.clip),
        (11.0, FilterDecision.REJECTED, 11.0),
    ],
)
def test_a_verdict_has_the_update_that_the_algorithm_may_use(
    norm: float, decision: FilterDecision, kept: float
) -> None:
    filter = UpdateFilter(RULES, dict.fromkeys(range(5), 1))
    for k in range(5):
        checked(filter, k, 1.0)
    verdict = checked(filter, 0, norm)
    assert (verdict.decision, verdict.norm, verdict.limit) == (decision, norm, RULES.clip)
    assert verdict.weights[0] == pytest.approx(kept)


def test_a_quarantined_client_is_not_admitted_until_the_quarantine_ends() -> None:
    filter = UpdateFilter(RULES, dict.fromkeys(range(5), 7))
    decisions = []
    for _ in range(RULES.strikes + 1):  # the first cannot be compared yet
        assert filter.admits(0)
        decisions.append(checked(filter, 0, 1e9).decision)
        for k in range(1, 5):
            checked(filter, k, 1.0)
    assert decisions == [FilterDecision.REJECTED] * RULES.strikes + [FilterDecision.QUARANTINED]
    assert not filter.admits(0)
    assert filter.end_quarantine(0) == 7, "it joins with its data points"
    assert filter.admits(0)


# --- Honest clients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", FLAT_OR_SINGLE)
@pytest.mark.parametrize("clients", [1, 2, 3])
def test_honest_clients_are_not_quarantined_where_the_model_begins_near_zero(
    build: Any, algorithm: str, clients: int
) -> None:
    """The norm of the model says nothing then, and one client answers again and again before the others do."""
    region = Region(build, algorithm, clients=clients, goal=100.0)
    for _ in range(10):
        if any(k == 0 for k, _ in region.tasks):
            region.answer(0)
    region.go_on(200)
    assert region.of(ClientQuarantined) == []
    assert {fact.client for fact in region.of(UpdateApplied)[-30:]} == set(range(clients))


def test_where_others_will_answer_an_update_that_cannot_be_compared_yet_does_not_count(build: Any) -> None:
    region = Region(build, "fedasync", huge)
    for _ in range(10):
        region.answer(0)
    assert len(region.of(UpdateRejected)) == 10
    assert not region.server.update_filter.strikes


def test_a_clipped_update_is_no_offence(build: Any) -> None:
    """It counts for no more than one that is just below the limit, which is none either."""
    region = Region(build, "fedasync", far)
    region.go_on(100)
    assert region.of(UpdateClipped)
    assert not region.server.update_filter.strikes


def test_if_trainings_become_longer_a_fast_client_is_not_quarantined_before_slow_ones_can_show_it() -> None:
    bounds = UpdateFilter(FilterParameters(), {})
    for k in range(5):
        bounds.judge(k, 1.0, nothing, sign_flipped=False)
    verdicts = [bounds.judge(0, 20.0, nothing, sign_flipped=False)[0] for _ in range(20)]
    assert verdicts == [FilterDecision.REJECTED] * 20
    for k in range(1, 5):
        bounds.judge(k, 20.0, nothing, sign_flipped=False)
    assert bounds.judge(0, 20.0, nothing, sign_flipped=False)[0] is FilterDecision.ACCEPTED


def test_a_merge_while_clients_train_is_not_their_doing(build: Any) -> None:
    """The model is elsewhere when they answer, and they can know nothing of that."""
    region = Region(build, "spyker")
    region.go_on(400)
    for jump in range(20):
        region.server.weights.replace(region.server.weights.snapshot() + np.float32(100 * (-1) ** jump))
        region.go_on(3)
    assert {type(fact) for fact in region.facts} == {UpdateApplied, UpdateClipped}, "none is rejected"


def test_a_restart_from_an_older_checkpoint_is_not_held_against_clients(build: Any) -> None:
    """They answer tasks of which the restarted server knows nothing, trained from a model that it has lost."""
    region = Region(build, "spyker")
    region.go_on(100)
    for _ in range(20):
        state = region.server.state()
        region.server.weights.replace(region.server.weights.snapshot() + np.float32(100))
        region.go_on(CLIENTS)
        region.server = build("spyker", [[1] * CLIENTS], [0.0] * 16, rate=0.3, robust=RULES)[0]
        region.server.restore(state)
        region.go_on(CLIENTS)
    assert region.of(ClientQuarantined) == []
    assert not region.server.update_filter.strikes


def test_a_client_that_trains_the_same_model_again_is_not_judged_by_that(build: Any) -> None:
    """Its goal is opposite to the others', and while a buffer fills, its pull cannot be seen."""
    region = Region(build, "fedbuff", buffer=4)
    region.goals[0] *= -1
    for _ in range(200):
        for k in (0, 0, 0, *range(CLIENTS)):
            region.answer(k)
    assert region.of(ClientQuarantined) == []


# --- What it rests on -------------------------------------------------------------------------------------------------


def test_ranks_follow_numbers_that_change() -> None:
    random, ranks, numbers = np.random.default_rng(3), OrderStatistics(), {}
    for _ in range(500):
        key = int(random.integers(20))
        numbers[key] = float(random.integers(9))
        ranks.put(key, numbers[key])
        if random.random() < 0.2:
            ranks.drop(key)
            del numbers[key]
        wanted = sorted(numbers.values())
        assert ranks.median == (wanted[(len(wanted) - 1) // 2] if wanted else 0.0)


def test_nobody_is_unlike_the_others_where_they_are_unlike_each_other() -> None:
    alike, unlike = OutlierStatistic(8, 5, 0.1), OutlierStatistic(8, 5, 0.1)
    for _ in range(6):
        common = [alike.compare(k, -0.5) for k in range(9)] + [alike.compare(9, 0.5)]
        mixed = [unlike.compare(k, 0.5 if k % 3 else -0.5) for k in range(10)]
    assert common == [1] * 9 + [-1]
    assert set(mixed) == {0}


def test_a_lonely_direction_is_no_offence_where_the_pull_is_honest() -> None:
    """Nine clients want one thing and the tenth the opposite of it: it heads the other way, and means it."""
    goals, sign_flips, model = [1.0] * 9 + [-1.0], SignFlipDetector(), np.zeros(64, np.float32)
    for version in range(40):
        for k, goal in enumerate(goals):
            sign_flips.assigned(k, version, 0.2, model)
            answer = np.float32(0.2) * (np.float32(goal) - model)
            task = sign_flips.pop_task(k, version)
            assert task is not None
            assert not sign_flips.sign_flipped(k, task, answer, difference=True)
            model = model + np.float32(0.05) * answer


def test_a_task_of_another_version_is_not_the_one_that_is_answered() -> None:
    sign_flips = SignFlipDetector()
    sign_flips.assigned(0, 3, 0.1, np.zeros(64, np.float32))
    assert sign_flips.pop_task(0, 2) is None


@pytest.mark.parametrize("size", [10_000, LOOKED_AT + 12_345])
def test_angles_between_sketches_are_those_between_vectors(size: int) -> None:
    random, sketcher = np.random.default_rng(1), Sketcher(size)
    a, b = random.standard_normal((2, size), np.float32)
    for share in (-0.9, -0.3, 0.0, 0.5):
        c = np.float32(share) * a + np.float32((1 - share**2) ** 0.5) * b
        cosine = Direction(sketcher.sketch(a)).cosine(Direction(sketcher.sketch(c)))
        assert cosine == pytest.approx(share, abs=0.15)
        assert np.allclose(sketcher.sketch(a) - sketcher.sketch(c), sketcher.sketch(a - c), atol=0.05)
    assert np.linalg.norm(sketcher.sketch(a)) == pytest.approx(length(a), rel=0.1)


def test_where_nobody_is_judged_a_checkpoint_holds_nothing_about_it_and_one_that_does_is_read() -> None:
    judged, free = UpdateFilter(FilterParameters(), {7: 3}), UpdateFilter(None, {7: 3})
    vectors: dict[str, Any] = {}
    assert pack(free, "bounds", vectors) is None
    assert not vectors
    free.restore(None)
    assert free.sizes.clients == {}
    packed = pack(judged, "bounds", vectors)
    free.restore(Unpacker(vectors, {}, Sizes(2, 2)).unpack(packed))
    assert free.sizes.clients == {7: 3}


@pytest.mark.parametrize("difference", [False, True])
def test_an_update_is_clipped_towards_what_it_is_measured_from(difference: bool) -> None:
    """A difference is measured from zero, and a model from the server's model."""
    rules = UpdateFilter(RULES, dict.fromkeys(range(CLIENTS), 1))
    model = np.full(4, 5, np.float32)
    origin = np.zeros(4, np.float32) if difference else model
    for k in range(1, CLIENTS):
        verdict = rules.check(k, origin + np.array([0, 0, 1, 0], np.float32), 0, model, difference=difference)
        assert (verdict.decision, verdict.norm) == (FilterDecision.ACCEPTED, 1)
    verdict = rules.check(0, origin + np.array([9, 0, 0, 0], np.float32), 0, model, difference=difference)
    assert (verdict.decision, verdict.norm) == (FilterDecision.CLIPPED, 9)
    assert verdict.weights == pytest.approx(origin + np.array([RULES.clip, 0, 0, 0], np.float32))


def test_an_update_that_is_not_finite_is_longer_than_all_others() -> None:
    rules = UpdateFilter(RULES, dict.fromkeys(range(CLIENTS), 1))
    model = np.zeros(4, np.float32)
    for _ in range(3):
        for k in range(1, CLIENTS):
            rules.check(k, np.ones(4, np.float32), 0, model)
        verdict = rules.check(0, np.full(4, np.nan, np.float32), 0, model)
        assert verdict.decision in (FilterDecision.REJECTED, FilterDecision.QUARANTINED)
        assert verdict.norm == np.inf
