"""What drawings are made of."""

import xml.etree.ElementTree as xml

import pytest

from tianji.core import terminal
from tianji.observe import svg


@pytest.mark.parametrize(
    ("least", "step"),
    [(1.0, 1), (1.1, 2), (3, 5), (5.1, 10), (0.03, 0.05), (0.2, 0.2), (999, 1_000), (2e-7, 2e-7)],
)
def test_a_step_is_the_next_round_number(least, step):
    assert svg.round_step(least) == pytest.approx(step)


def test_a_page_is_xml_whatever_the_words_are():
    page = svg.page(30, 20, [svg.text(1, 2.5, "a < b & c"), svg.rect(0, 0, 1.5, 2, "#ffffff")])
    root = xml.fromstring(page)
    assert (root.get("width"), root.get("height")) == ("30", "20")
    (words,) = root.iter("{http://www.w3.org/2000/svg}text")
    assert (words.text, words.get("x"), words.get("y")) == ("a < b & c", "1", "2.5")


def test_a_pipe_has_as_many_columns_as_one_likes_unless_it_is_said(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    assert terminal.columns(123) == 123
    monkeypatch.setenv("COLUMNS", "81")
    assert terminal.columns(123) == 81


def test_a_line_has_what_else_it_is_given():
    line = xml.fromstring(svg.line(1, 2.5, 3, 4, "#000000", ' stroke-width="3"'))
    there = dict(x1="1", y1="2.5", x2="3", y2="4", stroke="#000000") | {"stroke-width": "3"}
    assert line.attrib == there
