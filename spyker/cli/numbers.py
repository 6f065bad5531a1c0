"""Number types for argparse's ``type=``, with range checks."""

from __future__ import annotations

import argparse
import math


def above_zero(text: str) -> float:
    """Parse a finite number greater than 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("It must be greater than 0")
    return value


def zero_or_more(text: str) -> float:
    """Parse a finite number that is not negative."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError("It must be 0 or more")
    return value


def count(text: str) -> int:
    """Parse an integer greater than 0."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("It must be an integer greater than 0")
    return value
