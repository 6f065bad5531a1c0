"""Coding of messages by servers and clients."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spyker.algorithms.builtin import ALGORITHMS
from spyker.compression.block_codec import NONE, decode
from spyker.compression.settings import CompressionSettings
from spyker.protocol.client import Client, DeltaClient
from spyker.protocol.client_coder import ClientCoder
from spyker.protocol.codec import MalformedMessage, Sizes, as_json, encode, expected, lengths, schema_of
from spyker.protocol.codec import decode as decode_message
from spyker.protocol.coded_messages import coded_kind
from spyker.protocol.messages import Model, ModelBootstrap, PeerModel, ToClient, Token, ToServer, Update
from spyker.protocol.server import Server, Setup
from spyker.vectors import Vector

SIZE = 100
SIZES = Sizes(SIZE, 2)


def normal() -> Vector:
    return np.random.default_rng(3).normal(size=SIZE).astype(np.float32)


def coded_update() -> Update:
    client = DeltaClient(0, 0)
    client.coder = ClientCoder(CompressionSettings(updates="int8"), SIZES)
    client.received = Model(np.zeros(SIZE, np.float32), 0.0, 0, 0.1)
    (action,) = client.trained(normal())
    assert isinstance(action, ToServer)
    assert isinstance(action.message, Update)
    return action.message


def server(algorithm: str, clients: int = 2, **codes: str) -> Server:
    chosen = ALGORITHMS[algorithm]
    parameters = chosen.Parameters()
    settings = CompressionSettings(**codes)
    setup = Setup(1, clients, normal(), 0.1, parameters, compression=settings)
    return chosen.create(0, setup, dict.fromkeys(range(clients), 10))


def test_classes_without_vectors_and_bootstrap_states_have_no_coded_class() -> None:
    assert coded_kind(Token, "int8") is Token
    assert coded_kind(ModelBootstrap, "int8") is ModelBootstrap
    assert coded_kind(Update, NONE) is Update
    assert coded_kind(Update, "int4").kind == "update-int4"
    assert issubclass(coded_kind(Update, "int4"), Update)


def test_a_coded_message_survives_the_wire_and_a_wrong_one_does_not() -> None:
    update = coded_update()
    kind = type(update)
    numbers, arrays = encode(update)
    assert lengths(arrays, kind) == []  # it follows from the model's
    assert [(a.dtype, a.size) for a in arrays] == expected(kind, (), SIZES)
    again = decode_message(kind, as_json(numbers), arrays, SIZES)
    assert again.weights.tobytes() == update.weights.tobytes()
    hostile = update.weights.copy()
    hostile[:2].view(np.uint16)[0] = 0x7FC0
    with pytest.raises(MalformedMessage, match="weights: the step of a block is negative, not finite or too large"):
        decode_message(kind, as_json(numbers), [hostile], SIZES)
    with pytest.raises(MalformedMessage, match="bytes are not allowed"):
        decode_message(kind, as_json(numbers), [hostile[:-1]], SIZES)


@pytest.mark.parametrize("kind", [Client, DeltaClient])
def test_an_update_is_the_coded_difference_and_its_error_is_added_to_the_next(kind: type[Client]) -> None:
    client, model, trained = kind(0, 0), normal(), normal() * np.float32(1.5)
    client.coder = ClientCoder(CompressionSettings(updates="int4"), SIZES)
    sent = np.zeros(SIZE)
    for _ in range(10):
        client.received = Model(model, 0.0, 0, 0.1)
        (action,) = client.trained(trained.copy())  # which is the client's own
        assert isinstance(action, ToServer)
        update: Any = action.message
        sent += decode(update.weights, "int4", SIZE)
    assert sent == pytest.approx(10 * (trained - model), abs=0.2)


def test_an_update_that_is_not_finite_is_sent_as_it_is() -> None:
    client = DeltaClient(0, 0)
    client.coder = ClientCoder(CompressionSettings(updates="int8"), SIZES)
    client.received = Model(np.zeros(SIZE, np.float32), 0.0, 0, 0.1)
    (action,) = client.trained(np.full(SIZE, np.nan, np.float32))
    assert isinstance(action, ToServer)
    assert type(action.message) is Update


def tasks(actions: Any) -> dict[int, Model]:
    return {a.client: a.message for a in actions if isinstance(a, ToClient) and isinstance(a.message, Model)}


def test_a_server_of_models_adds_a_difference_to_the_model_of_its_task() -> None:
    there = server("fedasync", updates="int8")
    first = tasks(there.start())
    there.handle(1, Update(first[1].weights + 1, 0.0, 0))  # the model is another one now
    update = replace(coded_update(), age=0.0, version=0)
    plain, same = server("fedasync"), normal()
    plain.start()
    plain.handle(1, Update(same + 1, 0.0, 0))
    plain.handle(0, Update(same + decode(update.weights, "int8", SIZE), 0.0, 0))
    there.handle(0, update)
    assert (there.weights.snapshot() == plain.weights.snapshot()).all()


def test_after_a_new_connection_a_client_answers_its_task_and_is_sent_the_public_model() -> None:
    there, plain = server("fedasync", updates="int8", models="int8"), server("fedasync")
    first = tasks(there.start())
    plain.start()
    for each in (there, plain):
        each.handle(1, Update(normal() + 1, 0.0, 0))  # the model is another one now
    there.reconnected(0)
    update: Any = coded_update()
    (again,) = tasks(there.handle(0, update)).values()
    plain.handle(0, Update(normal() + decode(update.weights, "int8", SIZE), 0.0, 0))
    assert (there.weights.snapshot() == plain.weights.snapshot()).all()
    coder = ClientCoder(CompressionSettings(models="int8"), SIZES)
    found = coder.decode(again)
    assert isinstance(found, Model)
    assert found.weights == pytest.approx(there.weights.snapshot(), abs=0.05)
    assert first[0].kind == again.kind == "model-int8"


def test_an_update_for_a_task_that_a_restarted_server_does_not_know_is_added_to_its_model() -> None:
    there = server("fedasync", updates="int8")
    before, update = there.weights.snapshot(), replace(coded_update(), age=0.0, version=7)
    there.handle(0, update)
    moved = there.weights.snapshot() - before
    assert moved == pytest.approx(0.6 * decode(update.weights, "int8", SIZE), rel=1e-3, abs=1e-5)


def exchanging(algorithm: str, servers: int = 3, code: str = "int8") -> list[Any]:
    chosen = ALGORITHMS[algorithm]
    parameters = chosen.Parameters()
    setup = Setup(servers, 2 * servers, normal(), 0.1, parameters, compression=CompressionSettings(exchanges=code))
    return [chosen.create(i, setup, {2 * i: 10, 2 * i + 1: 10}) for i in range(servers)]


def set_apart(servers: list[Any]) -> list[Vector]:
    """Give the servers models of their own."""
    models = [np.random.default_rng(9 + i).normal(size=SIZE).astype(np.float32) for i in range(len(servers))]
    for server, model in zip(servers, models, strict=True):
        server.weights.replace(model)
        if hasattr(server, "consensus"):
            server.consensus.replace(model)
    return models


def deliver(servers: list[Any], sender: int, actions: Any) -> None:
    """Deliver messages between servers until there are none."""
    queue = [(sender, action) for action in actions]
    while queue:
        i, action = queue.pop(0)
        if isinstance(action, ToServer):
            assert not schema_of(type(action.message)).arrays or "int8" in action.message.kind
            queue += [(action.server, each) for each in servers[action.server].handle(i, action.message)]


def test_servers_of_stride_keep_their_weighted_mean_when_models_are_rounded() -> None:
    servers = exchanging("stride")
    before = np.mean(set_apart(servers), axis=0)
    servers[0].start_exchange(1)
    deliver(servers, 0, servers[0]._taken())
    models = [server.weights.snapshot() for server in servers]
    assert np.mean(models, axis=0) == pytest.approx(before, abs=1e-5)
    assert max(np.abs(model - models[0]).max() for model in models) < 0.06, "they have exchanged models"


def test_servers_of_sync_spyker_have_the_same_bytes_after_a_synchronisation() -> None:
    servers = exchanging("sync-spyker")
    set_apart(servers)
    servers[0].begin(1)
    deliver(servers, 0, servers[0]._taken())
    assert len({server.weights.snapshot().tobytes() for server in servers}) == 1


def test_a_message_to_several_servers_is_coded_once() -> None:
    servers = exchanging("spyker")
    servers[0].broadcast(1)
    first, second = (action.message for action in servers[0]._taken())
    assert first is second


def test_a_peer_model_that_is_not_finite_is_sent_as_it_is() -> None:
    servers = exchanging("spyker")
    servers[0].weights.replace(np.full(SIZE, np.inf, np.float32))
    servers[0].broadcast(1)
    assert [type(action.message) for action in servers[0]._taken()] == [PeerModel, PeerModel]
