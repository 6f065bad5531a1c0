"""The public model: clients decode the model that the server means, whatever they have missed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spyker.compression.block_codec import size_of
from spyker.compression.settings import CompressionSettings
from spyker.protocol.client_coder import ClientCoder
from spyker.protocol.codec import MalformedMessage, Sizes, as_json, decode, encode, expected, lengths, size_in_bytes
from spyker.protocol.coded_messages import coded_kind
from spyker.protocol.messages import Join, Model, Update
from spyker.protocol.public_model import KEPT, Difference, KnownModel, PublicModel
from spyker.protocol.server_coder import ServerCoder
from spyker.vectors import Vector

SIZES = Sizes(80, 2, 3)
SETTINGS = CompressionSettings(models="int4")
CLIENTS = 3


def vector(seed: int) -> Vector:
    return np.random.default_rng(seed).normal(size=SIZES.parameters).astype(np.float32)


def model(weights: Vector, version: int) -> Model:
    return Model(weights, float(version), version, 0.1)


STEPS = st.lists(
    st.tuples(st.sampled_from(["same", "next", "lost", "new client", "answer"]), st.integers(0, CLIENTS - 1)),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_a_client_trains_the_model_that_its_server_means(steps: list[tuple[str, int]]) -> None:
    """A message may be lost, if the client answers another one or connects again before it is sent the next one."""
    server = ServerCoder(SETTINGS, SIZES, difference=True)
    clients = [ClientCoder(SETTINGS, SIZES) for _ in range(CLIENTS)]
    weights, version, tasks = vector(0), 0, dict[int, int]()
    for what, k in steps:
        if what == "answer":
            if k in tasks:
                server.decode(k, Update(weights, 0.0, tasks.pop(k)), weights)
            continue
        if what == "new client":
            clients[k] = ClientCoder(SETTINGS, SIZES)
            server.decode(k, Join(1), weights)
            tasks.pop(k, None)
        if what == "next":
            version += 1
            weights = weights + vector(version) * np.float32(0.1)
        sent, meant = server.encode_model(k, model(weights, version))
        if what != "lost":
            found = clients[k].decode(sent)
            assert isinstance(found, Model)
            assert found.weights.tobytes() == meant.tobytes()
            assert found.weights == pytest.approx(weights, abs=0.5)
            assert found.weights[-3:] == pytest.approx(weights[-3:], rel=1e-5), "buffers"
            tasks[k] = version
        else:
            tasks.pop(k, None)


def test_in_rounds_each_model_costs_one_step_and_errors_do_not_grow() -> None:
    server = ServerCoder(SETTINGS, SIZES, difference=True)
    clients = [ClientCoder(SETTINGS, SIZES) for _ in range(CLIENTS)]
    weights = vector(0)
    for version in range(30):
        for k, client in enumerate(clients):
            sent, _ = server.encode_model(k, model(weights, version))
            found = client.decode(sent)
            assert isinstance(found, Model)
            if version:
                assert sent.weights.size == sum(size_of("int4", *SIZES[::2]))
                assert size_in_bytes(sent) == 64 + sent.weights.size
            assert np.abs(found.weights - weights).max() < 0.06
            server.decode(k, Update(weights, 0.0, version), weights)
        weights = weights + vector(version + 1) * np.float32(0.1)


def test_models_of_their_own_cost_little_more_than_one_difference() -> None:
    server = ServerCoder(SETTINGS, SIZES, difference=True)
    client_coders = [ClientCoder(SETTINGS, SIZES) for _ in range(CLIENTS)]
    weights, coded, unit = vector(0), 0, sum(size_of("int4", *SIZES[::2]))
    for version in range(120):
        k = version % CLIENTS
        sent, _ = server.encode_model(k, model(weights, version))
        client_coders[k].decode(sent)
        server.decode(k, Update(weights, 0.0, version), weights)
        coded += sent.weights.size if version >= CLIENTS else 0
        weights = weights + vector(version + 1) * np.float32(0.1)
    assert coded < 1.5 * 120 * unit


def test_a_client_that_missed_many_steps_is_sent_the_public_model() -> None:
    public, weights = PublicModel("int4", SIZES), vector(0)
    known = KnownModel("int4", SIZES)
    known.told(public.tell(weights, 0, 1)[0])
    for i in range(1, KEPT + 2):
        weights = weights + vector(i)
        difference, meant = public.tell(weights, 1, 1)
        assert (difference.whole.size > 0) == (i > KEPT)
    assert known.told(difference).tobytes() == meant.tobytes()


def test_a_client_refuses_differences_from_what_it_does_not_have() -> None:
    known, nothing, unit = KnownModel("int4", SIZES), np.empty(0, np.float32), sum(size_of("int4", *SIZES[::2]))
    some = np.zeros(unit, np.uint8)
    for number in (0, 1):
        with pytest.raises(MalformedMessage, match="where 0 is known"):
            known.told(Difference(number, number, nothing, some))
    known.told(Difference(5, 5, vector(0), some[:0]))
    for base, number, coded in ((5, 7, some), (5, 4, some), (5, 6, some[:0]), (5, 5, np.zeros(2 * unit, np.uint8))):
        with pytest.raises(MalformedMessage, match="lead from public model 5"):
            known.told(Difference(base, number, nothing, coded))
    with pytest.raises(MalformedMessage, match="80 are expected"):
        known.told(Difference(5, 5, vector(0)[:7], some))


def test_a_coded_model_survives_the_wire_and_one_of_another_length_does_not() -> None:
    server = ServerCoder(SETTINGS, SIZES, difference=True)
    sent, _ = server.encode_model(0, model(vector(0), 0))
    kind = coded_kind(Model, "int4")
    assert type(sent) is kind
    numbers, arrays = encode(sent)
    claimed = lengths(arrays, kind)
    assert [(a.dtype, a.size) for a in arrays] == expected(kind, claimed, SIZES)
    again = decode(kind, as_json(numbers), arrays, SIZES)
    found, same = ClientCoder(SETTINGS, SIZES).decode(again), vector(0)
    assert isinstance(found, Model)
    assert (found.weights == same).all()
    unit = sum(size_of("int4", *SIZES[::2]))
    for wrong in ([unit - 1, 80], [(KEPT + 2) * unit, 80], [unit, 81], [unit]):
        with pytest.raises(MalformedMessage, match="entries are not allowed"):
            expected(kind, wrong, SIZES)
