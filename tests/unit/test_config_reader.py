"""The reader: what a config file may hold, and what is said about everything else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tianji.config.reader import parse, parse_value, read_text
from tianji.config.section import DEFAULT, Place, Section, plain
from tianji.core.errors import TianJiError

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read(text: str) -> dict[str, Any]:
    return parse(text, "a.py").names.plain()


def refusal(text: str) -> str:
    with pytest.raises(TianJiError) as caught:
        parse(text, "a.py")
    return str(caught.value)


def test_dicts_lists_and_literals_are_read() -> None:
    text = '''"""A docstring."""
n: int = 4  # 注释 任何语言
a = dict(x=1, y=[1, 2.5, (True, None)], z={"k": 'v' "w"})
'''
    assert read(text) == {
        "n": 4,
        "a": {"x": 1, "y": (1, 2.5, (True, None)), "z": {"k": "vw"}},
    }


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", 14),
        ("-(7 // 2) % 5", 2),
        ("2 ** 10 / 4", 256.0),
        ("+1e4", 1e4),
        ("[1] * 3 + [2]", (1, 1, 1, 2)),
        ("'a' + 'b' * 2", "abb"),
    ],
)
def test_arithmetic_is_calculated(expression: str, value: object) -> None:
    assert read(f"x = {expression}") == {"x": value}


def test_earlier_names_can_be_used_and_merged() -> None:
    text = "n = 2\nbase = dict(a=n, b=n * 2)\nc = dict(base, b=9)\nd = dict(**base, e=1)\ne = {**c}"
    names = read(text)
    assert names["c"] == names["e"] == {"a": 2, "b": 9}
    assert names["d"] == {"a": 2, "b": 4, "e": 1}


def test_names_that_others_are_made_of_are_remembered() -> None:
    assert parse("n = 2\nm = n\nk = 3", "a.py").used == {"n"}


def test_every_key_knows_its_line() -> None:
    section = parse("base = dict(a=1)\nc = dict(base,\n  b=2,\n  **{'d': 3})", "a.py").names["c"]
    assert [str(section.at(key)) for key in "abd"] == ["a.py:1", "a.py:3", "a.py:4"]
    assert str(section.place) == "a.py:2"


def test_default_is_a_key_without_a_value() -> None:
    section = parse("a = dict(x=default, y=1)", "a.py").names["a"]
    assert dict(section) == {"y": 1}
    assert section.written == ("y", "x")


def test_a_later_value_replaces_default_and_the_other_way_round() -> None:
    names = parse("a = dict(x=default, y=1)\nb = dict(a, x=2, y=default)", "a.py").names
    assert dict(names["b"]) == {"x": 2}
    assert list(names["b"].defaulted) == ["y"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import os", "a.py:1: found 'import os'; a config holds only"),
        ("x = 1\ny = open('f')", "a.py:2: found \"open('f')\"; "),
        ("x = a.b", "found 'a.b'"),
        ("x = [i for i in y]", "found '[i for i in y]'"),
        ("x = f'{1}'", "found \"f'{1}'"),
        ("x = lambda: 1", "found 'lambda: 1'"),
        ("x = y = 1", "found an assignment to something else than one name"),
        ("x, y = 1, 2", "found an assignment to something else than one name"),
        ("x: int", "found an assignment to something else than one name"),
        ("x += 1", "found 'x += 1'"),
        ("1 + 1", "found '1 + 1'"),
        ("x = b'1'", "found b'1'"),
        ("x = 2j", "found 2j"),
        ("x = ...", "found Ellipsis"),
        ("x = [*y]", "found '*y'"),
        ("x = 1 << 9", "found '1 << 9'"),
        ("x = not True", "found 'not True'"),
        ("x = dict(\n  a=1,\n  a=2)", "a.py:3: the key 'a' stands twice"),
        ("x = {'a': 1, 'a': 2}", "the key 'a' stands twice"),
        ("x = {1: 2}", "the keys of a dict must be strings"),
        ("x = dict([1])", "only a dict can be merged into a dict, found (1,)"),
        ("x = dict({}, {})", "found a second value without a name"),
        (
            "model = 1\nx = modle",
            "a.py:2: the name 'modle' is not given above. Did you mean 'model'?",
        ),
        ("x = y", "a.py:1: the name 'y' is not given above"),
        ("x = [default]", "`default` stands for the default of a key"),
        ("default = 1", "`default` means our default; use another name"),
        ("x = 1 + default", "cannot calculate with 1 and default"),
        ("x = True + 1", "cannot calculate with True and 1"),
        ("x = '%9d' % 1", "cannot calculate with '%9d' and 1"),
        ("x = -'a'", "cannot calculate with 'a'"),
        ("x = 1 / 0", "cannot calculate this: division by zero"),
        ("x = 10.0 ** 400", "cannot calculate this"),
        ("x = 9 ** 9 ** 9", "this number is too large"),
        ("x = 2 ** 63 + 1", "this number is too large"),
        ("x = 0x" + "f" * 9000, "this number is too large"),
        ("x = 1e999", "this number is too large"),
        ("x = (-8) ** 0.5", "not a real number"),
        ("x = 'a' * 10 ** 9", "this is longer than 10,000"),
        ("x = [0] * 10 ** 9", "this is longer than 10,000"),
        ("a = [0] * 1000\nb = [a, a, a] * 4", "a.py:2: too large: at most 10,000 values"),
        ("x = (\n1,\n2", "a.py:1: not a config: '(' was never closed"),
        ("x = 1\n  y = 2", "a.py:2: not a config: unexpected indent"),
        ("x = '\0'", "not a config: "),
    ],
)
def test_anything_else_is_refused_with_its_line(text: str, message: str) -> None:
    assert message in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 150 + "]" * 150,
        "x = " + "[" * 60 + "]" * 60,
        "x = " + "-" * 5000 + "1",
        "x = " + "dict(a=" * 90 + "1" + ")" * 90,
        "x = " + "1+" * 5000 + "1",
        "x = []\n" + "x = [x]\n" * 2000,
    ],
    ids=["brackets", "lists", "signs", "dicts", "sums", "names"],
)
def test_deep_nesting_is_an_error_and_no_crash(text: str) -> None:
    assert refusal(text).startswith("a.py")


def test_a_missing_file_gets_the_nearest_name(tmp_path: Any) -> None:
    (tmp_path / "cartpole.py").write_text("")
    with pytest.raises(TianJiError, match=r"no such file\. Did you mean 'cartpole.py'\?"):
        read_text(str(tmp_path / "cartpol.py"))
    (tmp_path / "e7.py").write_text("")
    with pytest.raises(TianJiError, match=r"no such file$"):
        read_text(str(tmp_path / "nope.py"))
    with pytest.raises(TianJiError, match="no such file"):
        read_text(str(tmp_path / "no" / "folder.py"))


def test_a_folder_is_no_config(tmp_path: Any) -> None:
    with pytest.raises(TianJiError, match="this is a folder"):
        read_text(str(tmp_path))


def test_a_file_that_is_not_utf8_names_the_line(tmp_path: Any) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"x = 1\n# \xff\n")
    with pytest.raises(TianJiError, match=r"a\.py:2: this line is not UTF-8"):
        read_text(str(path))


def test_a_byte_order_mark_and_windows_lines_are_fine(tmp_path: Any) -> None:
    path = tmp_path / "a.py"
    path.write_bytes("\ufeffx = 1\r\ny = '天机'\r\n".encode())
    assert read(read_text(str(path))) == {"x": 1, "y": "天机"}


def test_a_huge_file_is_not_read(tmp_path: Any) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"#" * 1_000_001)
    with pytest.raises(TianJiError, match="larger than"):
        read_text(str(path))


def test_a_file_without_permission_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(TianJiError, match=r"^'a\.py' cannot be read"):
        read_text("a.py")


def test_a_path_that_cannot_exist_is_an_error() -> None:
    for path in ("a\0b", "a" * 5000):
        with pytest.raises(TianJiError):
            read_text(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", 0.1),
        ("[64, 64]", (64, 64)),
        ("Acrobot-v1", "Acrobot-v1"),
        ("ALE/Pong-v5", "ALE/Pong-v5"),
        ("my_env:MyEnv", "my_env:MyEnv"),
        ("3m", "3m"),
        ("None", None),
        ("True", True),
        ("'two words'", "two words"),
        ("2 ** 4", 16),
        ("default", DEFAULT),
    ],
)
def test_a_bare_word_on_the_command_line_is_a_string(text: str, value: object) -> None:
    assert parse_value(text, Place("--set a.b")) == value


def test_a_value_that_cannot_be_read_names_the_option() -> None:
    with pytest.raises(TianJiError, match=r"^--set a\.b: cannot read the value '\[1,'"):
        parse_value("[1,", Place("--set a.b"))


literals = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@unhurried
@given(literals)
def test_nested_literals_come_back_as_they_were(value: Any) -> None:
    read_back = parse(f"x = {value!r}", "a.py").names.get("x")
    assert plain(read_back) == value


@unhurried
@given(literals)
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    assert Section.of({"x": value}, Place()).plain() == {"x": value}


WORDS = "a b x = == ( ) [ ] { } , : . + - * ** / % dict default None 1 2.5 'c' \n \t # lambda \\ é"
words = st.sampled_from(WORDS.split(" "))


@unhurried
@given(st.text() | st.lists(words, max_size=30).map(" ".join) | st.binary().map(repr))
def test_any_text_is_read_or_refused(text: str) -> None:
    for attempt in (text, f"x = {text}", f"x = dict(a={text})"):
        try:
            parse(attempt, "a.py")
        except TianJiError as error:
            assert str(error).startswith("a.py")
