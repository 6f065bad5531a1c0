"""Sync-Spyker as a state machine: servers stop for each other, and all end with the same model."""

from collections import defaultdict, deque

import numpy as np
import pytest
from actions import sent, stated, update, vector
from hypothesis import given, settings
from hypothesis import strategies as st

from spyker.protocol.facts import Merged, SyncStarted, UpdateApplied
from spyker.protocol.messages import Join, Leave, PeerModel, RecordFact, Requeue, ToClient, ToServer, Update
from spyker.protocol.server import Work


def served_again(actions):
    return [a.messages for a in actions if isinstance(a, Requeue)]


@pytest.fixture
def two(build):
    def make(h_intra=3.0, **parameters):
        return build("sync-spyker", [[1, 1], [1, 1]], h_intra=h_intra, **parameters)

    return make


@pytest.fixture
def three(build):
    def make(h_intra=3.0, **parameters):
        return build("sync-spyker", [[1], [1], [1]], h_intra=h_intra, **parameters)

    return make


# --- Between synchronisations -----------------------------------------------------------------------------------------


def test_a_client_update_is_applied_and_answered_as_in_spyker(two):
    # τ = 0: 0.6 · 10 = 6; u = (1, 0), ū = 1/2: 0.05 − 0.005/2 = 0.0475
    first, _ = two()
    actions = first.handle(0, update(10))
    ((client, model),) = [(a.client, a.message) for a in actions if isinstance(a, ToClient)]
    assert (client, model.age, model.version, model.rate) == (0, 1.0, 1, pytest.approx(0.0475))
    assert model.weights.tolist() == pytest.approx([6.0])


def test_nothing_happens_before_h_intra_updates(two, grow):
    first, _ = two(h_intra=3.0)
    assert sent(grow(first, 0, 2)) == []


def test_the_h_intra_th_update_sends_the_model_to_all_other_servers(three, grow):
    _, second, _ = three(h_intra=3.0)
    grow(second, 1, 2)
    actions = second.handle(1, Update(vector(10), 2.0, 2))
    assert [(j, m.weights.tolist(), m.age, m.bid) for j, m in sent(actions)] == [
        (0, pytest.approx([6.0]), 3.0, 1),
        (2, pytest.approx([6.0]), 3.0, 1),
    ]


def test_the_update_that_begins_a_synchronisation_is_itself_applied_and_answered(two, grow):
    first, _ = two(h_intra=1.0)
    actions = first.handle(0, update(10))
    assert len(stated(actions, UpdateApplied)) == 1
    assert [type(a) for a in actions if isinstance(a, ToClient | ToServer)] == [ToClient, ToServer]


def test_any_server_may_begin_there_is_no_token(three, grow):
    for id, server in enumerate(three(h_intra=2.0)):
        assert stated(grow(server, id, 2), SyncStarted) == [SyncStarted(id, 1)]


def test_updates_count_and_not_ages(two, grow):
    # a merge may raise the age by far more than h_intra: that is no reason to stop
    first, _ = two(h_intra=3.0)
    first.age = 1000.0
    assert sent(grow(first, 0, 2)) == []


def test_h_inter_is_ignored(two, grow):
    first, second = two(h_inter=0.001, h_intra=100.0)
    assert sent(grow(first, 0, 50) + grow(second, 2, 1)) == []


def test_a_single_server_never_synchronises(build, grow):
    (server,) = build("sync-spyker", [[1]], h_intra=1.0)
    actions = grow(server, 0, 10)
    assert [type(a) for a in actions if not isinstance(a, RecordFact)] == [ToClient] * 10
    assert {type(a.fact) for a in actions if isinstance(a, RecordFact)} == {UpdateApplied}


# --- While it waits ---------------------------------------------------------------------------------------------------


def test_a_server_that_waits_stores_updates_unprocessed(two, grow):
    first, _ = two()
    grow(first, 0, 3)
    assert first.handle(1, update(1000)) == []
    assert first.weights.snapshot().tolist() == [0.0]
    assert (first.age, first.version) == (3.0, 3)


