"""Algorithm 2 of the paper, "Token-triggered aggregation of server models", line by line, then sentence by sentence.

Above each test stands the line or the sentence that it holds the code to. Servers are numbered from 0 here, so the
paper's S_1, which starts with the token, is server 0. With one client each, client i belongs to server i.
"""

import pytest
from actions import stated, vector
from hypothesis import given, settings
from hypothesis import strategies as st

from spyker.algorithms.spyker import merge_weight
from spyker.protocol.facts import AgeAnnounced, Merged, SyncStarted, TokenArrived, UpdateApplied
from spyker.protocol.messages import Age, PeerModel, RecordFact, ToClient, Token, ToServer, Update
from spyker.protocol.server import Work, first_bid

FAR = 1e9  # a threshold that no test reaches


def sent(actions, kind):
    """The messages of one kind to other servers: (receiver, message)."""
    return [(a.server, a.message) for a in actions if isinstance(a, ToServer) and isinstance(a.message, kind)]


def receivers(actions, kind):
    return [server for server, _ in sent(actions, kind)]


def grow_in_step(second, grow):
    """Bring server 1 to age 4 with the others at 2. For h_inter = 3 it could announce long since, but had no reason."""
    for peer in (0, 2):
        second.handle(peer, Age(2.0))
    assert receivers(grow(second, 1, 4), Age) == []


@pytest.fixture
def three(build):
    """Three servers that never synchronise of their own accord, unless told other thresholds."""

    def make(h_inter=FAR, h_intra=FAR, **parameters):
        return build("spyker", [[1], [1], [1]], h_inter=h_inter, h_intra=h_intra, **parameters)

    return make


# --- [Server S_i] ServerInit() ----------------------------------------------------------------------------------------


# "token = (i ≠ 1) ? NULL : {bid = 1, ages = [0, ..., 0]}"
def test_token_starts_at_the_first_server_with_bid_1_and_zero_ages(three):
    first, _, _ = three()
    assert first.token == Token(epoch=0, bid=1, ages=(0.0, 0.0, 0.0))


# "token = (i ≠ 1) ? NULL : ..."
def test_no_other_server_starts_with_a_token(three):
    assert [server.token for server in three()[1:]] == [None, None]


# "cnt = ages_i = {} (hashmaps)": known ages are all 0, so that max and min speak of all servers from the start
def test_server_starts_with_all_known_ages_at_zero(three):
    assert [server.ages for server in three()] == [[0.0, 0.0, 0.0]] * 3


# "cnt = ... = {}"
def test_server_starts_having_heard_from_nobody(three):
    assert [server.heard for server in three()] == [set()] * 3


# "didBroadcast = ∅"
def test_server_starts_without_having_broadcast(three):
    assert [server.last_broadcast for server in three()] == [0] * 3


def test_what_a_server_knows_does_not_grow_with_the_number_of_synchronisations(three):
    _, second, _ = three()
    sizes = set()
    for bid in range(100, 200):
        second.handle(0, PeerModel(vector(1), 1.0, bid))
        sizes.add(sum(len(value) for value in second.state().numbers.values() if isinstance(value, list)))
    assert len(sizes) == 1


# "ongoingSynchro = False"
def test_server_starts_with_no_synchronisation_ongoing(three):
    assert not any(server.ongoing_synchro for server in three())


# "A_prev = A_i = 0"
def test_server_starts_with_age_and_previous_age_zero(three):
    assert [(server.age, server.age_prev) for server in three()] == [(0.0, 0.0)] * 3


# "set W_i^0 to random model". Deviation: averaging unrelated models destroys them, so all start from the same one.
def test_all_servers_start_from_one_and_the_same_model(build):
    servers = build("spyker", [[1], [1], [1]], initial=(0.25, -1.5))
    assert [server.weights.snapshot().tolist() for server in servers] == [[0.25, -1.5]] * 3


# --- [Server S_i] Procedure RcvAge(A_j) -------------------------------------------------------------------------------


# "ages_i[j] = max(ages_i[j], A_j)"
def test_an_announced_age_raises_the_known_age_of_its_sender(three):
    first, _, _ = three()
    first.handle(2, Age(4.5))
    assert first.ages == [0.0, 0.0, 4.5]


# "ages_i[j] = max(...)"
def test_an_announced_age_never_lowers_the_known_age(three):
    first, _, _ = three()
    first.handle(2, Age(4.5))
    first.handle(2, Age(3.0))
    assert first.ages[2] == 4.5


# "checkSynchronization()"
def test_an_announced_age_makes_the_holder_check_the_synchronisation(three):
    first, _, _ = three(h_inter=4.0)
    actions = first.handle(2, Age(4.0))
    assert receivers(actions, PeerModel) == [1, 2]


# --- [Server S_i] Procedure RcvToken(t) -------------------------------------------------------------------------------


