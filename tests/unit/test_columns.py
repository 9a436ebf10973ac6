"""Tables of plain text keep every character of every cell."""

import pytest

from tianji.columns import aligned


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
