"""Stride's exchange between few servers, everybody with everybody. Numbers are worked out in the comments."""

import pytest
from actions import sent, stated, timers, update, vector

from spyker.algorithms.consensus import REMEMBERED
from spyker.algorithms.stride_exchange import EXCHANGE, FIRST_TIMEOUT, NO_CLIENTS, TIMEOUT_FACTOR, TOKEN_PAUSE
from spyker.algorithms.stride_messages import ExchangeModel, Token
from spyker.protocol.facts import Merged, SyncStarted, TokenArrived
from spyker.protocol.messages import Leave, ToServer
from spyker.protocol.server import Work

DATA = (1, 3, 4)
PLAIN = {"momentum": 0.0, "gain": 1.0, "clip": 0.0, "divergence_threshold": 0.0, "exchange_rounds": 1, "safe": False}
"""With these a server of one client moves by what that answers, and has that answer as its momentum."""


@pytest.fixture
def strangers(build, time):
    """Three servers with a client each, of 1, 3 and 4 data points. None knows what the others have."""

    def make(**parameters):
        servers = build("stride", [[size] for size in DATA], now=time, **PLAIN | parameters)
        for server in servers:
            list(server.start())
        return servers

    return make


@pytest.fixture
def servers(strangers, settle):
    """The same after an exchange in which nobody had learnt anything. Server 1 has the token."""
    made = strangers()
    settle(made, 0, learn(made[0], 0))
    assert [server.holds for server in made] == [False, True, False]
    assert models(made) == [0, 0, 0]
    for server in made:
        server.age = 0.0
    return made


def learn(server, value):
    """The only client of a server answers."""
    return server.handle(server.id, update(value, version=server.version))


def models(servers):
    return [server.weights.snapshot().item() for server in servers]


def momenta(servers):
    return [server.momentum.snapshot().item() for server in servers]


def silence(servers, quiet, sender, actions):
    """Carry messages, but none to or from a quiet server; what was done in between."""
    done, queue = [], [(sender, action) for action in actions]
    while queue:
        node, action = queue.pop(0)
        done.append((node, action))
        if isinstance(action, ToServer) and quiet not in (node, action.server):
            queue += [(action.server, a) for a in servers[action.server].handle(node, action.message)]
    return done


def tokens(done):
    return [(node, a.server, a.message) for node, a in done if isinstance(a, ToServer) and type(a.message) is Token]


# --- The merge -------------------------------------------------------------------------------------------------------


def test_in_an_idle_moment_everybody_ends_at_the_mean_by_data(servers, settle):
    # models (1 · 8 + 3 · 4 − 4 · 2)/8 = 1.5, momenta (1 · 3 + 3 · 4 − 4 · 2)/8 = 0.875, ages (1 · 2 + 3 + 4)/8 = 1.125
    learn(servers[0], 5)
    learn(servers[0], 3)
    learn(servers[2], -2)
    settle(servers, 1, learn(servers[1], 4))
    assert models(servers) == pytest.approx([1.5] * 3)
    assert momenta(servers) == pytest.approx([0.875] * 3)
    assert [server.age for server in servers] == pytest.approx([1.125] * 3)


def test_one_model_is_merged_by_its_share_of_the_data_as_a_difference(servers):
    # server 0: W = 8; server 1 says 4: 8 + 3/8 · (4 − 8) = 6.5
    learn(servers[0], 8)
    stance = ExchangeModel(vector(4), vector(0), 5.0, 3, 2)
    assert servers[0].work(1, stance) is Work.MIX
    actions = servers[0].handle(1, stance)
    assert models(servers[:1]) == [6.5]
    assert momenta(servers[:1]) == [5]
    (fact,) = stated(actions, Merged)
    assert (fact.peer, fact.bid, fact.weight, fact.age) == (1, 2, 3 / 8, 1 + 3 / 8 * (5 - 1))


def test_who_hears_of_an_exchange_tells_everybody_where_it_stood_before(servers):
    learn(servers[0], 8)
    told = sent(servers[0].handle(1, ExchangeModel(vector(4), vector(0), 5.0, 3, 2)))
    assert [receiver for receiver, _ in told] == [1, 2]
    for _, stance in told:
        assert (stance.weights.tolist(), stance.momentum.tolist()) == ([8], [8])
        assert (stance.age, stance.data, stance.bid) == (1, 1, 2)
    assert sent(servers[0].handle(2, ExchangeModel(vector(4), vector(0), 5.0, 4, 2))) == [], "once"


