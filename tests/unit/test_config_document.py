"""docs/config.md: every key of every section, generated."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path

from tianji.config import key
from tianji.config.binder import facts_of
from tianji.config.wrappers import WrapperConfig

PAGE = Path(__file__).parents[2] / "docs" / "config.md"
sys.path.append(str(PAGE.parent))
from config_page import SECTIONS, document, main  # noqa: E402  # no part of the package


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == main(), (
        "run: python docs/config_page.py > docs/config.md"
    )


def test_every_key_says_what_it_is() -> None:
    for _, kind in (*SECTIONS, ("wrappers", WrapperConfig)):
        for field in dataclasses.fields(kind):
            assert facts_of(field).meaning, f"{kind.__name__}.{field.name}"


def test_an_algorithm_of_ones_own_can_be_documented() -> None:
    @dataclass(frozen=True)
    class Hyp:
        """Keys of mine."""

        lr: float = key(0.1, "step size", above=0)
        steps: int | None = None

    page = document([("hyp of mine", Hyp)])
    assert "## hyp of mine\n\nKeys of mine.\n" in page
    assert "| `lr` | float | `0.1` | step size; greater than 0 |" in page
    assert "| `steps` | int or None | `None` |  |" in page
