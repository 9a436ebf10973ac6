"""Figure 1 as `plan --simulate` draws it: whose cores, and what is said about them."""

import pytest
from profiles import profile

from tianji.cli.main import parser
from tianji.core.errors import TianJiError
from tianji.strategy.simulate.simulate_options import check, run
from tianji.strategy.simulate.styles import STYLES

JOB = profile(step=2e-3, receive=60e-6, draw=1e-4, trajectory_bytes=50_000)


def said(*words):
    """The words as the command line reads and checks them."""
    options = parser(["plan"]).parse_args(["plan", "my_job.py", "--simulate", *map(str, words)])
    check(options)
    return options


CHEAP = profile(step=1e-4, update=10e-3, draw=1e-4, receive=20e-6)  # one actor is enough


def test_ours_is_what_a_plan_makes_of_the_cores_unless_a_layout_is_named(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    run(CHEAP, said("--styles", "a3c,ours", "--cores-list", "16"))
    out = capsys.readouterr().out
    assert "ours: 4 cores (2 groups, one is drawn), idle" in out
    assert "ours: what a plan makes of 5 cores, L2A2; the others have as many actors as fit" in out
    a3c, ours = (line.split() for line in out.splitlines() if line[:5] in ("A3C  ", "ours "))
    assert ours[1] == a3c[1] == "L2A2" and float(ours[5].replace(",", "")) > float(
        a3c[5].replace(",", "")
    )
    run(CHEAP, said("--styles", "ours", "--actors", 4))
    out = capsys.readouterr().out
    assert "ours: 5 cores, idle" in out and "what a plan makes" not in out
    assert "ours: 4 actors make more than the learner takes, and are held back; a balanced" in out
    run(CHEAP, said("--styles", "ours", "--groups", 2))
    out = capsys.readouterr().out  # one of the groups, with as many actors as the table has
    assert "ours: 2 cores, idle" in out and "are held back" not in out


def test_figures_say_what_they_leave_out(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    run(JOB, said("--styles", "gorila", "--actors", 2))
    assert "(contention) is not in this table" in capsys.readouterr().out


def test_training_in_turns_is_said_to_be_gorilas_schedule(capsys):
    turns = profile(batch=512, pool=512, warmup=0, on_policy=True, alternates=True)
    run(turns, said("--styles", "gorila,ours"))
    assert "ours: synchronous training takes turns, and so it has Gorila's schedule" in (
        " ".join(capsys.readouterr().out.split())
    )


def test_styles_are_drawn_and_written(capsys, tmp_path):
    run(JOB, said("--actors", "3", "--styles", "gorila,ours", "--figure", str(tmp_path / "f.svg")))
    out = capsys.readouterr().out
    assert "Gorila: 4 cores" in out and "ours: 4 cores" in out and "SEED" not in out
    assert (tmp_path / "f.svg").read_text().startswith("<svg ")


@pytest.mark.parametrize(
    "words, names",
    [("ours,Gorila", ("ours", "gorila")), ("SEED, ApeX", ("seed", "apex")), ("All", STYLES)],
)
def test_styles_are_taken_as_the_tables_write_them(words, names):
    assert said("--styles", words).styles == names


def test_a_figure_alone_has_all_styles(tmp_path, capsys):
    run(JOB, said("--actors", "2", "--figure", str(tmp_path / "f.svg")))
    assert "A3C" in (tmp_path / "f.svg").read_text()


def test_a_figure_takes_the_place_of_a_figure_alone(tmp_path, capsys):
    """Before anything is measured or simulated."""
    mine, other = tmp_path / "f.svg", tmp_path / "logo.svg"
    for _ in range(2):
        run(JOB, said("--actors", "2", "--figure", mine))
    other.write_text("<svg>drawn by hand</svg>")
    with pytest.raises(TianJiError, match="was not written by `tianji plan --figure`"):
        said("--actors", "2", "--figure", other)
    assert other.read_text() == "<svg>drawn by hand</svg>"
