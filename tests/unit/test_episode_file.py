"""`episodes.csv`: written line by line, cut where a run was interrupted, read with all steps."""

import numpy as np
import pytest

from tianji.core.errors import TianJiError
from tianji.observe.episode_file import FILE, HEAD, EpisodeFile, Line, read, write


def test_what_was_written_is_read(tmp_path):
    file = EpisodeFile(tmp_path)
    file.add([Line(0.1, 0, 10, 0, 1.5, 10), Line(0.2, 0, 25, 1, 2.0, 15)])
    file.add([])
    file.add([Line(0.3, 0, 40, 2, -0.1, 15)])
    file.close()
    found = read(tmp_path)
    assert found.steps.tolist() == [10, 25, 40]
    assert found.version.tolist() == [0, 1, 2]
    assert found.returned.tolist() == [1.5, 2.0, -0.1]
    assert found.length.tolist() == [10, 15, 15]


def test_a_run_that_keeps_no_episodes_has_no_file(tmp_path):
    EpisodeFile(tmp_path).close()
    assert not (tmp_path / FILE).exists()


def test_a_resumed_run_goes_on_after_the_episodes_that_its_checkpoint_knew(tmp_path):
    write(tmp_path, [Line(0.1 * i, 0, 10 * i, 0, float(i), 10) for i in range(1, 6)])
    file = EpisodeFile(tmp_path, kept=3)
    file.add([Line(0.9, 0, 44, 0, 9.0, 14)])
    file.close()
    assert read(tmp_path).returned.tolist() == [1, 2, 3, 9]


def test_a_resumed_run_goes_on_after_lines_that_nobody_can_read(tmp_path):
    (tmp_path / FILE).write_bytes(b"\xff\n1,\xff\n2\r\n3")
    file = EpisodeFile(tmp_path, kept=10**30)
    file.add([Line(0.9, 0, 44, 0, 9.0, 14)])
    file.close()
    assert (tmp_path / FILE).read_bytes().startswith(HEAD.encode() + b"\n1,\xff\n2\n3\n0.9,")
    with pytest.raises(TianJiError, match="is damaged"):
        read(tmp_path)


def test_the_steps_of_all_actors_are_added_up(tmp_path):
    """One actor makes 100 steps a second and says so each second, the other 10 each half."""
    mine = [Line(float(t), 0, 100 * t, 0, 0.0, 100) for t in range(1, 5)]
    other = [Line(t / 2, 1, 5 * t, 0, 1.0, 5) for t in range(1, 10)]
    write(tmp_path, mine + other)
    found = read(tmp_path)
    assert (np.diff(found.steps) >= 0).all()
    ours = found.steps[found.returned == 0.0]
    assert ours.tolist() == pytest.approx([110, 220, 330, 440])
    theirs = found.steps[found.returned == 1.0]
    assert theirs[:8].tolist() == pytest.approx([55 * t for t in range(1, 9)])


def test_episodes_that_ended_together_are_in_the_same_order_whoever_wrote_them(tmp_path):
    lines = [Line(1.0, 0, 50, 0, r, n) for r, n in ((3.0, 3), (1.0, 2), (1.0, 1))]
    write(tmp_path, lines)
    first = read(tmp_path)
    write(tmp_path, lines[::-1])
    second = read(tmp_path)
    assert first.returned.tolist() == second.returned.tolist() == [1, 1, 3]
    assert first.length.tolist() == second.length.tolist()


def test_a_file_without_episodes_is_an_empty_history(tmp_path):
    write(tmp_path, [])
    assert read(tmp_path).steps.size == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "exp.keep_episodes"),
        ("a,b\n", HEAD),
        (f"{HEAD}\n1,2\n1,2,3,4,5,6\n", "damaged"),
        (f"{HEAD}\n1,2,3\n4,5,6\n", "damaged"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path, text, said):
    if text is not None:
        (tmp_path / FILE).write_text(text)
    with pytest.raises(TianJiError, match=said):
        read(tmp_path)