# "for j in [1, N]: ages_i[j] = max(ages_i[j], t.ages[j])"
def test_the_tokens_ages_raise_the_known_ages_one_by_one(three):
    _, second, _ = three()
    second.handle(0, Age(6.0))
    second.handle(2, Age(1.0))
    second.handle(0, Token(0, 1, (2.0, 0.0, 5.0)))
    assert second.ages == [6.0, 0.0, 5.0]


# "token = t"
def test_the_receiver_keeps_the_token(three):
    _, second, _ = three()
    actions = second.handle(0, Token(0, 1, (0.0, 0.0, 0.0)))
    assert second.token is not None
    assert sent(actions, Token) == []


# "t.bid = t.bid + 1"
def test_the_receiver_increments_the_bid_by_one(three):
    _, second, _ = three()
    actions = second.handle(0, Token(0, 7, (0.0, 0.0, 0.0)))
    assert second.token.bid == 8
    assert stated(actions, TokenArrived) == [TokenArrived(1, 8)]


# The token's epoch is not in the paper: whoever passes the token on leaves it alone.
def test_the_token_keeps_its_epoch(three, settle):
    servers = three(h_intra=1.0)
    for server in servers:
        server.reform(3, (0, 1, 2), leads=server.id == 0)
    servers[1].handle(0, Token(3, first_bid(3), (0.0, 0.0, 0.0)))
    done = settle(servers, 1, servers[1].handle(1, Update(vector(1), 0.0, 0)))
    assert [m.epoch for _, m in sent([a for _, a in done], Token)] == [3]


# "checkSynchronization()": with what the token says, and under the bid after the increment
def test_the_receiver_of_the_token_checks_the_synchronisation(three):
    _, second, _ = three(h_inter=5.0)
    actions = second.handle(0, Token(0, 1, (5.0, 0.0, 1.0)))
    assert [(server, m.bid) for server, m in sent(actions, PeerModel)] == [(0, 2), (2, 2)]


# --- [Server S_i] Procedure checkSynchronization() --------------------------------------------------------------------


# "if max(ages) − min(ages) ≥ h_inter": not below it
def test_ages_that_differ_by_less_than_h_inter_start_nothing(three, grow):
    first, _, _ = three(h_inter=3.0)
    assert receivers(grow(first, 0, 2), PeerModel) == []


# "if max(ages) − min(ages) ≥ h_inter": exactly at it
def test_ages_that_differ_by_h_inter_start_a_synchronisation(three, grow):
    first, _, _ = three(h_inter=3.0)
    grow(first, 0, 2)
    assert receivers(grow(first, 0, 1), PeerModel) == [1, 2]


# "max(ages) − min(ages)": of any two servers, the holder need not be one of them
def test_ages_of_two_other_servers_start_a_synchronisation(three, grow):
    first, _, _ = three(h_inter=4.0)
    grow(first, 0, 3)  # ages (3, 0, 0)
    first.handle(1, Age(1.0))  # (3, 1, 0)
    assert receivers(first.handle(2, Age(4.9)), PeerModel) == []  # (3, 1, 4.9): 3.9 < 4
    assert receivers(first.handle(2, Age(5.0)), PeerModel) == [1, 2]  # (3, 1, 5): 4


# "max(ages)". Deviation: the paper never sets a server's own entry. Here it is the server's age at every check.
def test_a_servers_own_entry_is_its_age_at_every_check(three, grow):
    first, _, _ = three()
    grow(first, 0, 2)
    assert first.ages == [2.0, 0.0, 0.0]


# The same where the age has fallen: a merge with a younger model lowers it, and the next check follows it down.
def test_a_servers_own_entry_follows_its_age_down(three, grow):
    _, second, _ = three()
    grow(second, 1, 4)
    second.handle(0, PeerModel(vector(0), 2.0, 1))
    assert second.age < 4
    second.handle(2, Age(0.0))
    assert second.ages[1] == second.age


# "or A_i − A_prev ≥ h_intra": not below it
def test_an_age_grown_by_less_than_h_intra_starts_nothing(three, grow):
    first, _, _ = three(h_intra=3.0)
    assert receivers(grow(first, 0, 2), PeerModel) == []


# "or A_i − A_prev ≥ h_intra": exactly at it
def test_an_age_grown_by_h_intra_starts_a_synchronisation(three, grow):
    first, _, _ = three(h_intra=3.0)
    grow(first, 0, 2)
    assert receivers(grow(first, 0, 1), PeerModel) == [1, 2]


# "if hasToken and (not ongoingSynchro)": without the token no model is sent
def test_a_server_without_the_token_starts_no_synchronisation(three, grow):
    _, second, _ = three(h_inter=1.0, h_intra=1.0)
    actions = grow(second, 1, 5)
    assert receivers(actions, PeerModel) == []
    assert stated(actions, SyncStarted) == []


