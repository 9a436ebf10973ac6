"""Options of the scripts: what an option may be, and one line that says what was wrong with it.

Nothing but the standard library, because scripts of other environments (SB3, RLlib) use it too.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
CONFIGS = ROOT / "configs"
OUT = BENCH / "out"
SEEDS = (1, 2, 3)
T = TypeVar("T")


class Options(argparse.ArgumentParser):
    """A parser that shows its description as it is written, and answers a mistake with one line."""

    def __init__(self, description: str | None) -> None:
        super().__init__(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )

    def add_seeds(self, default: Sequence[int] | None = SEEDS) -> None:
        """`--seeds 1 2 3`."""
        self.add_argument("--seeds", type=whole, nargs="+", default=default, help="default: 1 2 3")

    def add_out(self, default: Path, meaning: str = "folder of what is written") -> None:
        """`--out FOLDER`; it is made where it does not exist."""
        self.add_argument("--out", type=out_folder, default=default, help=meaning)

    def error(self, message: str) -> NoReturn:
        """What was found and what is wanted; `--help` has the rest."""
        self.exit(2, f"{self.prog}: {message}\n")


def number(text: str) -> float:
    """Any number that is one."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise argparse.ArgumentTypeError(f"want a number, got {text!r}")
    return found


def positive(text: str) -> float:
    """A number above 0."""
    return _checked(number(text), text, "a number above 0", lambda value: value > 0)


def number_from(least: float) -> Callable[[str], float]:
    """A number that is not below `least`."""

    def read(text: str) -> float:
        return _checked(number(text), text, f"a number, {least:g} or more", lambda v: v >= least)

    return read


def at_least(least: int, most: int | None = None, reason: str = "") -> Callable[[str], int]:
    """A whole number from `least` on, up to `most`; `reason` says why there is a bound."""
    bounds = f"{least} or more" if most is None else f"from {least} to {most}"
    wanted = f"a whole number, {bounds}{reason and f' ({reason})'}"

    def read(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"want {wanted}, got {text!r}") from None
        return _checked(found, text, wanted, lambda n: n >= least and (most is None or n <= most))

    return read


count = at_least(1)
whole = at_least(0)


def cores() -> Callable[[str], int]:
    """A number of cores that this process may use."""
    return at_least(1, len(os.sched_getaffinity(0)), "the cores that are there")


def some_of(letters: str) -> Callable[[str], str]:
    """One or more of these letters."""

    def read(text: str) -> str:
        wanted = f"some of the letters {letters}"
        return _checked(text, text, wanted, lambda found: bool(found) and set(found) <= {*letters})

    return read


def existing_file(text: str) -> Path:
    """A file that is there."""
    return _checked(Path(text).resolve(), text, "a file that exists", Path.is_file)


def out_folder(text: str) -> Path:
    """A folder, or the name of one that can be made."""

    def is_one(path: Path) -> bool:
        nearest = next(each for each in (path, *path.absolute().parents) if each.exists())
        return nearest.is_dir()

    return _checked(Path(text), text, "a folder", is_one)


def _checked(value: T, text: str, wanted: str, is_good: Callable[[T], bool]) -> T:
    if not is_good(value):
        raise argparse.ArgumentTypeError(f"want {wanted}, got {text!r}")
    return value
