"""CIFAR-10: 32 × 32 colour photographs of ten classes, 50,000 for training and 10,000 for testing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from spyker.tasks.data.dataset import Array, Dataset, PreparedArray, RawFile

TRAIN, TEST = tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",)
RECORD = 1 + 3 * 32 * 32


def parse(content: Mapping[str, bytes]) -> dict[str, Array]:
    """Parse the binary version: records of a label and 3 × 32 × 32 pixels, channels first."""
    arrays = {}
    for split, batches in (("train", TRAIN), ("test", TEST)):
        rows = np.concatenate([np.frombuffer(content[f"{b}.bin"], np.uint8).reshape(-1, RECORD) for b in batches])
        arrays[f"{split}-images"] = rows[:, 1:].reshape(-1, 3, 32, 32)
        arrays[f"{split}-labels"] = np.ascontiguousarray(rows[:, 0])
    return arrays


SIZE = 10_000 * RECORD
CIFAR10 = Dataset(
    "cifar10",
    "CIFAR-10, 50,000 + 10,000 photographs of ten classes",
    (
        RawFile("data_batch_1.bin", SIZE, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
        RawFile("data_batch_2.bin", SIZE, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
        RawFile("data_batch_3.bin", SIZE, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
        RawFile("data_batch_4.bin", SIZE, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
        RawFile("data_batch_5.bin", SIZE, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
        RawFile("test_batch.bin", SIZE, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    ),
    (
        PreparedArray(
            "train-images",
            "|u1",
            (50_000, 3, 32, 32),
            "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111",
        ),
        PreparedArray(
            "train-labels", "|u1", (50_000,), "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253"
        ),
        PreparedArray(
            "test-images",
            "|u1",
            (10_000, 3, 32, 32),
            "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
        ),
        PreparedArray(
            "test-labels", "|u1", (10_000,), "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5"
        ),
    ),
    parse,
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    {"": "md5:c32a1d4ab5d03f1284b67883e8d87530"},  # as its authors publish it
)