# "(not ongoingSynchro)"
def test_a_holder_that_synchronises_does_not_start_again(three, grow):
    first, _, _ = three(h_inter=1.0, h_intra=1.0)
    grow(first, 0, 1)
    assert sent(grow(first, 0, 5), PeerModel) == []


# "A_prev = A_i": the next h_intra counts from here
def test_the_holder_remembers_the_age_at_which_it_synchronised(three, grow):
    first, _, _ = three(h_intra=3.0)
    grow(first, 0, 3)
    assert first.age_prev == 3.0


# "ongoingSynchro = True"
def test_the_holder_remembers_that_it_synchronises(three, grow):
    first, _, _ = three(h_intra=3.0)
    grow(first, 0, 3)
    assert first.ongoing_synchro


# "send (W_i, A_i, t.bid) to all servers"
def test_the_holder_sends_its_model_age_and_bid_to_all_other_servers(three):
    first, _, _ = three(h_intra=1.0)
    models = sent(first.handle(0, Update(vector(10), 0.0, 0)), PeerModel)
    assert [(server, m.weights.tolist(), m.age, m.bid) for server, m in models] == [
        (1, pytest.approx([6.0]), 1.0, 1),
        (2, pytest.approx([6.0]), 1.0, 1),
    ]


# "send (W_i, ...)": what is sent is the model as it is now, whatever happens to it while it travels
def test_the_model_that_was_sent_does_not_change_afterwards(three):
    first, _, _ = three(h_intra=1.0)
    ((_, model), _) = sent(first.handle(0, Update(vector(10), 0.0, 0)), PeerModel)
    before = model.weights.tolist()
    first.handle(0, Update(vector(-50), 1.0, 1))
    first.handle(1, PeerModel(vector(80), 1.0, 1))
    assert model.weights.tolist() == before


# "didBroadcast = didBroadcast ∪ {t.bid}": an answer under that bid makes the holder send nothing more
def test_the_holder_remembers_that_it_has_broadcast(three, grow):
    first, _, _ = three(h_intra=1.0)
    grow(first, 0, 1)
    assert sent(first.handle(1, PeerModel(vector(0), 0.0, 1)), PeerModel) == []


# "cnt[token.bid] = 1": the holder counts itself
def test_the_holder_counts_itself(three, grow):
    first, _, _ = three(h_intra=1.0)
    grow(first, 0, 1)
    assert first.heard == {0}


# "else: send A_i to all servers"
def test_a_server_without_the_token_announces_its_age_to_all_other_servers(three, grow):
    _, second, _ = three(h_inter=3.0)
    grow(second, 1, 2)
    actions = grow(second, 1, 1)
    assert sent(actions, Age) == [(0, Age(3.0)), (2, Age(3.0))]
    assert stated(actions, AgeAnnounced) == [AgeAnnounced(1, 3.0)]


# "else: send A_i to all servers". Deviation: the paper announces at every check. Announcements would then answer
# announcements without end, so only a client update causes one.
def test_an_announcement_is_not_answered_with_an_announcement(three, grow):
    _, second, _ = three(h_inter=3.0)
    grow_in_step(second, grow)
    assert sent(second.handle(2, Age(100.0)), Age) == []


# The same deviation: the update that follows is what announces.
def test_the_next_update_announces_instead(three, grow):
    _, second, _ = three(h_inter=3.0)
    grow_in_step(second, grow)
    second.handle(2, Age(100.0))
    assert sent(grow(second, 1, 1), Age) == [(0, Age(5.0)), (2, Age(5.0))]


# The same deviation: a model that arrives causes no announcement either.
def test_a_model_is_not_answered_with_an_announcement(three, grow):
    _, second, _ = three(h_inter=3.0)
    grow_in_step(second, grow)
    assert sent(second.handle(0, PeerModel(vector(0), 100.0, 1)), Age) == []


# The same deviation, the other half: and only once the age has grown by h_inter since the last announcement.
def test_a_server_announces_only_once_its_age_has_grown_by_h_inter_since_it_last_did(three, grow):
    _, second, _ = three(h_inter=3.0)
    announced = [m.age for server, m in sent(grow(second, 1, 10), Age) if server == 0]
    assert announced == [3.0, 6.0, 9.0]


# The same where h_intra is what makes the condition true: the condition alone is not enough.
def test_h_intra_alone_does_not_make_a_server_announce_more_often(three, grow):
    _, second, _ = three(h_inter=4.0, h_intra=1.0)
    announced = [m.age for server, m in sent(grow(second, 1, 9), Age) if server == 0]
    assert announced == [4.0, 8.0]


# "else: ...". Deviation: the paper's else also covers a holder that synchronises. All know of it; it stays silent.
def test_the_holder_announces_nothing_while_it_synchronises(three, grow):
    first, _, _ = three(h_inter=1.0, h_intra=1.0)
    assert sent(grow(first, 0, 10), Age) == []


