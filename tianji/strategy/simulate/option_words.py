"""What the words after an option of `--simulate` are read as."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from tianji.strategy.simulate.styles import STYLES

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


def names(said: str) -> tuple[str, ...]:
    """Some of the styles, or `all`."""
    lower = said.lower()  # the tables write Gorila and SEED
    found = STYLES if lower == "all" else tuple(word.strip() for word in lower.split(","))
    if not set(found) <= set(STYLES):
        raise argparse.ArgumentTypeError(f"want all, or some of {','.join(STYLES)}, got {said}")
    return found


def svg(said: str) -> Path:
    """The name of a picture."""
    if not said.endswith(".svg"):
        raise argparse.ArgumentTypeError(f"want a name that ends with .svg, got {said}")
    return Path(said)
