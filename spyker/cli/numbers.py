"""Numbers that options take, for argparse's ``type=``: what is out of range is refused with the option's name."""

from __future__ import annotations

import argparse
import math


def above_zero(text: str) -> float:
    """A finite number greater than 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("It must be greater than 0")
    return value


def zero_or_more(text: str) -> float:
    """A finite number that is not negative."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError("It must be 0 or more")
    return value


def count(text: str) -> int:
    """A whole number greater than 0."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("It must be a whole number greater than 0")
    return value