# An announcement needs the condition: growth by h_inter while the others grow as well is no drift.
def test_a_server_that_has_not_drifted_announces_nothing(three, grow):
    _, second, _ = three(h_inter=3.0)
    for peer in (0, 2):
        second.handle(peer, Age(2.0))
    assert sent(grow(second, 1, 4), Age) == []  # ages (2, 4, 2)


# --- [Server S_j] Procedure RcvModel(W_i, A_i, bid_i) -----------------------------------------------------------------


# "ages_j[i] = max(ages_j[i], A_i)"
def test_a_model_raises_the_known_age_of_its_sender(three):
    _, second, _ = three()
    second.handle(2, PeerModel(vector(0), 7.0, 1))
    assert second.ages == [0.0, 0.0, 7.0]


# "ages_j[i] = max(...)"
def test_a_model_never_lowers_the_known_age_of_its_sender(three):
    _, second, _ = three()
    second.handle(2, Age(9.0))
    second.handle(2, PeerModel(vector(0), 7.0, 1))
    assert second.ages[2] == 9.0


# "if not bid_i ∈ didBroadcast: ... send (W_j, A_j, bid_i) to all servers"
def test_a_model_with_an_unknown_bid_makes_the_server_broadcast_its_own(three):
    _, second, _ = three()
    actions = second.handle(0, PeerModel(vector(10), 1.0, 5))
    assert [(server, m.bid) for server, m in sent(actions, PeerModel)] == [(0, 5), (2, 5)]


# The order of "send (W_j, A_j, bid_i)" and "ServerAgg(W_i, A_i)"
def test_a_model_with_an_unknown_bid_makes_the_server_broadcast_before_it_merges(three, grow):
    _, second, _ = three()
    grow(second, 1, 1)
    actions = second.handle(0, PeerModel(vector(10), 5.0, 1))
    assert [(m.weights.tolist(), m.age) for _, m in sent(actions, PeerModel)] == [([0.0], 1.0)] * 2
    assert second.weights.snapshot().tolist() != [0.0]


# "if not bid_i ∈ didBroadcast": a known bid is not answered
def test_a_model_with_a_known_bid_makes_the_server_broadcast_nothing(three):
    _, second, _ = three()
    second.handle(0, PeerModel(vector(10), 1.0, 1))
    assert sent(second.handle(2, PeerModel(vector(10), 1.0, 1)), PeerModel) == []


# "didBroadcast = didBroadcast ∪ {bid_i}": earlier bids stay in the set
def test_a_late_model_of_an_earlier_bid_makes_the_server_broadcast_nothing(three):
    _, second, _ = three()
    second.handle(0, PeerModel(vector(10), 1.0, 1))
    second.handle(0, PeerModel(vector(10), 1.0, 2))
    assert sent(second.handle(2, PeerModel(vector(10), 1.0, 1)), PeerModel) == []


# "A_prev = A_j": the age of before the merge
def test_a_server_that_joins_a_synchronisation_remembers_its_age_before_the_merge(three, grow):
    _, second, _ = three()
    grow(second, 1, 2)
    second.handle(0, PeerModel(vector(10), 9.0, 1))
    assert second.age_prev == 2.0 < second.age


# "A_prev = A_j" stands inside the if: a known bid leaves it alone
def test_a_model_with_a_known_bid_leaves_the_remembered_age_alone(three, grow):
    _, second, _ = three()
    second.handle(0, PeerModel(vector(10), 1.0, 1))
    grow(second, 1, 2)
    second.handle(2, PeerModel(vector(10), 1.0, 1))
    assert second.age_prev == 0.0


# "ServerAgg(W_i, A_i)": whether the bid is new or not
def test_every_model_is_merged(three):
    _, second, _ = three()
    facts = []
    for peer, bid in ((0, 1), (2, 1), (0, 2), (2, 2)):
        facts += stated(second.handle(peer, PeerModel(vector(10), 1.0, bid)), Merged)
    assert [(fact.server, fact.peer, fact.bid) for fact in facts] == [(1, 0, 1), (1, 2, 1), (1, 0, 2), (1, 2, 2)]


# "if token ≠ NULL": a server without the token passes nothing on
def test_a_server_without_the_token_passes_nothing_on(three):
    _, second, _ = three()
    actions = second.handle(0, PeerModel(vector(0), 1.0, 1))
    actions += second.handle(2, PeerModel(vector(0), 1.0, 1))
    assert sent(actions, Token) == []


# "and t.bid = bid_i": models of another synchronisation are merged, not counted
def test_a_model_of_another_bid_does_not_count_for_the_token(three, grow):
    _, second, _ = three(h_intra=1.0)
    second.handle(0, Token(0, 1, (0.0, 0.0, 0.0)))
    grow(second, 1, 1)  # starts bid 2
    second.handle(0, PeerModel(vector(0), 0.0, 2))
    actions = second.handle(2, PeerModel(vector(0), 0.0, 1))
    assert len(stated(actions, Merged)) == 1
    assert sent(actions, Token) == []
    assert second.heard == {0, 1}


