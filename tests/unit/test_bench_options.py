"""What the scripts of bench/ answer to options that cannot be meant."""

import argparse
import importlib
import os
import sys

import benches
import pytest
from options import (
    BENCH,
    ROOT,
    Options,
    at_least,
    count,
    existing_file,
    number,
    number_from,
    out_folder,
    positive,
    some_of,
)

SCRIPTS = sorted(
    path.stem for path in benches.BENCH.glob("*.py") if '__name__ == "__main__"' in path.read_text()
)
N_CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    "kind, text, found",
    [
        (positive, "0.5", 0.5),
        (number, "-2", -2.0),
        (number_from(2), "2", 2.0),
        (count, "1", 1),
        (at_least(0, 3), "3", 3),
        (some_of("abc"), "ca", "ca"),
    ],
)
def test_what_is_good_is_read(kind, text, found):
    assert kind(text) == found


@pytest.mark.parametrize(
    "kind, text, wanted",
    [
        (positive, "0", "want a number above 0, got '0'"),
        (positive, "-1", "want a number above 0, got '-1'"),
        (positive, "inf", "want a number, got 'inf'"),
        (number, "ten", "want a number, got 'ten'"),
        (number_from(2), "1.9", "want a number, 2 or more, got '1.9'"),
        (count, "0", "want a whole number, 1 or more, got '0'"),
        (count, "1.5", "want a whole number, 1 or more, got '1.5'"),
        (count, "", "want a whole number, 1 or more, got ''"),
        (at_least(1, 2, "why"), "99", r"want a whole number, from 1 to 2 \(why\), got '99'"),
        (some_of("abc"), "az", "want some of the letters abc, got 'az'"),
        (some_of("abc"), "", "want some of the letters abc, got ''"),
        (existing_file, "no/such.py", "want a file that exists, got 'no/such.py'"),
        (out_folder, __file__, "want a folder, got"),
        (out_folder, __file__ + "/below", "want a folder, got"),
    ],
)
def test_what_is_not_says_what_was_wanted_and_what_was_found(kind, text, wanted):
    with pytest.raises(argparse.ArgumentTypeError, match=wanted):
        kind(text)


def test_a_folder_need_not_exist_yet(tmp_path):
    assert out_folder(str(tmp_path / "a" / "b")) == tmp_path / "a" / "b"


def test_a_mistake_is_answered_with_one_line_and_status_2(capsys):
    options = Options("what it does")
    options.add_seeds()
    with pytest.raises(SystemExit) as ended:
        options.parse_args(["--seeds", "1", "two"])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.count("\n") == 1
    assert "--seeds: want a whole number, 0 or more, got 'two'" in said


@pytest.mark.parametrize(
    "line, wanted",
    [
        ("table1 --seconds 0", "--seconds: want a number above 0, got '0'"),
        ("table1 --actors 8 3", "--actors: L2A3: the actors cannot be shared out evenly"),
        ("table1 --ways free", "--ways: invalid choice: 'free'"),
        ("table1 --lag 0", "--lag: want a whole number, 1 or more"),
        ("scaling --parts z", "--parts: want some of the letters abc, got 'z'"),
        ("staleness --repeats 0", "--repeats: want a whole number, 1 or more, got '0'"),
        ("staleness --lags -2", "--lags: want a whole number, 1 or more, got '-2'"),
        ("ablation --seeds", "--seeds: expected at least one argument"),
        ("ablation --best L2A3", "--best: L2A3: the actors cannot be shared out evenly"),
        ("actors --step-seconds -1", "--step-seconds: want a number, 0 or more, got '-1'"),
        ("ratelimit --total 0", "--total: want a number above 0, got '0'"),
        ("gossip --groups 1", "--groups: want a whole number, 2 or more, got '1'"),
        (f"plan --cores {N_CORES + 1}", f"--cores: want a whole number, from 1 to {N_CORES} (the"),
        ("plan --config none.py", "--config: want a file that exists, got 'none.py'"),
        ("plan --set nothing.at.all=1", "there is no section 'nothing'"),
        ("compare --tasks chess", "--tasks: invalid choice: 'chess'"),
        ("compare --timeout -1", "--timeout: want a number above 0, got '-1'"),
        ("startup --actors 0", "--actors: want a whole number, 1 or more, got '0'"),
        ("channel --idle-seconds 0", "--idle-seconds: want a number above 0, got '0'"),
        ("allreduce --processes 1", "--processes: want a whole number, 2 or more, got '1'"),
        ("overlap --messages 0", "--messages: want a whole number, 1 or more, got '0'"),
        ("rebalance --scenarios rain", "--scenarios: invalid choice: 'rain'"),
        ("rebalance --seconds 1", "--seconds: want a number, 3 or more, got '1'"),
        ("simulator --seconds 0", "--seconds: want a number, 2 or more, got '0'"),
        ("trace_cost --engines mpi", "--engines: invalid choice: 'mpi'"),
        ("upkeep --windows 1", "--windows: want a whole number, 2 or more, got '1'"),
        ("report --times 0", "--times: want a whole number, 1 or more, got '0'"),
        ("pong --systems nobody", "--systems: invalid choice: 'nobody'"),
        ("plain_pong --envs 1", "--envs: want a whole number, 2 or more, got '1'"),
        ("figure4 --parts c", "--parts: want some of the letters abd, got 'c'"),
        ("figure9 --games chess", "--games: invalid choice: 'chess'"),
        ("figure10 --maps 5m", "--maps: invalid choice: '5m'"),
        ("lockstep --tasks chess", "--tasks: invalid choice: 'chess'"),
        ("figure11 --seconds 0", "--seconds: want a number above 0, got '0'"),
        ("gpu --parts none", "--parts: invalid choice: 'none'"),
        ("peers --peers nobody", "--peers: invalid choice: 'nobody'"),
    ],
)
def test_no_script_begins_with_an_option_that_makes_no_sense(line, wanted, monkeypatch, capsys):
    name, *words = line.split()
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(name).main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert wanted in said and said.startswith(f"{name}.py: ") and said.count("\n") == 1


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_readme_says_what_every_script_measures(name):
    lines = (benches.BENCH / "README.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    assert any(f"`{name}.py`" in row.split("|")[1] for row in rows)


def test_no_script_is_called_like_a_folder_that_commands_make():
    """Beside `runs/` the linter would take a module `runs` for one of the project's own."""
    lines = (ROOT / ".gitignore").read_text().splitlines()
    ignored = {line.strip("/") for line in lines if line.endswith("/")}
    assert "runs" in ignored
    assert not ignored & {path.stem for path in BENCH.glob("*.py")}