def test_a_server_that_hears_of_a_synchronisation_begins_at_once(three, grow):
    _, second, _ = three(initial=(5,))
    grow(second, 1, 1)
    actions = second.handle(0, PeerModel(vector(9), 3.0, 1))
    assert [(j, m.weights.tolist(), m.age, m.bid) for j, m in sent(actions)] == [(0, [5.0], 1.0, 1), (2, [5.0], 1.0, 1)]
    assert second.handle(1, update(1000)) == []


def test_only_the_server_that_counted_to_h_intra_states_the_start(two):
    _, second = two()
    assert stated(second.handle(0, PeerModel(vector(9), 3.0, 1)), SyncStarted) == []


def test_a_server_that_waits_begins_nothing_twice(three, grow):
    # the second model of the same synchronisation is no news
    _, second, _ = three()
    grow(second, 1, 3)
    assert sent(second.handle(0, PeerModel(vector(1), 3.0, 1))) == []


def test_nothing_is_merged_before_the_last_model_is_there(three, grow):
    first, _, _ = three()
    grow(first, 0, 3)
    actions = first.handle(2, PeerModel(vector(9), 3.0, 1))
    assert actions == []
    assert first.weights.snapshot().tolist() == [0.0]


def test_the_last_model_folds_in_the_order_of_ids_whatever_the_order_of_arrival(build):
    results = []
    for order in ((1, 2, 3), (3, 2, 1), (2, 3, 1)):
        first = build("sync-spyker", [[1]] * 4)[0]
        for peer in order:
            actions = first.handle(peer, PeerModel(vector(peer), float(peer), 1))
        facts = stated(actions, Merged)
        assert [(f.peer, f.bid) for f in facts] == [(1, 1), (2, 1), (3, 1)]
        results.append((first.weights.snapshot().tobytes(), first.age))
    assert len(set(results)) == 1


def test_a_newcomer_is_taken_in_while_the_servers_synchronise(two, grow):
    # it has no update to store, so it need not wait for its first model
    first, _ = two()
    grow(first, 0, 3)
    assert [a.client for a in first.handle(9, Join(1)) if isinstance(a, ToClient)] == [9]


# --- Afterwards -------------------------------------------------------------------------------------------------------


def test_stored_updates_are_served_again_in_the_order_of_their_arrival(two, grow):
    first, _ = two()
    grow(first, 0, 3)
    stored = [(1, update(1)), (0, update(2)), (1, update(3))]
    for client, message in stored:
        first.handle(client, message)
    assert served_again(first.handle(1, PeerModel(vector(0), 0.0, 1))) == [tuple(stored)]


def test_stored_updates_are_served_again_after_the_fold_and_once_only(two, grow):
    first, _ = two(h_intra=1.0)
    grow(first, 0, 1)
    first.handle(1, update(7))
    actions = first.handle(1, PeerModel(vector(0), 0.0, 1))
    assert isinstance(actions[-1], Requeue)
    grow(first, 0, 1)
    assert served_again(first.handle(1, PeerModel(vector(0), 0.0, 2))) == [()]


def test_an_update_that_is_served_again_is_applied_like_any_other(two, grow):
    first, _ = two()
    grow(first, 0, 3)
    first.handle(1, update(7))
    (((client, message),),) = served_again(first.handle(1, PeerModel(vector(0), 3.0, 1)))
    (fact,) = stated(first.handle(client, message), UpdateApplied)
    assert (fact.client, fact.version) == (1, 4)


def test_the_fold_counts_no_client_update(two, grow):
    first, _ = two()
    grow(first, 0, 3)
    first.handle(1, PeerModel(vector(9), 9.0, 1))
    assert first.version == 3


def test_the_count_of_updates_restarts_when_a_server_stops(two, grow):
    first, _ = two(h_intra=3.0)
    grow(first, 0, 3)
    first.handle(1, PeerModel(vector(0), 3.0, 1))
    assert sent(grow(first, 0, 2)) == []
    assert [m.bid for _, m in sent(grow(first, 0, 1))] == [2]


def test_the_count_restarts_also_where_another_server_began(two, grow):
    _, second = two(h_intra=3.0)
    grow(second, 2, 2)
    second.handle(0, PeerModel(vector(0), 3.0, 1))
    assert sent(grow(second, 2, 2)) == []
    assert [m.bid for _, m in sent(grow(second, 2, 1))] == [2]


