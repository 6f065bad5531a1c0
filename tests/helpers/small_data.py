"""Small datasets with real file formats, and a catalogue that holds them instead of the real ones."""

import dataclasses
import gzip
import hashlib
import lzma
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from spyker.tasks.data.catalogue import DATASETS
from spyker.tasks.data.dataset import Dataset, PreparedArray, RawFile

TRAIN, TEST = 200, 40
NOWHERE = "http://127.0.0.1:9/{name}"


def idx(array: np.ndarray) -> bytes:
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def mnist_files() -> dict[str, bytes]:
    """Ten labels, each with a stripe of its own: easy to learn."""
    random = np.random.default_rng(0)
    content = {}
    for prefix, count in (("train", TRAIN), ("t10k", TEST)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        images = random.integers(0, 60, (count, 28, 28), np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[4 + 2 * label : 6 + 2 * label] = 255
        content[f"{prefix}-images-idx3-ubyte"] = idx(images)
        content[f"{prefix}-labels-idx1-ubyte"] = idx(labels)
    return content


def cifar10_files() -> dict[str, bytes]:
    random = np.random.default_rng(0)
    content = {}
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        rows = random.integers(0, 256, (TEST, 3073), np.uint8)
        rows[:, 0] = np.arange(TEST) % 10
        content[f"{name}.bin"] = rows.tobytes()
    return content


def wikitext2_files() -> dict[str, bytes]:
    text = " = Spyker = \n The spider spins – and spins – a web of <unk> . \n" * 40
    return {"train.txt": text.encode(), "test.txt": text[:1000].encode()}


FILES = {"mnist": mnist_files, "cifar10": cifar10_files, "wikitext2": wikitext2_files}


def small(name: str) -> Dataset:
    """A dataset like the real one of this name, with other files, and nobody else who has them."""
    content, real = FILES[name](), DATASETS[name]
    arrays = real.parse(content)
    return dataclasses.replace(
        real,
        files=tuple(
            dataclasses.replace(f, size=len(content[f.name]), sha256=hashlib.sha256(content[f.name]).hexdigest())
            for f in real.files
        ),
        arrays=tuple(prepared(p.name, arrays[p.name]) for p in real.arrays),
        url=NOWHERE,
        checksums={},
    )


def prepared(name: str, array: np.ndarray) -> PreparedArray:
    return PreparedArray(name, array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).hexdigest())


def tiny() -> tuple[Dataset, dict[str, bytes]]:
    """Two files of bytes."""
    content = {"one": bytes(range(100)), "two": b"two" * 50}

    def parse(files: Mapping[str, bytes]) -> dict[str, np.ndarray]:
        return {name: np.frombuffer(data, np.uint8) for name, data in files.items()}

    files = tuple(RawFile(n, len(c), hashlib.sha256(c).hexdigest(), (f"{n}.other",)) for n, c in content.items())
    arrays = tuple(prepared(n, a) for n, a in parse(content).items())
    return Dataset("tiny", "two files", files, arrays, parse, NOWHERE), content


def write_files(folder: Path, content: Mapping[str, bytes], packing: str = "") -> Path:
    """Put files where a user would."""
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[packing]
    folder.mkdir(parents=True)
    for name, data in content.items():
        (folder / f"{name}{packing}").write_bytes(pack(data))
    return folder