# "cnt[bid_i] = cnt[bid_i] + 1"
def test_the_holder_counts_a_server_whose_model_has_come(three, grow):
    first, _, _ = three(h_intra=1.0)
    grow(first, 0, 1)
    first.handle(2, PeerModel(vector(0), 0.0, 1))
    assert first.heard == {0, 2}


# "cnt[bid_i] = cnt[bid_i] + 1". Deviation: the paper counts messages where it must count servers.
def test_the_holder_counts_servers_and_not_messages(three, grow):
    first, _, _ = three(h_intra=1.0)
    grow(first, 0, 1)
    first.handle(1, PeerModel(vector(0), 0.0, 1))
    assert sent(first.handle(1, PeerModel(vector(0), 0.0, 1)), Token) == []
    assert receivers(first.handle(2, PeerModel(vector(0), 0.0, 1)), Token) == [1]


# "if cnt[bid_i] = n": all, itself included
def test_the_holder_passes_the_token_once_it_has_heard_from_all(three, grow):
    first, _, _ = three(h_intra=1.0)
    grow(first, 0, 1)
    assert sent(first.handle(1, PeerModel(vector(0), 0.0, 1)), Token) == []
    assert len(sent(first.handle(2, PeerModel(vector(0), 0.0, 1)), Token)) == 1


# "t.ages = ages_j". Deviation: the holder's own entry is refreshed to its age first, after the last merge.
def test_the_token_carries_the_known_ages_and_the_holders_own(three, grow):
    first, _, _ = three(h_intra=1.0)
    grow(first, 0, 1)
    first.handle(1, PeerModel(vector(0), 3.0, 1))
    ((_, token),) = sent(first.handle(2, PeerModel(vector(0), 9.0, 1)), Token)
    assert token.ages == (first.age, 3.0, 9.0)
    assert 1.0 < first.age < 9.0


# "send token t to the next server on ring": under its old bid, the receiver increments it
def test_the_holder_passes_the_token_to_the_next_server_with_its_bid_unchanged(three, grow):
    first, _, _ = three(h_intra=1.0)
    grow(first, 0, 1)
    first.handle(1, PeerModel(vector(0), 0.0, 1))
    ((receiver, token),) = sent(first.handle(2, PeerModel(vector(0), 0.0, 1)), Token)
    assert (receiver, token.bid) == (1, 1)


# "next server on ring": after the last comes the first
def test_the_last_server_passes_the_token_to_the_first(three, grow):
    _, _, third = three(h_intra=1.0)
    third.handle(1, Token(0, 2, (0.0, 0.0, 0.0)))
    grow(third, 2, 1)
    third.handle(0, PeerModel(vector(0), 0.0, 3))
    assert receivers(third.handle(1, PeerModel(vector(0), 0.0, 3)), Token) == [0]


# "token = NULL"
def test_a_server_that_has_passed_the_token_holds_it_no_longer(three, grow):
    first, _, _ = three(h_intra=1.0)
    grow(first, 0, 1)
    for peer in (1, 2):
        first.handle(peer, PeerModel(vector(0), 0.0, 1))
    assert first.token is None
    assert sent(grow(first, 0, 5), PeerModel) == []


# "ongoingSynchro = False": when the token comes round again this server can start again
def test_a_server_that_has_passed_the_token_can_start_again_when_it_returns(three, grow):
    first, _, _ = three(h_intra=1.0)
    grow(first, 0, 1)
    for peer in (1, 2):
        first.handle(peer, PeerModel(vector(0), 1.0, 1))
    assert not first.ongoing_synchro
    grow(first, 0, 1)
    actions = first.handle(2, Token(0, 3, (0.0, 0.0, 0.0)))
    assert [(server, m.bid) for server, m in sent(actions, PeerModel)] == [(1, 4), (2, 4)]


# "cnt[token.bid] = 1" at every start: who was heard under the last bid was not yet heard under this one
def test_the_count_starts_anew_with_every_synchronisation(three, grow):
    first, _, _ = three(h_intra=1.0)
    grow(first, 0, 1)
    for peer in (1, 2):
        first.handle(peer, PeerModel(vector(0), 1.0, 1))
    grow(first, 0, 1)
    first.handle(2, Token(0, 3, (0.0, 0.0, 0.0)))
    assert sent(first.handle(1, PeerModel(vector(0), 1.0, 4)), Token) == []
    assert len(sent(first.handle(2, PeerModel(vector(0), 1.0, 4)), Token)) == 1


