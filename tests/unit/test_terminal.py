"""What is said beside the results, as wide as the place that it is said in."""

import io

import pytest

from tianji.core import terminal


class Terminal(io.StringIO):
    """A stream that says it is a terminal, of which nobody knows the size."""

    def isatty(self):
        return True

    def fileno(self):
        raise OSError


def narrow(monkeypatch):
    """Standard error, as a terminal of 40 columns."""
    stream = Terminal()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stderr", stream)
    return stream


def test_a_note_goes_on_below_its_words(monkeypatch):
    error = narrow(monkeypatch)
    terminal.say("note", "four actors share two cores: tianji plan CONFIG splits them")
    assert error.getvalue().splitlines() == [
        "note: four actors share two cores:",
        "      tianji plan CONFIG splits them",
    ]


def test_what_somebody_has_laid_out_stays_as_it_is(monkeypatch):
    error = narrow(monkeypatch)
    trace = "Traceback (most recent call last):\n" + "    " + "word " * 20 + "\n\nValueError: no"
    terminal.say("tianji", trace)
    lines = error.getvalue().splitlines()
    assert "    " + "word " * 20 in lines and lines[-2:] == ["", "ValueError: no"]


def test_a_file_gets_a_note_in_one_line(capsys):
    terminal.say("note", "word " * 50)
    assert capsys.readouterr().err == f"note: {'word ' * 50}\n"


@pytest.mark.parametrize(("said", "width"), [("81", 81), ("7", terminal.NARROWEST), ("0", None)])
def test_the_width_that_was_said_is_the_width(monkeypatch, capsys, said, width):
    monkeypatch.setenv("COLUMNS", said)
    assert terminal.width() == width


def test_a_status_line_is_written_over_and_taken_away(monkeypatch):
    error = narrow(monkeypatch)
    status = terminal.StatusLine(quiet=False)
    status("one")
    status("x" * 99)
    status.over()
    shown = error.getvalue().split("\r\x1b[2K")
    assert shown[1] == "measuring: one" and shown[-1] == ""
    assert len(shown[2]) == 39  # a longer one would leave a line behind


def test_a_status_that_nobody_sees_is_a_line_or_nothing(capsys):
    for status, words in (
        (terminal.StatusLine(quiet=False), "measuring: one\n"),
        (terminal.StatusLine(quiet=False, only_live=True), ""),
        (terminal.StatusLine(quiet=True), ""),
    ):
        status("one")
        status.over()
        assert capsys.readouterr().err == words
