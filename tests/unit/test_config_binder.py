"""Binding: sections become typed dataclasses, and wrong ones become messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from tianji.config import REQUIRED, Section, bind, key
from tianji.config.reader import parse
from tianji.core.errors import TianJiError


@dataclass(frozen=True)
class Inner:
    depth: int = key(3, "how deep", at_least=1)


@dataclass(frozen=True)
class Hyp:
    lr: float = key(1e-3, "step size", above=0)
    n: int = key(4, "how many", at_least=1, at_most=9)
    flag: bool = False
    name: str = "a"
    mode: Literal["sync", "async"] = "sync"
    limit: int | None = None
    ratio: float | Literal["serial"] = "serial"
    sizes: tuple[int, ...] = key((1, 2), "sizes", at_least=1, aliases=("shape",))
    inner: Inner = Inner()
    extra: Mapping[str, Any] = key({}, "anything")
    idle: int | None = key(None, "old", no_effect="it is old")


def hyp(arguments: str, notices: list[str] | None = None) -> Hyp:
    return bind(Hyp, parse(f"hyp = dict({arguments})", "a.py").names["hyp"], "hyp", notices)


def refusal(arguments: str) -> str:
    with pytest.raises(TianJiError) as caught:
        hyp(arguments)
    return str(caught.value)


def test_nothing_written_is_all_defaults() -> None:
    assert bind(Hyp, Section()) == Hyp()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("LR=1, N=2", Hyp(lr=1.0, n=2)),
        ("n=8e0", Hyp(n=8)),
        ("limit=None", Hyp()),
        ("limit=1e4", Hyp(limit=10_000)),
        ("ratio=2", Hyp(ratio=2.0)),
        ("ratio='serial', mode='async'", Hyp(mode="async")),
        ("sizes=[3, 4.0]", Hyp(sizes=(3, 4))),
        ("Shape=()", Hyp(sizes=())),
        ("inner=dict(DEPTH=7)", Hyp(inner=Inner(7))),
        ("extra=dict(a=dict(b=[1]))", Hyp(extra={"a": {"b": (1,)}})),
        ("lr=default, n=default, inner=default, flag=True", Hyp(flag=True)),
    ],
)
def test_values_are_typed(arguments: str, expected: Hyp) -> None:
    assert hyp(arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("n=1,\nlrr=1", "a.py:2: hyp has no key 'lrr'. Did you mean 'lr'?"),
        ("zzzzz=default", "a.py:1: hyp has no key 'zzzzz'. Its keys: extra, flag, "),
        ("n=True", "a.py:1: hyp.n must be a whole number, found True"),
        ("n=1.5", "a.py:1: hyp.n must be a whole number, found 1.5"),
        ("lr=True", "hyp.lr must be a number, found True"),
        ("lr='1'", "hyp.lr must be a number, found '1'"),
        ("flag=1", "hyp.flag must be True or False, found 1"),
        ("name=1", "hyp.name must be a string, found 1"),
        (
            "mode='asinc'",
            "hyp.mode must be 'sync' or 'async', found 'asinc'. Did you mean 'async'?",
        ),
        ("limit='x'", "hyp.limit must be a whole number or None, found 'x'"),
        ("ratio='x'", "hyp.ratio must be a number or 'serial', found 'x'"),
        ("sizes=3", "hyp.sizes must be a list, each item a whole number, found 3"),
        ("sizes=[1, 'a']", "hyp.sizes must be a list, each item a whole number, found (1, 'a')"),
        ("sizes=[1, 0]", "hyp.sizes must be at least 1, found 0"),
        ("inner=3", "hyp.inner must be dict(...), found 3"),
        ("inner=dict(\ndept=3)", "a.py:2: inner has no key 'dept'. Did you mean 'depth'?"),
        ("inner=dict(depth=0)", "a.py:1: inner.depth must be at least 1, found 0"),
        ("extra=3", "hyp.extra must be dict(...), found 3"),
        ("lr=0", "hyp.lr must be greater than 0, found 0.0"),
        ("N=10", "hyp.N must be at most 9, found 10"),
        ("lr=1,\nLR=2", "a.py:2: hyp: 'lr' and 'LR' are the same key"),
    ],
)
def test_wrong_values_name_line_and_wish(arguments: str, message: str) -> None:
    assert message in refusal(arguments)


def test_a_long_value_is_cut_in_the_message() -> None:
    assert len(refusal(f"n={'a' * 500!r}")) < 120


def test_a_key_without_effect_is_told_once_and_only_if_written() -> None:
    notices: list[str] = []
    hyp("lr=1", notices)
    hyp("idle=default", notices)
    assert notices == []
    hyp("lr=1,\nidle=2", notices)
    assert notices == ["a.py:2: hyp.idle has no effect here: it is old"]


def test_a_key_without_default_must_be_given() -> None:
    @dataclass(frozen=True)
    class Needy:
        a: int = key(REQUIRED, "must be given")

    assert bind(Needy, Section({"A": 1})) == Needy(1)
    with pytest.raises(TianJiError, match="hyp needs the key 'a'"):
        bind(Needy, Section())


def test_what_the_dataclass_refuses_is_an_error_at_the_section() -> None:
    @dataclass(frozen=True)
    class Checked:
        a: int = 1

        def __post_init__(self) -> None:
            if self.a > 5:
                raise ValueError("a is over 5")

        def check(self) -> str | None:
            return "a is odd" if self.a % 2 else None

    section = parse("\nhyp = dict(a=7)\nodd = dict(a=3)", "a.py").names
    with pytest.raises(TianJiError, match=r"^a\.py:2: hyp: a is over 5$"):
        bind(Checked, section["hyp"])
    with pytest.raises(TianJiError, match=r"^a\.py:3: hyp: a is odd$"):
        bind(Checked, section["odd"])


def test_an_annotation_that_no_config_can_fill_is_named() -> None:
    @dataclass(frozen=True)
    class Odd:
        a: complex = 1j

    @dataclass(frozen=True)
    class Missing:
        a: Nowhere = 1  # type: ignore[name-defined]  # noqa: F821  the subject of the test

    with pytest.raises(TianJiError, match=r"Odd\.a: a config cannot hold"):
        bind(Odd, Section())
    with pytest.raises(TianJiError, match="Nowhere"):
        bind(Missing, Section())
