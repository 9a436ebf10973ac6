"""The options of `plan --simulate`, what they print and what they refuse."""

import argparse
import dataclasses
import json

import pytest
from profiles import profile

from tianji.cli import parser
from tianji.errors import TianJiError
from tianji.planning.profile import LearnerCost
from tianji.simulation.layout import Layout
from tianji.simulation.verb import _learner_cores, add_arguments, run

JOB = profile(step=2e-3, receive=60e-6, draw=1e-4, trajectory_bytes=50_000)


def said(*words, into=None):
    into = into or argparse.ArgumentParser()
    add_arguments(into)
    return into.parse_args(["--simulate", *words])


def columns(out):
    """The lines of the first table, by its header's words."""
    lines = out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.split()[:2] == ["cores", "groups"])
    rows = []
    for line in lines[first + 1 :]:
        if not line:
            return rows
        rows.append(line.split())
    return rows


def test_without_a_layout_the_balanced_group_is_replicated(capsys):
    assert run(JOB, said()) == 0
    out = capsys.readouterr().out
    rows = columns(out)
    cores = [int(row[0].replace(",", "")) for row in rows]
    assert len(rows) == 10 and 9_000 < cores[-1] <= 10_000 and cores == sorted(cores)
    assert "knee of equation 1" in out and "links of 10 Gbit/s are assumed" in out


def test_the_cores_that_were_named_are_simulated(capsys):
    run(JOB, said("--cores-list", "64, 16,64"))
    assert len(columns(capsys.readouterr().out)) == 2


def test_a_layout_that_was_named_is_the_only_one(capsys):
    run(JOB, said("--groups", "3", "--actors", "5", "--hosts", "3", "--link-gbit", "1"))
    (row,) = columns(capsys.readouterr().out)
    assert row[0] == "18" and row[1] == "3"


def test_actors_that_were_not_named_are_those_of_the_balance(capsys):
    run(JOB, said("--groups", "2"))
    (row,) = columns(capsys.readouterr().out)
    assert int(row[5]) > 10  # after the three words of `1 x 1`


def test_several_numbers_of_actors_are_a_curve(capsys):
    """Figure 6a: production rises with the actors, consumption up to what the learner can do."""
    run(JOB, said("--actors-list", "1,8,64,256"))
    rows = columns(capsys.readouterr().out)
    consumed = [float(row[9].replace(",", "")) for row in rows]
    assert consumed[0] < consumed[1] < consumed[2] == pytest.approx(consumed[3], rel=0.02)
    assert [row[-1] for row in rows] == ["sample-bound"] * 2 + ["training-bound"] * 2


def test_styles_are_drawn_and_written(capsys, tmp_path):
    run(JOB, said("--actors", "3", "--styles", "gorila,ours", "--figure", str(tmp_path / "f.svg")))
    out = capsys.readouterr().out
    assert "Gorila: 4 cores" in out and "ours: 4 cores" in out and "SEED" not in out
    assert (tmp_path / "f.svg").read_text().startswith("<svg ")


def test_a_figure_alone_has_all_styles(tmp_path, capsys):
    run(JOB, said("--actors", "2", "--figure", str(tmp_path / "f.svg")))
    assert "A3C" in (tmp_path / "f.svg").read_text()


def test_the_results_are_written_as_json(capsys, tmp_path):
    run(JOB, said("--actors", "2", "--simulated", str(tmp_path / "s.json")))
    (row,) = json.loads((tmp_path / "s.json").read_text())
    assert row["layout"]["actors"] == 2 and row["production"] > 0


def test_options_that_the_verb_has_already_are_left_to_it(capsys):
    own = argparse.ArgumentParser()
    own.add_argument("--hosts", type=int, default=2)
    options = said("--actors", "4", "--link-gbit", "1", into=own)
    assert options.hosts == 2
    assert run(JOB, options) == 0


def test_learner_cores_that_were_not_named_are_those_that_make_most_of_a_core():
    wide = LearnerCost(4, 128, JOB.learners[0].update_seconds / 8, 1e-4, 1)
    job = dataclasses.replace(JOB, learners=(*JOB.learners, wide))
    assert _learner_cores(job, Layout()) == 4
    assert _learner_cores(JOB, Layout()) == 1


def test_the_verb_of_the_command_line_has_the_options():
    options = parser(["plan", "my_job.py"]).parse_args(
        ["plan", "my_job.py", "--simulate", "--actors", "4", "--link-gbit", "1", "--hosts", "2"]
    )
    assert run(JOB, options) == 0


@pytest.mark.parametrize(
    "words, message",
    [
        (["--cores-list", "16,many"], "--cores-list 16,many: want numbers"),
        (["--cores-list", "1"], "1 cores: one group needs 2"),
        (["--actors", "0"], "actors: want at least 1"),
        (["--actors-list", "0"], "--actors-list 0: want numbers from 1"),
        (["--groups", "0"], "groups: want at least 1"),
        (["--link-gbit", "0", "--hosts", "2"], "--link-gbit 0: want a speed above 0"),
        (["--spread", "2"], "--spread 2: want a share"),
        (["--host-cores", "0"], "--host-cores 0"),
        (["--styles", "impala"], "--styles impala: want some of"),
        (["--figure", "f.pdf"], "ends with .svg"),
        (["--actors", "1", "--simulated", "/nowhere/s.json"], "--simulated /nowhere/s.json"),
        (["--gpu"], "without a GPU"),
    ],
)
def test_what_cannot_be_done_is_said(words, message, capsys):
    with pytest.raises(TianJiError, match=message):
        run(JOB, said(*words))
