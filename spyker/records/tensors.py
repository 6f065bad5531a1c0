"""Writing of safetensors files, which can be read without executing code.

Arrays are written directly from memory, in the given order. The library's own function copies all data first and
orders metadata differently in every process.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from spyker.protocol.codec import Array

BLOCK = 1 << 20  # bytes that are checksummed and written while in cache
TYPES = {"b1": "BOOL"} | {f"{k}{n}": f"{k.upper()}{8 * n}" for k in "fiu" for n in (1, 2, 4, 8) if (k, n) != ("f", 1)}


def write_tensors(
    path: Path, tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Write a file and return the checksum of each tensor."""
    header: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for key, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        header[key] = {"dtype": TYPES[tensor.dtype.str[1:]], "shape": tensor.shape, "data_offsets": [begin, end]}
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)  # alignment
    checksums = {}
    with path.open("wb", buffering=0) as file:
        file.write(struct.pack("<Q", len(words)) + words)
        for key, tensor in tensors.items():
            raw, checksum = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data, 0
            for start in range(0, len(raw), BLOCK):
                block = raw[start : start + BLOCK]
                checksum = zlib.crc32(block, checksum)
                while block:  # a nearly full disk may accept only a part
                    block = block[file.write(block) :]
            checksums[key] = checksum
    return checksums
