"""Masked sums and their helper, without messages between them."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from masked import HELPER, HOME, SIZE, Home, client, train

from spyker.privacy.fixed_point import encode
from spyker.privacy.mask_helper import Asked, HelpError, MaskHelper
from spyker.privacy.masking import EXTRAS, LEVELS
from spyker.privacy.seals import SealError, Statement, unpack
from spyker.sim.sim_seals import SimOpener, SimSealer, mask_of
from spyker.vectors import Vector, length

RANDOM = np.random.default_rng(3)


def vectors(count: int) -> list[Vector]:
    return [RANDOM.normal(0, 1, SIZE).astype(np.float32) for _ in range(count)]


def clipped(vector: Vector, bound: float) -> Vector:
    return vector * np.float32(min(1.0, bound / length(vector)))


# --- Sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [0.5, 2.0, 1e-6, 1e6])
def test_the_opened_sum_is_that_of_the_clipped_updates_up_to_rounding(bound: float) -> None:
    home = Home()
    terms, updates = home.terms(bound), vectors(5)
    for k, each in enumerate(updates):
        assert home.add(k, train(client(k), each * np.float32(min(bound, 1e3)), terms))
    assert home.open()
    total = home.sums.finish()
    exact = sum(clipped(each * np.float32(min(bound, 1e3)), bound) for each in updates)
    assert total.vector == pytest.approx(exact, abs=5 * 2.0**-terms.scale, rel=1e-5)
    assert (total.weight, total.clients) == (5.0, (0, 1, 2, 3, 4))


def test_updates_count_by_their_examples_and_their_multiples() -> None:
    home = Home()
    terms, updates, examples, times = home.terms(9.0, largest=8.0), vectors(4), [8, 5, 6, 7], [16, 8, 4, 16]
    for k in range(4):
        assert home.add(k, train(client(k, examples[k]), updates[k], terms), times[k])
    assert home.open()
    total = home.sums.finish()
    weights = [examples[k] * times[k] / LEVELS for k in range(4)]
    exact = sum(w * u for w, u in zip(weights, updates, strict=True))
    assert total.vector == pytest.approx(exact, abs=1e-3)
    assert total.weight == pytest.approx(sum(weights))
    norms = sum(w * length(u) for w, u in zip(weights, updates, strict=True))
    assert total.norms == pytest.approx(norms, rel=1e-3)


def test_updates_of_several_scales_are_opened_one_scale_after_the_other_and_added() -> None:
    home = Home()
    updates = vectors(6)
    for scale, chosen in ((10, range(3)), (15, range(3, 6))):
        terms = home.terms(9.0, scale=scale)
        for k in chosen:
            assert home.add(k, train(client(k), updates[k], terms))
    assert home.open()
    assert home.sums.finish().vector == pytest.approx(sum(updates), abs=0.02)


def test_buffers_are_clipped_by_themselves() -> None:
    home = Home(buffers=2)
    terms = home.terms(2.0)
    each = np.array([0.5, 0.5, 0.5, 30, 40], np.float32)
    for k in range(3):
        assert home.add(k, train(client(k, buffers=2), each, terms))
    assert home.open()
    total = home.sums.finish().vector
    assert total == pytest.approx([1.5, 1.5, 1.5, 3 * 1.2, 3 * 1.6], abs=1e-3)


def test_one_update_looks_like_noise_and_the_rest_of_a_sum_is_needed_to_read_it() -> None:
    home = Home()
    terms = home.terms()
    update = train(client(0), np.zeros(SIZE, np.float32), terms)
    assert len(set(update.masked.tolist())) == SIZE
    assert not np.array_equal(update.masked, encode(np.zeros(SIZE, np.float32), 1.0, terms.scale))


def test_an_update_that_is_not_finite_counts_as_a_long_one_that_moves_nothing() -> None:
    home = Home()
    terms = home.terms(2.0)
    good = np.full(SIZE, 0.1, np.float32)
    for k, each in enumerate([good, good, np.full(SIZE, np.nan, np.float32)]):
        assert home.add(k, train(client(k), each, terms))
    assert home.open()
    total = home.sums.finish()
    assert total.vector == pytest.approx(2 * good, abs=1e-5)
    assert total.norms == pytest.approx(2 * length(good) + 2.0, rel=1e-3)
    assert total.below == pytest.approx(2 / 3)


def test_the_share_of_short_updates_is_known_for_as_many_clients_as_a_request_can_have() -> None:
    home = Home()
    terms = home.terms(2.0, clients=1 << 16)
    update = train(client(0), np.full(SIZE, 0.01, np.float32), terms)
    count = 1 << 15
    for k in range(count):
        assert home.add(k, dataclasses.replace(update, seal=update.seal[:1]))
    ((number, _),) = home.batches()
    masks = mask_of(bytes(SimOpener(HELPER).open(update.seal.tobytes()).seed), SIZE + EXTRAS)
    masks = masks * np.uint32((count * LEVELS) & 0xFFFFFFFF)
    assert home.sums.subtract(number, masks[:SIZE], masks[SIZE:])
    assert home.sums.finish().below == 1.0


def test_the_bound_follows_the_median_norm() -> None:
    home = Home()
    for _ in range(60):
        terms = home.terms(8.0)._replace(median=home.sums.median)
        for k in range(4):
            norm = 1.0 + k
            home.add(k, train(client(k, life=home.sums.next), np.full(SIZE, norm / math.sqrt(SIZE), np.float32), terms))
        assert home.open()
        home.sums.observe(home.sums.finish())
    assert 1.5 < home.sums.median < 3.6


# --- What the home server does not add --------------------------------------------------------------------------------


def test_an_update_on_terms_that_no_client_was_told_is_not_added() -> None:
    home = Home()
    told = home.terms(2.0)
    honest = train(client(0), vectors(1)[0], told)
    for changed in ({"bound": 2.1}, {"bound": 1e29}, {"scale": told.scale - 1}, {"largest": 64.0}, {"helper": 2}):
        assert not home.add(0, dataclasses.replace(honest, **changed)), changed
    assert home.add(0, honest)


def test_updates_of_the_wrong_length_are_not_added() -> None:
    home = Home()
    honest = train(client(0), vectors(1)[0], home.terms())
    for changed in (
        {"extra": honest.extra[:1]},
        {"extra": np.zeros(EXTRAS + 1, np.uint32)},
        {"extra": honest.extra[:0]},
        {"masked": honest.masked[:1]},
    ):
        assert not home.add(0, dataclasses.replace(honest, **changed)), changed


def test_sums_have_room_for_all_clients_and_no_update_takes_that_of_others() -> None:
    home = Home()
    terms = home.terms(2.0, clients=100)
    updates = [train(client(k), vectors(1)[0], terms) for k in range(100)]
    assert all(home.add(k, each) for k, each in enumerate(updates))


def test_a_sum_beyond_the_range_is_not_begun() -> None:
    home = Home()
    terms = home.terms(2.0, clients=4)
    added = [home.add(k, train(client(k), vectors(1)[0], terms)) for k in range(1000)]
    assert added[:4] == [True] * 4
    assert not added[-1]
    assert home.open()


@pytest.mark.parametrize("times", [0, -1])
def test_an_update_without_weight_is_not_added(times: int) -> None:
    home = Home()
    assert not home.add(0, train(client(0), vectors(1)[0], home.terms()), times)


def test_too_few_clients_or_one_that_outweighs_the_others_are_not_even_asked_for() -> None:
    for examples in ([8, 8], [8, 3, 4]):
        home = Home()
        terms = home.terms(largest=8.0)
        for k, each in enumerate(examples):
            home.add(k, train(client(k, each), vectors(1)[0], terms))
        assert [number for number, _ in home.sums.close(3)] == [None]


# --- What the helper refuses ------------------------------------------------------------------------------------------


@pytest.fixture
def request_of_four() -> tuple[Home, Asked]:
    home = Home()
    terms = home.terms()
    for k, each in enumerate(vectors(4)):
        home.add(k, train(client(k), each, terms))
    return home, home.ask()[1]


def refuse(helper: MaskHelper, asked: Asked, home: int = HOME, places: tuple[int, ...] | None = None) -> str:
    """The reason; nothing was opened."""
    before, opener = helper.state(), helper._opener
    opened: list[bytes] = []
    spy = SimOpener(HELPER)
    spy.mask = lambda seed, count: opened.append(seed) or mask_of(seed, count)  # type: ignore[method-assign]
    helper._opener = spy
    with pytest.raises(HelpError) as refused:
        helper.masks(home, asked, SIZE + EXTRAS)
    helper._opener = opener
    assert helper.state() == before, "the marks are unchanged"
    assert not opened, "no mask was computed"
    if places is not None:
        assert refused.value.places == places
    return str(refused.value)


def part(asked: Asked, *places: int) -> Asked:
    """Some of the updates of a request."""
    return Asked(asked.scale, asked.largest, *([each[i] for i in places] for each in asked[2:6]))


def seal(statement: Statement) -> bytes:
    return SimSealer(7, statement.client).seal(statement, 1).seal.tobytes()


def stated(asked: Asked, place: int) -> Statement:
    return SimOpener(HELPER).open(asked.seals[place]).statement


def resealed(asked: Asked, place: int, **changed: object) -> Asked:
    """The request with another statement of one client."""
    seals = list(asked.seals)
    seals[place] = seal(dataclasses.replace(stated(asked, place), **changed))  # type: ignore[arg-type]
    return asked._replace(seals=seals)


def test_fewer_clients_than_the_threshold_are_refused(request_of_four) -> None:
    home, asked = request_of_four
    assert "at least 3" in refuse(home.helper, part(asked, 0, 1))
    assert "at least 3" in refuse(home.helper, part(asked))
    home.helper.masks(HOME, part(asked, 0, 1, 2), SIZE + EXTRAS)


def test_several_updates_of_one_client_are_one_client(request_of_four) -> None:
    home, asked = request_of_four
    again = seal(dataclasses.replace(stated(asked, 1), training=9))
    two = part(asked, 0, 1, 1)._replace(seals=[*asked.seals[:2], again])
    assert "2 clients" in refuse(home.helper, two)


def test_a_seal_that_was_opened_is_refused_even_in_another_set(request_of_four) -> None:
    home, asked = request_of_four
    home.helper.masks(HOME, part(asked, 0, 1, 2), SIZE + EXTRAS)
    refuse(home.helper, part(asked, 0, 1, 2), places=(0, 1, 2))
    assert "opened before" in refuse(home.helper, part(asked, 1, 2, 3), places=(0, 1))


def test_a_seal_that_was_opened_is_refused_after_a_restart(request_of_four) -> None:
    home, asked = request_of_four
    home.helper.masks(HOME, asked, SIZE + EXTRAS)
    restarted = MaskHelper(HELPER, 3, SimOpener(HELPER))
    restarted.restore(home.helper.state())
    assert "opened before" in refuse(restarted, asked)


def test_the_same_seal_twice_in_a_request_is_refused(request_of_four) -> None:
    home, asked = request_of_four
    assert "opened before" in refuse(home.helper, part(asked, 0, 1, 2, 0), places=(3,))


def test_a_second_seal_with_the_same_number_is_refused(request_of_four) -> None:
    home, asked = request_of_four
    home.helper.masks(HOME, asked, SIZE + EXTRAS)
    later = [seal(dataclasses.replace(stated(asked, i), training=2 if i else 1, weight=1.0)) for i in range(4)]
    assert "client 0" in refuse(home.helper, asked._replace(seals=later), places=(0,))


@pytest.mark.parametrize(("life", "training"), [(0, 5), (0, 9), (1, 1)])
def test_a_lower_number_is_refused_and_a_higher_one_is_not(request_of_four, life: int, training: int) -> None:
    home, asked = request_of_four
    first = [seal(dataclasses.replace(stated(asked, i), life=1, training=5)) for i in range(4)]
    home.helper.masks(HOME, asked._replace(seals=first), SIZE + EXTRAS)
    later = [seal(dataclasses.replace(stated(asked, i), life=1, training=6)) for i in range(4)]
    lower = [*later[:3], seal(dataclasses.replace(stated(asked, 3), life=life, training=training))]
    refuse(home.helper, asked._replace(seals=lower), places=(3,))
    home.helper.masks(HOME, asked._replace(seals=later), SIZE + EXTRAS)


def test_each_home_server_has_its_own_numbers(request_of_four) -> None:
    home, asked = request_of_four
    home.helper.masks(HOME, asked, SIZE + EXTRAS)
    elsewhere = asked._replace(seals=[seal(dataclasses.replace(stated(asked, i), home=2)) for i in range(4)])
    home.helper.masks(2, elsewhere, SIZE + EXTRAS)


def test_seals_for_another_home_are_refused(request_of_four) -> None:
    home, asked = request_of_four
    assert "home 0" in refuse(home.helper, asked, home=2, places=(0, 1, 2, 3))


def test_seals_for_another_helper_are_refused(request_of_four) -> None:
    home, asked = request_of_four
    assert "another server" in refuse(home.helper, resealed(asked, 2, helper=3), places=(2,))


def test_a_server_does_not_help_itself(request_of_four) -> None:
    _, asked = request_of_four
    itself = MaskHelper(HOME, 3, SimOpener(HOME))
    seals = [seal(dataclasses.replace(stated(asked, i), helper=HOME)) for i in range(4)]
    refuse(itself, asked._replace(seals=seals))
    with pytest.raises(SealError, match="home and helper"):
        unpack(dataclasses.replace(stated(asked, 0), helper=HOME).pack())


def test_a_client_does_not_seal_for_its_own_server() -> None:
    home = Home()
    with pytest.raises(SealError, match="itself"):
        train(client(0), vectors(1)[0], home.terms(helper=HOME))


@pytest.mark.parametrize("place", [0, 20, 60, 90, 130, -1])
def test_a_tampered_seal_is_refused(request_of_four, place: int) -> None:
    home, asked = request_of_four
    spoilt = bytearray(asked.seals[1])
    spoilt[place] ^= 1
    refuse(home.helper, asked._replace(seals=[asked.seals[0], bytes(spoilt), *asked.seals[2:]]), places=(1,))


@pytest.mark.parametrize("count", [0, 1, 639, 641])
def test_seals_of_the_wrong_length_are_refused(request_of_four, count: int) -> None:
    home, asked = request_of_four
    odd = (asked.seals[3] + b"\0")[:count]
    refuse(home.helper, asked._replace(seals=[*asked.seals[:3], odd]), places=(3,))


def test_all_bad_seals_are_named_at_once(request_of_four) -> None:
    home, asked = request_of_four
    refuse(home.helper, asked._replace(seals=[asked.seals[0], b"", asked.seals[2], b"x"]), places=(1, 3))


@pytest.mark.parametrize("lever", ["multiple", "weight", "bound"])
def test_a_client_that_outweighs_all_others_is_refused(request_of_four, lever: str) -> None:
    home, asked = request_of_four
    if lever == "multiple":
        heavy = part(asked, 0, 1, 2)._replace(times=[16, 7, 8])
        light = part(asked, 0, 1, 2)._replace(times=[16, 8, 8])
    else:
        small = {lever: stated(asked, 0).bound * 7 / 16 if lever == "bound" else 7 / 16}
        half = {lever: stated(asked, 0).bound / 2 if lever == "bound" else 1 / 2}
        heavy, light = part(asked, 0, 1, 2), part(asked, 0, 1, 2)
        heavy = resealed(resealed(heavy, 1, **small), 2, **half)
        light = resealed(resealed(light, 1, **half), 2, **half)
        name = lever + "s"
        first = getattr(asked, name)[0]
        heavy = heavy._replace(**{name: [first, small[lever], half[lever]]})
        light = light._replace(**{name: [first, half[lever], half[lever]]})
    assert "outweighs" in refuse(home.helper, heavy, places=())
    home.helper.masks(HOME, light, SIZE + EXTRAS)


@pytest.mark.parametrize("changed", [{"largest": 2.0}, {"scale": -64}, {"bound": 1e-6}, {"weight": 0.5}])
def test_clients_that_have_stated_other_terms_are_refused(request_of_four, changed: dict[str, float]) -> None:
    home, asked = request_of_four
    assert "stated another" in refuse(home.helper, resealed(asked, 2, **changed), places=(2,))


@pytest.mark.parametrize("times", [0, LEVELS + 1, -1, 1 << 20])
def test_multiples_are_from_1_to_16(request_of_four, times: int) -> None:
    home, asked = request_of_four
    assert "multiple" in refuse(home.helper, asked._replace(times=[16, times, 16, 16]))


@pytest.mark.parametrize("name", ["times", "weights", "bounds", "seals"])
def test_requests_whose_parts_differ_in_length_are_refused(request_of_four, name: str) -> None:
    home, asked = request_of_four
    assert "incomplete" in refuse(home.helper, asked._replace(**{name: getattr(asked, name)[:3]}))


# --- Sums that are discarded ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoil",
    [
        lambda update: np.copyto(update.masked, RANDOM.integers(0, 1 << 32, SIZE, np.uint32)),
        lambda update: np.add(update.extra, np.array([1 << 29, 0], np.uint32), out=update.extra),
        lambda update: np.subtract(update.extra, np.array([1 << 29, 0], np.uint32), out=update.extra),
        lambda update: np.add(update.extra, np.array([0, 1 << 20], np.uint32), out=update.extra),
    ],
    ids=["vector", "long", "negative", "count"],
)
def test_a_sum_that_honest_clients_cannot_cause_is_discarded(spoil: Callable) -> None:
    home = Home()
    terms = home.terms()
    for k, each in enumerate(vectors(4)):
        update = train(client(k), each, terms)
        if k == 2:
            spoil(update)
        home.add(k, update, 1)
    assert not home.open()
    assert home.sums.finish().vector is None


def test_wrong_masks_are_noticed() -> None:
    home = Home()
    terms = home.terms()
    for k, each in enumerate(vectors(4)):
        home.add(k, train(client(k), each, terms))
    number, _ = home.ask()
    masks = RANDOM.integers(0, 1 << 32, SIZE + EXTRAS, np.uint32)
    assert not home.sums.subtract(number, masks[:SIZE], masks[SIZE:])


def test_updates_at_the_bound_are_not_discarded() -> None:
    for buffers in (0, 2):
        home = Home(buffers=buffers)
        terms = home.terms(1e-4)
        for k in range(8):
            home.add(k, train(client(k, buffers=buffers), np.full(SIZE, 1.0, np.float32), terms))
        assert home.open()


# --- Order and checkpoints --------------------------------------------------------------------------------------------


def test_a_clients_updates_are_asked_for_in_the_order_of_its_trainings() -> None:
    home = Home()
    old, clients = home.terms(9.0, scale=12), [client(k) for k in range(5)]
    early = [train(each, vectors(1)[0], old) for each in clients]
    new = home.terms(9.0, scale=15)
    for k in (3, 4):
        home.add(k, train(clients[k], vectors(1)[0], new))
    for k in range(5):
        home.add(k, early[k])  # late, after the first one of the new scale
    home.add(0, train(clients[0], vectors(1)[0], new))
    assert home.open(), "client 0 has one in each"
    assert len(home.sums.finish().clients) == 8


def test_sums_continue_after_a_restart() -> None:
    home, updates = Home(), vectors(7)
    terms = home.terms()
    for k in range(4):
        home.add(k, train(client(k), updates[k], terms))
    number, asked = home.ask()
    home.add(4, train(client(4), updates[4], terms))
    again = Home()
    again.sums.restore(home.sums.state())
    masks = home.helper.masks(HOME, asked, SIZE + EXTRAS)
    assert again.sums.opening
    assert again.sums.subtract(number, masks[:SIZE], masks[SIZE:])
    assert again.sums.finish().vector == pytest.approx(sum(clipped(u, 2.0) for u in updates[:4]), abs=1e-4)
    for k in (5, 6):
        assert again.add(k, train(client(k), updates[k], terms))
    again.helper = home.helper
    assert again.open()
    assert again.sums.finish().clients == (4, 5, 6)