# "cnt[bid_i]": a count for each bid. A holder that has not started yet has heard from nobody under its new bid,
# whoever it heard from the last time it held the token.
def test_servers_heard_under_an_earlier_bid_do_not_count_for_a_new_one(three, grow):
    first, _, _ = three(h_intra=5.0)
    grow(first, 0, 5)
    for peer in (1, 2):
        first.handle(peer, PeerModel(vector(0), 5.0, 1))
    first.handle(2, Token(0, 3, (5.0, 5.0, 5.0)))
    assert first.token is not None
    assert sent(first.handle(1, PeerModel(vector(0), 5.0, 4)), Token) == []


# --- [Server S_i] Procedure ServerAgg(W_j, A_j) -----------------------------------------------------------------------


# "a = φ(A_j − A_i)/A_i"; "w_ij = (1 + e^(−a))^(−1)"
def test_the_weight_of_a_merge_is_the_sigmoid_of_the_relative_age_difference(three, grow):
    # a = 1.5 · (8 − 4)/4 = 1.5, w = 1/(1 + 0.2231301601) = 0.8175744762
    _, second, _ = three()
    grow(second, 1, 4)
    (fact,) = stated(second.handle(0, PeerModel(vector(10), 8.0, 1)), Merged)
    assert fact.weight == pytest.approx(0.8175744762)


# "a = φ(A_j − A_i)/A_i". Deviation: A_i starts at 0, so the divisor is at least 1.
def test_a_server_of_age_zero_can_merge(three):
    # a = 1.5 · 2/1 = 3, w = 0.9525741268
    _, second, _ = three()
    (fact,) = stated(second.handle(0, PeerModel(vector(10), 2.0, 1)), Merged)
    assert fact.weight == pytest.approx(0.9525741268)


# "W_i = W_i + η_a · w_ij (W_j − W_i)"
def test_a_merge_moves_the_model_by_the_aggregation_rate_times_the_weight(three, grow):
    # 0 + 0.6 · 0.8175744762 · 10 = 4.905446857
    _, second, _ = three()
    grow(second, 1, 4)
    second.handle(0, PeerModel(vector(10), 8.0, 1))
    assert second.weights.snapshot().tolist() == pytest.approx([4.905446857])


# "A_i = (1 − η_a · w_ij) A_i + η_a · w_ij · A_j": of the age before the merge, and not rounded
def test_a_merge_moves_the_age_by_the_same_share(three, grow):
    # 4 + 0.4905446857 · 4 = 5.9621787429
    _, second, _ = three()
    grow(second, 1, 4)
    (fact,) = stated(second.handle(0, PeerModel(vector(10), 8.0, 1)), Merged)
    assert fact.age == second.age == pytest.approx(5.9621787429)


# --- The prose: token-triggered server model aggregations -------------------------------------------------------------


# "synchronization whenever the ages of server models are drifting too much or when a server has processe[d] a large
# enough number of client updates": nothing else
def test_without_drift_or_growth_servers_never_exchange_models(three, grow, settle):
    servers = three(h_inter=50.0, h_intra=50.0)
    done = [a for id, server in enumerate(servers) for _, a in settle(servers, id, grow(server, id, 49))]
    assert not any(isinstance(a, ToServer) for a in done)


# "servers rely on a token so that only one server can trigger the model broadcasts"
def test_only_the_holder_starts_a_synchronisation(three, grow, settle):
    servers = three(h_inter=4.0, h_intra=5.0)
    started = []
    for turn in range(60):
        id = turn * turn % 3
        started += stated([a for _, a in settle(servers, id, grow(servers[id], id, 1))], SyncStarted)
    assert len(started) > 6
    # The token goes round in the order of ids and each holder uses its bid once: bid 1 is server 0's, bid 2 is 1's ...
    assert [(fact.bid, fact.server) for fact in started] == [(b + 1, b % 3) for b in range(len(started))]


# "[bid] allows server[s] to broadcast their model only once per synchronization"
def test_a_server_broadcasts_only_once_per_synchronisation(build, grow, settle):
    servers = build("spyker", [[1], [1], [1], [1]], h_inter=FAR, h_intra=3.0)
    done = settle(servers, 0, grow(servers[0], 0, 3))
    links = [(node, a.server, a.message.bid) for node, a in done if isinstance(a, ToServer) and sent([a], PeerModel)]
    assert sorted(links) == [(i, j, 1) for i in range(4) for j in range(4) if i != j]


# "other servers might indirectly learn about an ongoing synchronization and broadcast their models to each other"
def test_a_server_learns_of_a_synchronisation_from_one_that_did_not_start_it(three):
    _, second, third = three()
    from_second = sent(second.handle(0, PeerModel(vector(1), 1.0, 1)), PeerModel)
    to_third = dict(from_second)[2]
    assert receivers(third.handle(1, to_third), PeerModel) == [0, 1]


