"""Scores that ride along with masked updates: only their sum over enough clients is known."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from masked import HELPER, HOME, SIZE
from masked_region import CASES, Region

from spyker.privacy.fixed_point import Residues, accumulate
from spyker.privacy.mask_helper import Asked, MaskHelper
from spyker.privacy.masked_scores import LARGEST, MOST_ADDED, WORDS, decode_scores, encode_scores
from spyker.privacy.masking import EXTRAS, LEVELS, MaskedSums, Terms
from spyker.privacy.seals import SealError, Statement, unpack
from spyker.protocol.facts import ClientEvaluated, SumEvaluated
from spyker.protocol.masked_client import MaskingClient
from spyker.protocol.masked_server import asked, open_request
from spyker.protocol.messages import MaskedModel, MaskedUpdate
from spyker.sim.sim_seals import SimOpener, SimSealer

NAMES = ("accuracy", "loss")
LIMITS = [(0.0, 1.0), (0.0, 1e15)]
SCORES = st.floats(-LARGEST, LARGEST)


@given(st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=20), st.integers(1, LEVELS))
def test_sums_of_scores_are_exact_up_to_rounding(values: list[tuple[float, float]], times: int) -> None:
    total = np.zeros(2 * WORDS, np.uint32)
    for each in values:
        accumulate(total, encode_scores(each), times)
    sums = [times * sum(column) for column in zip(*values, strict=True)]
    assert decode_scores(total) == pytest.approx(sums, abs=len(values) * times * 2.0**-24, rel=1e-12)


@pytest.mark.parametrize("value", [LARGEST, -LARGEST])
def test_as_many_scores_can_be_added_as_a_request_can_have(value: float) -> None:
    total = np.zeros(WORDS, np.uint32)
    accumulate(total, encode_scores([value]), MOST_ADDED)
    assert decode_scores(total) == [value * MOST_ADDED]


# --- Home and helper --------------------------------------------------------------------------------------------------


class Home:
    """A home server's sums with two scores, and a helper."""

    def __init__(self) -> None:
        self.sums = MaskedSums(SIZE, 0, 1.0, LIMITS)
        self.helper = MaskHelper(HELPER, 3, SimOpener(HELPER))
        self.terms = Terms(HELPER, self.sums.scale_of(2.0, 8), 2.0, 1.0, 10.0, 2)
        self.sums.issue(self.terms)

    def add(self, k: int, evaluation: dict[str, float] | None, size: int = 10, times: int = LEVELS) -> MaskedUpdate:
        update = sent(k, evaluation, self.terms, size)
        arrays = update.masked, update.extra, update.seal
        assert self.sums.add(k, *arrays, self.terms, update.weight, times, update.evaluated, update.scores)
        return update

    def masks(self) -> tuple[int, Residues]:
        ((number, batch),) = list(self.sums.close(3))
        assert number is not None
        request = asked(open_request(number, batch, len(LIMITS) * WORDS))
        return number, self.helper.masks(HOME, request, SIZE + EXTRAS + len(LIMITS) * WORDS)

    def open(self) -> Any:
        number, masks = self.masks()
        assert self.sums.subtract(number, masks[:SIZE], masks[SIZE:])
        return self.sums.finish()


def sent(k: int, evaluation: dict[str, float] | None, terms: Terms, size: int = 10) -> MaskedUpdate:
    client = MaskingClient(k, HOME, SimSealer(7, k), size, 0, metrics=NAMES)
    client.handle(HOME, MaskedModel(np.zeros(SIZE, np.float32), 0.0, 0, 0.1, *terms))
    (action,) = client.trained(np.full(SIZE, 0.1, np.float32), evaluation=evaluation)
    assert isinstance(action.message, MaskedUpdate)
    return action.message


def score(accuracy: float, loss: float = 1.0, examples: float = 4) -> dict[str, float]:
    return {"examples": examples, "accuracy": accuracy, "loss": loss}


def test_the_home_server_learns_the_means_weighted_by_test_examples() -> None:
    home, scores = Home(), [score(0.5, 3.0, 2), score(1.0, 7.5, 4), score(0.25, 1e5, 5)]
    for k, each in enumerate(scores):
        home.add(k, each)
    total = home.open()
    assert (total.evaluators, total.evaluated) == (3, pytest.approx(11))
    for place, name in enumerate(NAMES):
        exact = sum(each["examples"] * each[name] for each in scores) / 11
        assert total.scores[place] / total.evaluated == pytest.approx(exact, rel=1e-6)


