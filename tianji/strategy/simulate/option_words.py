"""What the words after an option of `--simulate` are read as."""

from __future__ import annotations

import argparse
import math

MOST_SPREAD = 0.5


def numbers(said: str) -> list[int]:
    """Numbers from 1, each once, in order."""
    words = [word.strip() for word in said.split(",") if word.strip()]
    if not words or not all(word.isdecimal() and int(word) for word in words):
        raise argparse.ArgumentTypeError(
            f"want numbers from 1 with commas, as in 16,256,10000, got {said}"
        )
    return sorted({int(word) for word in words})


def speed(said: str) -> float:
    """A number above 0."""
    number = _float(said)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"want a speed above 0, as in 10, got {said}")
    return number


def share(said: str) -> float:
    """A number from 0 to `MOST_SPREAD`."""
    number = _float(said)
    if not 0 <= number <= MOST_SPREAD:
        raise argparse.ArgumentTypeError(
            f"want a share from 0 to {MOST_SPREAD:g}, as in 0.1, got {said}"
        )
    return number


def _float(said: str) -> float:
    try:
        return float(said)
    except ValueError:
        return math.nan
