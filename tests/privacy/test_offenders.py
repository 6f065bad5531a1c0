"""Who spoils sums is found out from which groups are spoilt."""

import json
import random
from collections.abc import Collection

import numpy as np
import pytest
from masked import SIZE, Home, client, train

from benchmarks.offender_search import THRESHOLD, always, play, sometimes
from spyker.privacy.masking import MaskedSums
from spyker.privacy.offenders import MOST_GROUPS, QUIET, SPARE, OffenderSearch


@pytest.mark.parametrize("clients", [4, 5, 6, 8, 12, 40])
def test_one_offender_is_found_and_nobody_else_is_excluded(clients: int) -> None:
    """With four or five clients there is one group, and some are left out in turn."""
    for seed in range(20):
        played = play(clients, always(1), 60, seed)
        assert played.found.keys() == {1}
        assert played.found[1] <= 16
        assert not played.innocent


@pytest.mark.parametrize("offenders", [(0, 1), (0, 5, 9)])
def test_offenders_that_collude_are_found(offenders: tuple[int, ...]) -> None:
    for seed in range(20):
        played = play(12, always(*offenders), 60, seed)
        assert played.found.keys() == set(offenders)
        assert max(played.found.values()) <= 16
        assert played.innocent <= 1
        assert played.lost < 0.3


def test_offenders_that_spoil_half_of_their_sums_are_found() -> None:
    runs = [play(25, sometimes(0.5, 3, 4, 5), 100, seed, absent=0.1) for seed in range(20)]
    assert all(played.found.keys() == {3, 4, 5} for played in runs)
    assert sum(played.innocent for played in runs) <= 10
    assert max(played.lost for played in runs) < 0.25


def test_clients_that_come_and_go_do_not_stop_the_search() -> None:
    for seed in range(20):
        played = play(12, always(2), 80, seed, absent=0.3)
        assert played.found.keys() == {2}
        assert played.innocent <= 1


def test_an_offender_that_comes_back_is_found_sooner() -> None:
    search = OffenderSearch()
    drawn, first = random.Random(1), 0
    for turn in range(40):
        groups: dict[int, list[int]] = {}
        for k in range(9):
            groups.setdefault(search.group(k), []).append(k)
        for members in groups.values():
            search.note(members, drawn.randbytes(8), spoilt=4 in members)
        found = search.judge(range(9), THRESHOLD)
        search.regroup(range(9), THRESHOLD)
        if found:
            assert found == [4]
            assert not first or turn - first <= 2
            first = turn
    assert first


def test_of_clients_that_were_always_together_nobody_is_accused() -> None:
    search = OffenderSearch()
    for turn in range(300):
        search.note((1, 2, 3), bytes([turn % 256]), spoilt=True)
        assert search.judge((1, 2, 3, 4), THRESHOLD) == []
    assert 0.9 < search.suspicion[1] == search.suspicion[2] == search.suspicion[3]


def test_as_many_clients_are_left_as_a_sum_needs() -> None:
    search = OffenderSearch()
    search.suspicion = {1: 0.99}
    search.note((1, 2, 3), b"", spoilt=True)
    assert search.judge((1, 2, 3), THRESHOLD) == []
    search.note((1, 2, 3), b"", spoilt=True)
    assert search.judge((1, 2, 3, 4), THRESHOLD) == [1]


def test_the_order_in_which_helpers_answer_makes_no_difference() -> None:
    found = []
    for sums in ([(range(3), True), (range(2, 6), False)], [(range(2, 6), False), (range(3), True)]):
        search = suspicious()
        for members, spoilt in sums:
            search.note(members, b"", spoilt=spoilt)
        search.judge(range(10), THRESHOLD)
        found.append(search.suspicion)
    assert found[0] == found[1]


# --- Groups -----------------------------------------------------------------------------------------------------------


def suspicious() -> OffenderSearch:
    search = OffenderSearch()
    search.note(range(10), b"masks", spoilt=True)
    search.judge(range(10), THRESHOLD)
    return search