def test_updates_that_count_less_have_scores_that_count_less() -> None:
    home = Home()
    for k, times in enumerate((LEVELS, LEVELS // 2, LEVELS // 2)):
        home.add(k, score(float(k == 0)), times=times)
    total = home.open()
    assert total.scores[0] / total.evaluated == pytest.approx(0.5)


def test_an_evaluation_weighs_at_most_as_much_as_the_largest_client() -> None:
    assert sent(0, score(1.0, examples=1e6), Home().terms).evaluated == 1.0


def test_masked_scores_look_like_noise() -> None:
    words = sent(0, score(0.0, 0.0), Home().terms).extra[EXTRAS:]
    assert len(set(words.tolist())) == len(words)
    assert (words > 1 << 16).sum() > len(words) // 2


@pytest.mark.parametrize("evaluators", [0, 1, 2])
def test_scores_of_fewer_clients_than_a_sum_needs_are_not_opened(evaluators: int) -> None:
    home = Home()
    for k in range(4):
        home.add(k, score(1.0) if k < evaluators else None)
    _, masks = home.masks()
    assert len(masks) == SIZE + EXTRAS


def test_without_scores_the_updates_are_opened_all_the_same() -> None:
    home = Home()
    for k in range(4):
        home.add(k, score(1.0) if k < 2 else None)
    total = home.open()
    assert total.vector == pytest.approx(10 * 0.4, abs=1e-3)
    assert (total.evaluators, dict(total.scores)) == (0, {})


def test_scores_of_which_one_clients_weigh_most_are_not_opened() -> None:
    home = Home()
    for k, examples in enumerate((10, 2, 2, 2)):
        home.add(k, score(1.0, examples=examples))
    assert len(home.masks()[1]) == SIZE + EXTRAS


def test_a_home_server_that_hides_scores_in_its_request_learns_none() -> None:
    home = Home()
    for k in range(4):
        home.add(k, score(1.0) if k < 1 else None)
    ((number, batch),) = list(home.sums.close(3))
    assert number is not None
    request = asked(open_request(number, batch, 0))
    assert isinstance(request, Asked)
    assert len(home.helper.masks(HOME, request, SIZE + EXTRAS + request.words)) == SIZE + EXTRAS


def test_scores_that_are_not_possible_are_dropped_and_count_against_the_clients() -> None:
    home = Home()
    for k in range(4):
        home.add(k, score(1e6 if k == 2 else 0.5))
    total = home.open()
    assert total.vector is not None
    assert not total.scores
    assert home.sums.search.outcomes == [((0, 1, 2, 3), True)]


def test_a_metric_that_one_client_lacks_is_left_out() -> None:
    home = Home()
    for k in range(4):
        evaluation = score(0.5)
        if k == 1:
            evaluation["loss"] = float("nan")
        home.add(k, evaluation)
    assert home.open().scores.keys() == {0}


@pytest.mark.parametrize("evaluated", [-0.1, 1.1, float("nan")])
def test_statements_with_impossible_weights_of_scores_are_refused(evaluated: float) -> None:
    said = Statement(1, 0, 2, 0, 0, 1.0, 4.0, 10, 2.0)
    assert unpack(said.pack()).evaluated == 0.0
    with pytest.raises(SealError, match="scores"):
        unpack(replace(said, evaluated=evaluated).pack())


# --- Algorithms -------------------------------------------------------------------------------------------------------


class Scored(Region):
    """A region whose clients evaluate what they receive: client k has the accuracy k/10."""

    metrics: ClassVar = {"accuracy": (0.0, 1.0)}

    def answer(self, k: int) -> Any:
        model = self.tasks.pop(k)
        self.clients[k].handle(self.homes[k], model)
        given = np.asarray(model.weights) + np.float32(0.5)
        (action,) = self.clients[k].trained(given, evaluation={"examples": 4, "accuracy": k / 10})
        return action.message


@pytest.mark.parametrize("algorithm", CASES)
def test_a_fact_says_the_mean_score_of_each_round_and_none_says_a_clients(algorithm: str) -> None:
    examples, parameters = CASES[algorithm]
    region = Scored(algorithm, examples, **parameters)
    region.rounds(2)
    facts = [f for f in region.facts(SumEvaluated) if f.server == 0]
    assert len(facts) == 2
    for fact in facts:
        assert fact.clients == 4
        assert fact.scores == {"accuracy": pytest.approx(0.15, abs=0.03)}
    assert not region.facts(ClientEvaluated)