# "To maintain fairness, the token is circulated among all servers" and "The token keeps visiting every server". The
# paper's ring is random; here it is the order of ids.
def test_the_token_is_circulated_among_all_servers_in_the_order_of_ids(build, grow, settle):
    servers = build("spyker", [[1], [1], [1], [1]], h_inter=FAR, h_intra=20.0)
    arrived = []
    while len(arrived) < 9:
        holder = next(server for server in servers if server.token is not None)
        done = settle(servers, holder.id, grow(holder, holder.id, 1))
        arrived += stated([a for _, a in done], TokenArrived)
    assert [(fact.server, fact.bid) for fact in arrived[:9]] == list(
        zip([1, 2, 3, 0] * 2 + [1], range(2, 11), strict=True)
    )


# "exactly one token": at no time do two servers hold it, nor is it ever lost while nothing is under way
def test_there_is_one_token_at_any_time(three, grow, settle):
    servers = three(h_inter=4.0, h_intra=7.0)
    for turn in range(60):
        id = turn * turn % 3
        settle(servers, id, grow(servers[id], id, 1))
        assert sum(server.token is not None for server in servers) == 1


# "whenever necessary, servers can broadcast their age so that the token holder triggers a synchronization"
def test_an_announcement_brings_the_holder_to_start(three, grow, settle):
    servers = three(h_inter=3.0)
    done = [a for _, a in settle(servers, 2, grow(servers[2], 2, 3))]
    assert stated(done, AgeAnnounced) == [AgeAnnounced(2, 3.0)]
    assert stated(done, SyncStarted) == [SyncStarted(0, 1)]


# "a server receives the models of any other server according to increasing synchronization IDs and can process them
# all": the models of two synchronisations may overlap, and all of them are merged
def test_models_of_overlapping_synchronisations_are_all_merged(three, grow):
    # Server 1 gets the token, and with it the right to bid 2, before server 2's model of bid 1 has reached it.
    _, second, _ = three(h_intra=1.0)
    second.handle(0, PeerModel(vector(1), 1.0, 1))
    second.handle(0, Token(0, 1, (1.0, 0.0, 0.0)))
    grow(second, 1, 1)
    late = second.handle(2, PeerModel(vector(1), 0.0, 1))
    current = second.handle(2, PeerModel(vector(1), 0.0, 2)) + second.handle(0, PeerModel(vector(1), 1.0, 2))
    assert [fact.bid for fact in stated(late + current, Merged)] == [1, 2, 2]
    assert receivers(late, Token) == []
    assert receivers(current, Token) == [2]


# "ongoingSynchro is used by the server holding the token to initiate a synchronization only once before forwarding
# the token"
def test_the_holder_initiates_only_once_before_it_forwards_the_token(three, grow):
    first, _, _ = three(h_inter=1.0, h_intra=1.0)
    actions = grow(first, 0, 3) + first.handle(1, Age(50.0)) + first.handle(1, PeerModel(vector(0), 50.0, 1))
    assert stated(actions, SyncStarted) == [SyncStarted(0, 1)]


# "Upon arrival of the token, a server S_i updates the ages of the models that it maintains using the token's
# information. It then [...] determine[s] whether a model synchronization should be triggered": or keeps the token
def test_a_server_without_a_reason_to_synchronise_keeps_the_token(three):
    _, second, _ = three(h_inter=5.0, h_intra=5.0)
    actions = second.handle(0, Token(0, 1, (1.0, 0.0, 4.0)))
    assert not any(isinstance(a, ToServer) for a in actions)
    assert second.token is not None


# "h_intra is the threshold for the maximum age difference between a server model's current age and the age it had
# during the last server model synchronization": also if it did not start that one
def test_h_intra_counts_from_a_synchronisation_that_another_server_started(three, grow):
    _, second, _ = three(h_intra=3.0)
    grow(second, 1, 2)
    second.handle(0, PeerModel(vector(0), 2.0, 1))  # equal ages: the age stays 2
    second.handle(0, Token(0, 1, (0.0, 0.0, 0.0)))
    assert sent(grow(second, 1, 2), PeerModel) == []
    assert receivers(grow(second, 1, 1), PeerModel) == [0, 2]


# "the server that holds the token makes sure that it receives the model of all other servers [...] before forwarding
# the token to its successor"
def test_the_holder_passes_the_token_only_after_all_models_came(build, grow):
    servers = build("spyker", [[1]] * 5, h_inter=FAR, h_intra=1.0)
    grow(servers[0], 0, 1)
    passed = [receivers(servers[0].handle(peer, PeerModel(vector(0), 0.0, 1)), Token) for peer in (3, 1, 4, 2)]
    assert passed == [[], [], [], [1]]


# The announcement storm, which the paper's pseudocode would set off: an update causes at most one announcement and one
# synchronisation, n(n − 1) models, and the token.
def test_one_update_never_sets_off_a_storm(three, grow, settle):
    servers = three(h_inter=1.0, h_intra=1.0)
    for turn in range(30):
        id = turn % 3
        done = [a for _, a in settle(servers, id, grow(servers[id], id, 1))]
        assert len(sent(done, Age)) <= 2
        assert len(stated(done, AgeAnnounced)) <= 1