def test_two_servers_that_begin_at_the_same_time_begin_the_same_synchronisation(two, grow, settle):
    first, second = two(h_intra=2.0)
    from_first, from_second = sent(grow(first, 0, 2)), sent(grow(second, 2, 2))
    assert [m.bid for _, m in from_first + from_second] == [1, 1]
    assert sent(first.handle(1, from_second[0][1])) == []
    assert sent(second.handle(0, from_first[0][1])) == []
    assert first.weights.snapshot().tobytes() == second.weights.snapshot().tobytes()
    assert first.age == second.age


def test_the_model_that_was_sent_does_not_change_afterwards(two):
    first, _ = two(h_intra=1.0)
    ((_, model),) = sent(first.handle(0, update(10)))
    before = model.weights.tolist()
    first.handle(1, PeerModel(vector(-50), 1.0, 1))
    first.handle(0, update(99))
    assert model.weights.tolist() == before


# --- A server that is faster than the others --------------------------------------------------------------------------


def test_a_model_of_the_next_synchronisation_is_kept_until_this_one_is_complete(three):
    # Server 1 has all of synchronisation 1 but server 2's model; server 0 is done and has begun synchronisation 2.
    _, second, _ = three()
    second.handle(0, PeerModel(vector(9), 3.0, 1))
    assert second.handle(0, PeerModel(vector(8), 6.0, 2)) == []
    assert second.weights.snapshot().tolist() == [0.0]


def test_the_next_synchronisation_begins_right_after_the_fold(three):
    _, second, _ = three()
    second.handle(0, PeerModel(vector(9), 3.0, 1))
    second.handle(0, PeerModel(vector(8), 6.0, 2))
    actions = second.handle(2, PeerModel(vector(4), 2.0, 1))
    assert [(fact.peer, fact.bid) for fact in stated(actions, Merged)] == [(1, 1), (2, 1)]
    # what it sends for synchronisation 2 is what the fold of synchronisation 1 gave
    assert [(j, m.bid, m.age) for j, m in sent(actions)] == [(0, 2, second.age), (2, 2, second.age)]
    assert sent(actions)[0][1].weights.tolist() == second.weights.snapshot().tolist()
    # and it has stopped again
    assert second.handle(1, update(1000)) == []


def test_the_model_that_was_kept_counts_for_the_next_synchronisation(three):
    _, second, _ = three()
    second.handle(0, PeerModel(vector(9), 3.0, 1))
    second.handle(0, PeerModel(vector(8), 6.0, 2))
    second.handle(2, PeerModel(vector(4), 2.0, 1))
    actions = second.handle(2, PeerModel(vector(4), 2.0, 2))
    assert [(fact.peer, fact.bid) for fact in stated(actions, Merged)] == [(1, 2), (2, 2)]
    assert sent(actions) == []


def test_updates_stored_through_two_synchronisations_keep_their_order(three):
    _, second, _ = three()
    second.handle(0, PeerModel(vector(9), 3.0, 1))
    second.handle(0, PeerModel(vector(8), 6.0, 2))
    one, two = update(1), update(2)
    second.handle(1, one)
    # The fold hands `one` back, but the server has stopped again: it is stored again, and costs nothing.
    (back,) = served_again(second.handle(2, PeerModel(vector(4), 2.0, 1)))
    for client, message in back:
        assert second.work(client, message) is Work.NOTHING
        second.handle(client, message)
    second.handle(1, two)
    assert served_again(second.handle(2, PeerModel(vector(4), 2.0, 2))) == [((1, one), (1, two))]


# --- What a message costs ---------------------------------------------------------------------------------------------


def test_an_update_costs_a_mix_unless_it_is_only_stored(two, grow):
    first, _ = two()
    assert first.work(0, update(1)) is Work.MIX
    grow(first, 0, 3)
    assert first.work(0, update(1)) is Work.NOTHING
    first.handle(1, PeerModel(vector(0), 3.0, 1))
    assert first.work(0, update(1)) is Work.MIX


