"""The hand-written part of the wire is what the schema says."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spyker.net import frames
from spyker.net import spyker_pb2 as pb
from spyker.net.frames import CHUNK, FRAME_LIMIT, ChunkReceiver, Rejection, in_one_piece, send, split, with_chunk

SCHEMA = Path(frames.__file__).with_name("spyker.proto")
CONTENT = pb.Content(kind="update", fields=b"{}")
BODY = pb.Frame(update=pb.Update(task_token=b"token", content=CONTENT)).SerializeToString()


def test_the_generated_code_is_that_of_the_schema(tmp_path: Path) -> None:
    out = [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I", str(SCHEMA.parent), *out, str(SCHEMA)], check=True)
    for name in ("spyker_pb2.py", "spyker_pb2.pyi"):
        assert plain(tmp_path / name) == plain(SCHEMA.with_name(name)), f"make {name} anew"


def plain(path: Path) -> str:
    """Generated code but for the version that it was generated for: ours is the oldest that is allowed."""
    text = re.sub(r"Protobuf Python Version: [\d.]+", "", path.read_text())
    return re.sub(r"(?<=Domain\.PUBLIC,\n)(\s+\d+,\n){3}", "", text)


@pytest.mark.parametrize("size", [1, 127, 128, 16_383, 16_384, CHUNK])
@pytest.mark.parametrize("body", [b"", BODY])
def test_a_chunk_is_written_as_the_generated_code_would(size: int, body: bytes) -> None:
    chunk = np.random.default_rng(size).bytes(size)
    written = with_chunk(memoryview(chunk), body)
    frame = pb.Frame.FromString(body)
    frame.chunk = chunk
    assert written == frame.SerializeToString()
    found, rest = split(written)
    assert found == chunk
    assert (rest is None) == (body == b"")


def test_a_chunk_is_found_wherever_it_stands() -> None:
    chunk = b"\x0a\x03abc"
    found, frame = split(BODY + chunk)
    assert found == b"abc"
    assert frame is not None
    assert frame.update.task_token == b"token"


@pytest.mark.parametrize(
    "data", [b"\x0a", b"\x0a\xff", b"\x0a\x05abc", b"\xff\xff", b"\x0a\x01a\x0a\x01b", bytes(FRAME_LIMIT + 1)]
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(Rejection):
        split(data)


def test_the_length_of_a_chunk_ends_after_five_bytes() -> None:
    with pytest.raises(Rejection, match="length"):
        split(b"\x0a" + b"\xff" * (FRAME_LIMIT - 1))  # reading all of it as a number takes minutes


@pytest.mark.filterwarnings("error")  # their squares overflow
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, -3e38, 1.1e30])
def test_weights_whose_mix_might_not_be_finite_are_refused(value: float) -> None:
    weights = np.ones(100, np.float32)
    weights[42] = value
    raw = memoryview(weights).cast("B")
    with pytest.raises(Rejection, match="not-finite"):
        in_one_piece(raw)
    with pytest.raises(Rejection, match="not-finite"):
        ChunkReceiver(np.empty(100, np.float32)).add(raw)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [0.0, 1e-45, 9e29, -9e29])
def test_weights_that_are_numbers_pass(value: float) -> None:
    in_one_piece(memoryview(np.full(100, value, np.float32)).cast("B"))


@pytest.mark.parametrize("count", [1, 1000, CHUNK // 4, CHUNK // 4 + 1, 3 * CHUNK // 4 - 1])
def test_a_vector_arrives_as_it_was_sent(count: int) -> None:
    vector = np.random.default_rng(count).normal(size=count).astype(np.float32)
    vector.flags.writeable = False  # as snapshots are
    written: list[bytes] = []

    async def write(frame: bytes) -> None:
        assert len(frame) <= FRAME_LIMIT
        written.append(frame)

    size = asyncio.run(send(write, BODY, [vector]))
    assert size == 4 * count + len(BODY)
    received = np.empty(count, np.float32)
    intake = ChunkReceiver(received, max_norm=1e6)
    for position, data in enumerate(written):
        assert not intake.whole
        chunk, frame = split(data)
        assert (frame is not None) == (position == 0)
        assert chunk is not None
        intake.add(chunk)
    assert intake.whole
    assert np.array_equal(received, vector)


def test_the_norm_counts_over_all_chunks() -> None:
    intake = ChunkReceiver(np.empty(4, np.float32), max_norm=2.0)
    intake.add(memoryview(np.full(2, 1.1, np.float32)).cast("B"))
    with pytest.raises(Rejection, match="norm"):
        intake.add(memoryview(np.full(2, 1.1, np.float32)).cast("B"))
