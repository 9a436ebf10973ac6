"""Whether what a file says can have been measured or planned: every number in its range."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

Range = tuple[Callable[[float], bool], str]

AT_LEAST_ONE: Range = (lambda n: n >= 1, "at least 1")
ABOVE_ZERO: Range = (lambda n: n > 0, "more than 0")
SHARE: Range = (lambda n: 0 <= n <= 1, "from 0 to 1")
NOT_NEGATIVE: Range = (lambda n: n >= 0, "0 or more")

OTHERS: dict[str, Range] = {
    **dict.fromkeys(("cores", "learner_cores", "groups", "hosts", "learners"), AT_LEAST_ONE),
    **dict.fromkeys(("actors", "envs", "steps", "batch", "pool", "rollouts"), AT_LEAST_ONE),
    **dict.fromkeys(("send_interval", "fusion_interval", "contention"), AT_LEAST_ONE),
    **dict.fromkeys(("step_seconds", "update_seconds", "ratio", "on_gpu"), ABOVE_ZERO),
    "link_bytes_per_second": ABOVE_ZERO,
    **dict.fromkeys(("computing", "freshness", "unevenness"), SHARE),
}
"""What is more than not negative, by the name of the field."""

ENDLESS = "knee"  # where receiving costs nothing, any number of actors
NEVER_EMPTY = ("actors", "learners")  # lists of costs


def refuse_out_of_range(record: Any, where: str) -> None:
    """Raises a ValueError that names the first number of a dataclass that cannot be."""
    for field in fields(record):
        _refuse(getattr(record, field.name), field.name, f"{where}.{field.name}")


def _refuse(value: Any, name: str, where: str) -> None:
    if is_dataclass(value):
        refuse_out_of_range(value, where)
    elif isinstance(value, tuple):
        if not value and name in NEVER_EMPTY:
            raise ValueError(f"{where} is empty, want at least one cost")
        for i, item in enumerate(value):
            _refuse(item, name, f"{where}[{i}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        is_in, wanted = OTHERS.get(name, NOT_NEGATIVE)
        if not is_in(value) or (math.isinf(value) and name != ENDLESS):
            raise ValueError(f"{where} is {value}, want {wanted}")
