"""MNIST: 28 × 28 grey images of handwritten digits, 60,000 for training and 10,000 for testing."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

from spyker.tasks.data.dataset import Array, Dataset, PreparedArray, RawFile, SourceError

FILES = {
    "train-images": "train-images-idx3-ubyte",
    "train-labels": "train-labels-idx1-ubyte",
    "test-images": "t10k-images-idx3-ubyte",
    "test-labels": "t10k-labels-idx1-ubyte",
}


def parse(content: Mapping[str, bytes]) -> dict[str, Array]:
    """Parse the four files."""
    return {name: idx(content[file]) for name, file in FILES.items()}


def idx(content: bytes) -> Array:
    """Parse a file in the idx format whose elements are unsigned bytes."""
    if content[:3] != b"\0\0\x08" or len(content) < 4:
        raise SourceError("is not an idx file of unsigned bytes")
    rank = content[3]
    shape = struct.unpack_from(f">{rank}I", content, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)


CHECKSUMS = {
    "train-images-idx3-ubyte": "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte": "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte": "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte": "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
MNIST = Dataset(
    "mnist",
    "MNIST, 60,000 + 10,000 handwritten digits",
    (
        RawFile(
            "train-images-idx3-ubyte", 47_040_016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
        ),
        RawFile("train-labels-idx1-ubyte", 60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        RawFile(
            "t10k-images-idx3-ubyte", 7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
        ),
        RawFile("t10k-labels-idx1-ubyte", 10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    ),
    (
        PreparedArray(
            "train-images", "|u1", (60_000, 28, 28), "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757"
        ),
        PreparedArray(
            "train-labels", "|u1", (60_000,), "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13"
        ),
        PreparedArray(
            "test-images", "|u1", (10_000, 28, 28), "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161"
        ),
        PreparedArray(
            "test-labels", "|u1", (10_000,), "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5"
        ),
    ),
    parse,
    "https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz",
    CHECKSUMS,
)