@pytest.mark.parametrize("clients", [6, 7, 8, 9, 40, 500])
def test_groups_are_disjoint_and_as_large_as_a_sum_needs(clients: int) -> None:
    search = suspicious()
    search.regroup(range(clients), THRESHOLD)
    sizes = [sum(search.group(k) == g for k in range(clients)) for g in range(search.count)]
    assert sum(sizes) == clients
    assert min(sizes) >= THRESHOLD
    assert len(sizes) == min(MOST_GROUPS, clients // THRESHOLD)


@pytest.mark.parametrize(("clients", "left_out"), [(5, 2), (4, 1), (3, 0), (2, 0)])
def test_with_too_few_clients_for_two_groups_some_are_left_out(clients: int, left_out: int) -> None:
    search = suspicious()
    search.regroup(range(clients), THRESHOLD)
    assert sum(search.group(k) == SPARE for k in range(clients)) == left_out


def test_there_is_one_group_until_a_sum_is_spoilt_and_when_none_has_been_for_a_while() -> None:
    search = OffenderSearch()
    search.note(range(10), b"", spoilt=False)
    search.judge(range(10), THRESHOLD)
    search.regroup(range(10), THRESHOLD)
    assert not search.searching
    search = suspicious()
    search.suspicion[3] = 0.9999999
    for _ in range(QUIET):
        search.regroup(range(10), THRESHOLD)
        assert search.searching
        search.note(range(10), b"", spoilt=False)
        search.judge(range(10), THRESHOLD)
    search.regroup(range(10), THRESHOLD)
    assert not search.searching
    assert {search.group(k) for k in range(12)} == {0}


def test_groups_change_from_round_to_round_and_follow_from_masks() -> None:
    def groups(*masks: bytes) -> list[int]:
        search = suspicious()
        for each in masks:
            search.note(range(10), each, spoilt=True)
        search.judge(range(10), THRESHOLD)
        search.regroup(range(10), THRESHOLD)
        return [search.group(k) for k in range(10)]

    assert groups(b"1") == groups(b"1")
    assert groups(b"1") != groups(b"2")
    assert groups(b"1") != groups(b"1", b"1")


def test_a_client_that_has_just_come_is_in_some_group() -> None:
    search = suspicious()
    search.regroup(range(9), THRESHOLD)
    assert search.group(77) in range(search.count)


def test_a_search_continues_after_a_restart() -> None:
    search, again = suspicious(), OffenderSearch()
    search.regroup(range(9), THRESHOLD)
    search.note((1, 2, 3), b"5", spoilt=True)
    again.restore(search.state())
    for each in (search, again):
        each.judge(range(9), THRESHOLD)
        each.regroup(range(9), THRESHOLD)
    assert json.dumps(again.state()) == json.dumps(search.state())


# --- Batches ----------------------------------------------------------------------------------------------------------


def grouped(groups: dict[int, int]) -> Home:
    """A home server whose clients are in these groups, and have sent an update each."""
    home = Home()
    home.sums.search.groups, home.sums.search.count = dict(groups), 1 + max(groups.values())
    add(home, groups)
    return home


def add(home: Home, clients: Collection[int]) -> None:
    terms = home.terms()
    for k in clients:
        assert home.add(k, train(client(k, life=home.sums.next), np.full(SIZE, 0.1, np.float32), terms))


def sets(home: Home) -> list[list[int]]:
    return sorted(sorted(batch.clients) for _, batch in home.batches())


def test_each_group_has_a_sum_of_its_own() -> None:
    home = grouped({k: k % 2 for k in range(6)})
    assert home.open()
    assert len(home.sums.opened) == 2
    total = home.sums.finish()
    assert sorted(total.clients) == list(range(6))
    assert total.vector == pytest.approx(0.6, abs=1e-4)


def test_a_group_with_too_few_updates_is_added_to_another_one() -> None:
    assert sets(grouped({0: 0, 1: 0, 2: 1, 3: 1, 4: 1, 5: 2, 6: 2, 7: 2, 8: 2})) == [[0, 1, 2, 3, 4], [5, 6, 7, 8]]
    assert sets(grouped({0: 0, 1: 0, 2: 1, 3: 1})) == [[0, 1, 2, 3]]
    assert sets(grouped({0: 0, 1: 1})) == []


def test_clients_that_are_left_out_count_only_if_the_others_are_too_few() -> None:
    assert sets(grouped({0: 0, 1: 0, 2: 0, 3: SPARE, 4: SPARE})) == [[0, 1, 2]]
    assert sets(grouped({0: 0, 1: 0, 3: SPARE, 4: SPARE})) == [[0, 1, 3, 4]]


def test_a_merged_batch_is_opened_to_the_sum_of_all_its_updates() -> None:
    home = grouped({0: 0, 1: 0, 2: 1, 3: 1})
    assert home.open()
    assert home.sums.finish().vector == pytest.approx(0.4, abs=1e-4)


def test_updates_of_a_client_that_changes_its_group_stay_in_one_sum() -> None:
    """The helper opens a client's updates in order only."""
    home = grouped({k: k % 2 for k in range(6)})
    home.sums.search.groups = {k: (k + 1) % 2 for k in range(6)}
    add(home, range(6))
    assert sets(home) == [[0, 0, 2, 2, 4, 4], [1, 1, 3, 3, 5, 5]]


def test_groups_and_outcomes_are_in_a_checkpoint() -> None:
    home, again = grouped({k: k % 2 for k in range(6)}), MaskedSums(SIZE, 0, 1.0)
    again.restore(home.sums.state())
    assert sorted(batch.group for batch in again.batches.values()) == [0, 1]
