"""Numbers as words say them."""

from __future__ import annotations

from collections.abc import Sequence

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
MOST_NAMED = 8  # numbers in a message


def count_of(n: int, word: str) -> str:
    """As in `1 core`, `1,024 cores` and `2 processes`."""
    ending = "es" if word.endswith("s") else "s"
    return f"{n:,} {word}{ending * (n != 1)}"


def one_of(numbers: Sequence[int]) -> str:
    """As in `1, 2 or 4`; of many only the first and the last ones."""
    words = [f"{n:,}" for n in numbers]
    if len(words) > MOST_NAMED:
        words = [*words[: MOST_NAMED - 2], "...", words[-1]]
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def number(value: float | None) -> str:
    """As in `12,345`, `12.3`, `1.23` or `7`: with what matters of it; `-` of nothing."""
    if value is None:
        return "-"
    size = abs(value)
    if not size < 1000 or value == round(value):  # nor is a nan
        return f"{value:,.0f}"
    return f"{value:,.1f}" if size >= 10 else f"{value:.3g}"


def percent(share: float) -> str:
    """As in `83 %`."""
    return f"{share:.0%}".replace("%", " %")


def per_second(rate: float) -> str:
    """As in `12,345`, `4.2` or `0.031`: what happens now and then is not nothing."""
    return f"{rate:,.0f}" if rate >= 9.95 or not rate else f"{rate:.2g}"


def duration(seconds: float) -> str:
    """As in `1.5 s`, `20 ms` or `0.8 us`."""
    size, unit = unit_of(seconds)
    return f"{seconds / size:.3g} {unit}"


def unit_of(seconds: float) -> tuple[float, str]:
    """The largest of which there is at least one in three digits, in seconds, and its name."""
    return next(((size, unit) for size, unit in UNITS if seconds >= 0.9995 * size), UNITS[-1])