# A server on its own has nobody to talk to.
def test_a_single_server_runs_without_any_of_this(build, grow):
    (server,) = build("spyker", [[1, 1]], h_inter=1.0, h_intra=1.0)
    actions = grow(server, 0, 10)
    assert [type(a) for a in actions if not isinstance(a, RecordFact)] == [ToClient] * 10
    assert {type(a.fact) for a in actions if isinstance(a, RecordFact)} == {UpdateApplied}


# --- The prose: aggregation of server models --------------------------------------------------------------------------


# "servers aggregate them asynchronously immediately after they are received": the holder does not wait for all
def test_a_model_is_merged_at_once(three, grow):
    first, _, _ = three(h_intra=1.0)
    grow(first, 0, 1)
    first.handle(1, PeerModel(vector(10), 1.0, 1))
    assert first.weights.snapshot().tolist() == pytest.approx([3.0])  # equal ages: 0.6 · 0.5 · 10


# "The influence of W_j increases with this age difference"
def test_the_older_the_other_model_the_more_it_counts():
    weights = [merge_weight(10.0, peer, 1.5) for peer in (0, 5, 10, 15, 20)]
    assert weights == sorted(set(weights))


# "As a model age increases, it becomes more stable and the impact of other server models should be decreased": the
# same lead of an older model counts for less
def test_the_older_the_own_model_the_less_the_same_lead_counts():
    weights = [merge_weight(age, age + 5, 1.5) for age in (1, 10, 100)]
    assert weights == sorted(set(weights), reverse=True)


# "The sigmoid function ensures that w_ij remains between 0 and 1"
@given(
    age=st.floats(0, 1e12),
    peer_age=st.floats(0, 1e12),
    activation=st.floats(0, 1e12),
)
@settings(deadline=None)
def test_the_weight_remains_between_0_and_1(age, peer_age, activation):
    assert 0 <= merge_weight(age, peer_age, activation) <= 1


# "... and results in a weight of 1 when the relative model age difference is too large"
def test_a_far_older_model_has_weight_1():
    assert merge_weight(1.0, 1000.0, 1.5) == 1.0


# "A larger φ leads to a smaller active range, leaving a larger area for the weight of 0 and 1"
def test_a_larger_activation_pushes_weights_to_0_and_1():
    older = [merge_weight(10.0, 12.0, activation) for activation in (0.5, 1.5, 5.0)]
    younger = [merge_weight(10.0, 8.0, activation) for activation in (0.5, 1.5, 5.0)]
    assert older == sorted(set(older))
    assert younger == sorted(set(younger), reverse=True)


# "η_a = 1 means it could replace server S_j's model when their ages are equal". By the paper's own formula equal ages
# have w = 0.5: it is replaced by half, and in full by a far older model only.
def test_with_aggregation_rate_1_an_equal_model_replaces_half_and_a_far_older_one_all(three, grow):
    _, second, third = three(peer_rate=1.0)
    second.handle(0, PeerModel(vector(10), 0.0, 1))
    third.handle(0, PeerModel(vector(10), 1000.0, 1))
    assert second.weights.snapshot().tolist() == [5.0]
    assert (third.weights.snapshot().tolist(), third.age) == ([10.0], 1000.0)


# "we apply a weighting strategy to increase a model's age after aggregating another server's model": towards the age
# of the other, and so down where the other is younger
def test_a_merge_moves_the_age_towards_the_other_age(three, grow):
    _, second, third = three()
    grow(second, 1, 4)
    second.handle(0, PeerModel(vector(0), 9.0, 1))
    assert 4 < second.age < 9
    grow(third, 2, 4)
    third.handle(0, PeerModel(vector(0), 1.0, 1))
    assert 1 < third.age < 4


# "Following their exchange of models": servers that drifted apart are closer afterwards, none is left out
def test_an_exchange_brings_the_models_of_all_servers_closer(three, settle):
    servers = three(h_intra=1.0)
    settle(servers, 0, servers[0].handle(0, Update(vector(10), 0.0, 0)))
    models = [server.weights.snapshot().item() for server in servers]
    assert max(models) - min(models) < 6.0
    assert min(models) > 0.0


# --- What a message costs (Tab. "Computation time": model aggregation in Spyker) --------------------------------------


def test_updates_and_models_cost_a_mix(three):
    first, _, _ = three()
    assert first.work(0, Update(vector(0), 0.0, 0)) is Work.MIX
    assert first.work(1, PeerModel(vector(0), 0.0, 1)) is Work.MIX


def test_ages_and_the_token_cost_nothing(three):
    first, _, _ = three()
    assert first.work(1, Age(1.0)) is Work.NOTHING
    assert first.work(2, Token(0, 1, (0.0, 0.0, 0.0))) is Work.NOTHING
