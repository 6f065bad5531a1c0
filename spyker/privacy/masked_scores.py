"""Scores that ride along with masked updates: numbers of a wide range, in words that are added modulo 2³².

A number is a fixed-point number of 64 bits, and each of its words has 16 of them: 65,536 words can be added without
overflow. So losses and accuracies need no scale that clients and server would have to agree on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spyker.privacy.fixed_point import Residues

WORDS = 4  # of a number
BITS = 16  # of a word
FRACTION = 24  # bits after the point
MOST_SCORES = 32
LARGEST = float(1 << 22)  # a score that can be added 65,536 times
MOST_ADDED = 1 << 16


def encode_scores(values: Sequence[float]) -> Residues:
    """Return numbers of at most ``LARGEST`` as words."""
    words = np.zeros(len(values) * WORDS, np.uint32)
    for place, value in enumerate(values):
        number = round(value * (1 << FRACTION)) % (1 << WORDS * BITS)
        for word in range(WORDS):
            words[place * WORDS + word] = number >> BITS * word & (1 << BITS) - 1
    return words


def decode_scores(words: Residues) -> list[float]:
    """Return the numbers that sums of words represent."""
    numbers = []
    for start in range(0, len(words), WORDS):
        number = sum(int(each) << BITS * word for word, each in enumerate(words[start : start + WORDS]))
        number %= 1 << WORDS * BITS
        negative = number >> WORDS * BITS - 1
        numbers.append((number - (negative << WORDS * BITS)) / (1 << FRACTION))
    return numbers