def test_every_peer_model_costs_a_mix(three, grow):
    first, _, _ = three()
    assert first.work(1, PeerModel(vector(0), 3.0, 1)) is Work.MIX
    grow(first, 0, 3)
    assert first.work(1, PeerModel(vector(0), 3.0, 1)) is Work.MIX
    assert first.work(2, PeerModel(vector(0), 3.0, 2)) is Work.MIX


# --- All together -----------------------------------------------------------------------------------------------------


class Wire:
    """Servers whose links deliver in whatever order somebody chooses, each link the first sent first."""

    def __init__(self, servers):
        self.servers = servers
        self.links = defaultdict(deque)
        self.after_fold = defaultdict(list)  # by synchronisation: (bits of W, A) of every server that has folded
        self.applied = [[] for _ in servers]  # the clients whose updates were applied, in order

    def handle(self, id, sender, message):
        server = self.servers[id]
        todo = deque([(sender, message)])
        while todo:
            assert len(todo) < 1000, "what is served again comes back again"
            sender, message = todo.popleft()
            actions = server.handle(sender, message)
            for receiver, model in sent(actions):
                self.links[id, receiver].append(model)
            if merged := stated(actions, Merged):
                self.after_fold[merged[0].bid].append((server.weights.snapshot().tobytes(), server.age))
            self.applied[id] += [fact.client for fact in stated(actions, UpdateApplied)]
            for messages in served_again(actions):
                todo.extendleft(reversed(messages))

    def busy(self):
        return sorted(link for link, queue in self.links.items() if queue)

    def deliver(self, link):
        self.handle(link[1], link[0], self.links[link].popleft())


@given(data=st.data(), n=st.integers(2, 4), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_all_servers_end_every_synchronisation_with_the_same_bits(build, data, n, seed):
    wire = Wire(build("sync-spyker", [[1, 1]] * n, initial=[0.0] * 5, h_intra=2.0))
    random = np.random.default_rng(seed)
    arrived = [[] for _ in range(n)]
    for _ in range(data.draw(st.integers(1, 40))):
        choice = data.draw(st.sampled_from([*range(n), *wire.busy()]))
        if isinstance(choice, tuple):
            wire.deliver(choice)
        else:  # one of this server's two clients answers
            client = 2 * choice + int(random.integers(2))
            server = wire.servers[choice]
            arrived[choice].append(client)
            wire.handle(choice, client, Update(random.standard_normal(5).astype(np.float32), server.age, 0))
    while wire.busy():
        wire.deliver(wire.busy()[0])
    for outcomes in wire.after_fold.values():
        assert len(outcomes) == n  # nobody is left waiting
        assert len(set(outcomes)) == 1
    # and no update was lost, doubled or overtaken
    assert wire.applied == arrived


# --- Who leaves -------------------------------------------------------------------------------------------------------


def test_what_a_client_sent_before_it_left_still_counts(two, grow):
    first, _ = two(h_intra=1.0)
    grow(first, 0, 1)
    assert first.handle(1, update(10)) == []  # stored
    assert first.handle(1, Leave()) == []
    (again,) = served_again(first.handle(1, PeerModel(vector(0), 0.0, 1)))
    assert [(k, type(message)) for k, message in again] == [(1, Update), (1, Leave)]


def test_who_comes_back_while_the_servers_wait_has_never_been_away(two, grow):
    first, _ = two(h_intra=1.0)
    grow(first, 0, 1)
    first.handle(1, Leave())
    first.handle(0, Leave())
    first.handle(1, Join(1))
    (again,) = served_again(first.handle(1, PeerModel(vector(0), 0.0, 1)))
    assert again == ((0, Leave()),)
    assert 1 in first.updates


def test_a_client_that_comes_back_while_its_answer_is_stored_gets_one_task_for_it(two):
    first, _ = two(h_intra=1.0)
    first.handle(0, update(10))
    first.handle(1, update(20))
    first.handle(1, Leave())
    assert first.handle(1, Join(1)) == [], "its answer is stored, and the next task will be the reply"
    assert first.handle(0, Join(1)) != [], "it has sent nothing since its last task"
    ((stored,),) = served_again(first.handle(1, PeerModel(vector(0), 0.0, 1)))
    assert [a.client for a in first.handle(*stored) if isinstance(a, ToClient)] == [1]
