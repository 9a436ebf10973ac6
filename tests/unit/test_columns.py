"""Tables of plain text keep every character of every cell."""

import shlex

import pytest

from tianji.core.columns import aligned, command, fitted, labelled, wrapped

TABLE = [("name", "steps", "seconds", "limit"), ("first", "1,000", "2.5", "a long reason for it")]


def test_words_stand_to_the_left_and_numbers_to_the_right():
    assert aligned(
        [("name", "steps", "limit"), ("a", "1,000", "x"), ("bb", "7", "yy")], (0, -1)
    ) == [
        "name  steps  limit",
        "a     1,000  x",
        "bb        7  yy",
    ]


def test_the_first_column_has_words_if_nothing_else_is_said():
    assert aligned([("", "n"), ("long name", "12")]) == ["            n", "long name  12"]


def test_no_line_ends_in_blanks_and_no_cell_is_cut():
    rows = [("", "x" * 200, "note"), ("y" * 90, "1", "")]
    lines = aligned(rows, (0, 2))
    assert all(line == line.rstrip() for line in lines)
    assert [line.split() for line in lines] == [["x" * 200, "note"], ["y" * 90, "1"]]


def test_a_table_of_its_head_alone_is_one_line():
    assert aligned([("a", "b")]) == ["a  b"]


def test_a_row_of_another_length_is_a_mistake():
    with pytest.raises(ValueError, match="shorter"):
        aligned([("a", "b"), ("c",)])


def test_a_table_that_fits_is_whole():
    assert fitted(TABLE, None, (0, -1), ["steps"]) == aligned(TABLE, (0, -1))
    assert fitted(TABLE, 44, (0, -1), ["steps"]) == aligned(TABLE, (0, -1))


def test_the_least_important_columns_go_first_and_are_named():
    lines = fitted(TABLE, 39, (0, -1), ["steps", "seconds"])
    assert lines[:2] == ["name   seconds  limit", "first      2.5  a long reason for it"]
    said = " ".join(" ".join(lines[2:]).split())
    assert said == "left out: steps (a terminal of 43 columns shows all)"
    assert max(map(len, lines)) <= 39


def test_a_column_that_went_in_vain_comes_back():
    """Without `n` alone the table is too wide; without the long one `n` has room again."""
    rows = [("name", "n", "a very long number", "end"), ("first", "7", "1", "x")]
    assert fitted(rows, 14, (0,), ["n", "a very long number"])[:2] == [
        "name   n  end",
        "first  7    x",
    ]


def test_words_in_the_last_column_go_on_below_themselves():
    assert fitted(TABLE, 42, (0, -1)) == [
        "name   steps  seconds  limit",
        "first  1,000      2.5  a long reason for",
        "                       it",
    ]


def test_no_word_is_cut_even_where_there_is_no_room_for_it():
    text = "training-bound: see https://example.org/a-very-long-address --plan"
    lines = wrapped(text, 20, indent=4)
    assert " ".join(lines).split() == text.split()
    assert [line[:4] == "    " for line in lines] == [False] + [True] * (len(lines) - 1)
    assert wrapped(text, None) == [text]
    assert wrapped("", 20, first="note: ") == ["note:"]


def test_words_behind_a_label_begin_in_one_column():
    assert labelled("plan", "one two three four", 20, 8).splitlines() == [
        "  plan    one two",
        "          three four",
    ]


@pytest.mark.parametrize("width", [None, 36, 50, 80])
def test_a_command_can_be_copied_into_a_shell(width):
    words = [
        "tianji",
        "train",
        "my job.py",
        "--set",
        "a.b=1",
        "--set",
        "c={'x y': 2}",
        "--plan",
        "p",
    ]
    first, *rest = command(words, width, "to train: ")
    copied = "\n".join([first.removeprefix("to train:"), *rest])
    assert shlex.split(copied.replace("\\\n", " ")) == words
    if width is not None:
        assert max(map(len, [first, *rest])) <= width
        assert all(line.endswith(" \\") for line in rest[:-1])