def test_what_was_learnt_while_models_were_under_way_is_not_pulled_back(servers):
    # server 0 stood at 8 and learns +1: 9 + 3/8 · (4 − 8) + 4/8 · (−2 − 8) = 2.5, the mean and what it has learnt
    learn(servers[0], 8)
    servers[0].start_exchange(2)
    learn(servers[0], 1)
    servers[0].handle(1, ExchangeModel(vector(4), vector(0), 1.0, 3, 2))
    servers[0].handle(2, ExchangeModel(vector(-2), vector(0), 1.0, 4, 2))
    assert models(servers[:1]) == pytest.approx([2.5])


def test_who_has_not_told_its_data_is_taken_to_have_as_much(strangers):
    # 1/(3 + 1 + 3) of 7, and with the third server known 4/(3 + 1 + 4) of −8
    _, server, _ = strangers()
    server.handle(0, ExchangeModel(vector(7), vector(0), 0.0, 1, 1))
    assert models([server]) == [1]
    server.handle(2, ExchangeModel(vector(-8), vector(0), 0.0, 4, 1))
    assert models([server]) == [-3]


def test_a_server_that_all_clients_have_left_still_has_a_model(strangers):
    server, *_ = strangers()
    server.handle(0, Leave())
    told = sent(server.handle(1, ExchangeModel(vector(7), vector(0), 0.0, 1, 1)))
    assert [stance.data for _, stance in told] == [1, 1]


def test_a_server_that_has_moved_on_to_a_later_exchange_is_not_waited_for(servers):
    """An outbox keeps only the latest model, and so the model of the holder's exchange may never come."""
    holder = servers[1]
    learn(holder, 4)
    assert holder.exchanging
    assert not tokens([(1, a) for a in holder.handle(0, ExchangeModel(vector(1), vector(0), 1.0, 1, 3))])
    passed = tokens([(1, a) for a in holder.handle(2, ExchangeModel(vector(2), vector(0), 1.0, 4, 3))])
    assert [(receiver, token.absent) for _, receiver, token in passed] == [(2, ())]


@pytest.mark.parametrize("servers", [3, 12], ids=["all to all", "tree"])
def test_a_holder_of_the_token_that_starts_without_clients_starts_exchanges(build, time, servers):
    holder, *others = build("stride", [[], *[[1]] * (servers - 1)], now=time, **PLAIN)
    assert timers(list(holder.start())) == [(NO_CLIENTS, TOKEN_PAUSE)]
    assert [timers(list(other.start())) for other in others] == [[]] * len(others)
    assert stated(holder.expire(NO_CLIENTS), SyncStarted)


def test_an_exchange_that_is_long_over_is_ignored(servers):
    server = servers[0]
    for bid in range(2, REMEMBERED + 3):
        server.handle(1, ExchangeModel(vector(0), vector(0), 0.0, 3, bid))
    before = models([server])
    assert server.handle(2, ExchangeModel(vector(100), vector(100), 9.0, 4, 2)) == []
    assert models([server]) == before
    server.handle(2, ExchangeModel(vector(8), vector(0), 0.0, 4, 3))
    assert models([server]) == [4], "the one after it may still arrive"


# --- The token -------------------------------------------------------------------------------------------------------


def test_the_token_goes_round(strangers, settle):
    servers, started, arrived = strangers(), [], []
    for _ in range(7):
        holder = next(server for server in servers if server.holds)
        done = settle(servers, holder.id, learn(holder, 1))
        facts = [action for _, action in done]
        started += [(fact.server, fact.bid) for fact in stated(facts, SyncStarted)]
        arrived += [(fact.server, fact.bid) for fact in stated(facts, TokenArrived)]
        assert sum(server.holds for server in servers) == 1
    assert started == [(bid % 3, bid + 1) for bid in range(7)]
    assert arrived == [(bid % 3, bid + 1) for bid in range(1, 8)]


def test_the_holder_begins_after_so_many_rounds_and_nobody_else_does(strangers, settle):
    servers = strangers(exchange_rounds=2)
    assert sent(learn(servers[1], 1)) == sent(learn(servers[1], 1)) == sent(learn(servers[1], 1)) == []
    assert sent(learn(servers[0], 1)) == []
    begun = learn(servers[0], 1)
    assert [type(message) for _, message in sent(begun)] == [ExchangeModel, ExchangeModel]
    assert sent(learn(servers[0], 1)) == sent(learn(servers[0], 1)) == [], "it is under way"
    settle(servers, 0, begun)
    assert sent(learn(servers[1], 1)) == [], "its three rounds were before the exchange"
    assert [message.bid for _, message in sent(learn(servers[1], 1))] == [2, 2]


def test_rounds_are_counted_before_the_token_arrives(strangers):
    _, server, _ = strangers()
    learn(server, 1)
    assert [message.bid for _, message in sent(server.handle(0, Token(4)))] == [5, 5]


def test_a_lone_server_has_nobody_to_exchange_with(build):
    (server,) = build("stride", [[1]], **PLAIN)
    list(server.start())
    assert sent(learn(server, 1)) == []
    assert timers(learn(server, 1)) == [("round", None)]


# --- Somebody is silent ----------------------------------------------------------------------------------------------


def test_an_exchange_without_somebody_ends_by_its_timer_and_the_token_skips_it(strangers):
    servers = strangers()
    done = silence(servers, 1, 0, learn(servers[0], 1))
    assert tokens(done) == []
    assert timers(a for node, a in done if node == 0)[-1] == (EXCHANGE, FIRST_TIMEOUT)
    done = silence(servers, 1, 0, servers[0].expire(EXCHANGE))
    assert tokens(done) == [(0, 2, Token(1, (1,)))]
    assert servers[2].holds


def test_nobody_waits_for_it_the_next_time(strangers):
    servers = strangers()
    silence(servers, 1, 0, learn(servers[0], 1))
    silence(servers, 1, 0, servers[0].expire(EXCHANGE))
    done = silence(servers, 1, 2, learn(servers[2], 1))
    assert tokens(done) == [(2, 0, Token(2, (1,)))], "without a timer"


def test_it_is_taken_in_again_when_it_speaks(strangers, settle):
    servers = strangers()
    silence(servers, 1, 0, learn(servers[0], 1))
    silence(servers, 1, 0, servers[0].expire(EXCHANGE))
    begun = learn(servers[2], 1)
    servers[2].handle(1, sent(servers[1].handle(2, sent(begun)[1][1]))[1][1])  # the first that server 2 hears
    done = settle(servers, 2, begun[:1] + [a for a in begun if isinstance(a, ToServer) and a.server == 0])
    assert tokens(done)[0] == (2, 0, Token(2, ()))
    assert [tokens(settle(servers, i, learn(servers[i], 1))) for i in (0, 1)] == [
        [(0, 1, Token(3, ()))],
        [(1, 2, Token(4, ()))],
    ]


def test_its_model_counts_also_when_it_comes_late(strangers):
    # server 0 passes the token on without server 1, and merges its stance nevertheless: 1 + 3/(1 + 3 + 4) · (9 − 1) = 4
    servers = strangers()
    silence(servers, 1, 0, learn(servers[0], 1))
    servers[0].expire(EXCHANGE)
    before = models(servers)[0]
    servers[0].handle(1, ExchangeModel(vector(9), vector(0), 1.0, 3, 1))
    assert models(servers)[0] - before == pytest.approx(3 / 8 * (9 - 1))


def test_who_hears_nobody_keeps_the_token_and_tries_again(strangers, settle):
    servers = strangers(exchange_rounds=2)
    for _ in range(2):
        learn(servers[0], 1)
    assert sent(servers[0].expire(EXCHANGE)) == sent(learn(servers[0], 1)) == []
    begun = learn(servers[0], 1)
    assert [fact.bid for fact in stated(begun, SyncStarted)] == [2]
    settle(servers, 0, begun)
    assert [server.holds for server in servers] == [False, True, False]


def test_how_long_to_wait_is_learnt_from_the_longest_exchange(strangers, settle, time):
    servers, asked = strangers(), []
    for seconds in (2.0, 0.5):
        begun = learn(servers[0], 1)
        asked += [after for timer, after in timers(begun) if timer == EXCHANGE]
        (_, first), (_, second) = sent(begun)
        answers = [sent(servers[1].handle(0, first))[0][1], sent(servers[2].handle(0, second))[0][1]]
        time.now += seconds
        ended = servers[0].handle(1, answers[0]) + servers[0].handle(2, answers[1])
        assert timers(ended) == [(EXCHANGE, None)], "it does not run any more"
        servers[0].handle(2, Token(servers[0].bid))
    assert asked == [FIRST_TIMEOUT, TIMEOUT_FACTOR * 2.0]
    assert timers(learn(servers[0], 1))[-1] == (EXCHANGE, TIMEOUT_FACTOR * 2.0)


def test_an_exchange_that_was_too_slow_gives_the_next_one_more_time(strangers, time):
    servers = strangers()
    learn(servers[0], 1)
    time.now += FIRST_TIMEOUT
    servers[0].expire(EXCHANGE)
    assert timers(learn(servers[0], 1))[-1] == (EXCHANGE, TIMEOUT_FACTOR * FIRST_TIMEOUT)
    time.now += 100.0
    servers[0].handle(1, ExchangeModel(vector(9), vector(0), 1.0, 3, 1))  # of the first one
    time.now += TIMEOUT_FACTOR * FIRST_TIMEOUT
    servers[0].expire(EXCHANGE)
    last = TIMEOUT_FACTOR * (TIMEOUT_FACTOR * FIRST_TIMEOUT + 100.0)
    assert timers(learn(servers[0], 1))[-1] == (EXCHANGE, last)
