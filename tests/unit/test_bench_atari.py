"""What the Atari scripts of bench/ make of their numbers, without a run."""

import csv
import json
import math
import os
import sys
import xml.etree.ElementTree

import benches  # noqa: F401  # makes bench/ importable
import beside
import courses
import figure9
import gpu
import numpy as np
import plain_dqn
import pong
import pytest
import sf
import torch
from courses import CONSUMPTION, LEARNED, RETURN
from curves import read_training
from figures import Course, draw
from measures import Spread

from tianji.config import load


def summary(**more):
    role = {"idle": 0.25}
    return {
        "mean_return_100": None,
        "final_time_seconds": None,
        "startup_seconds": 2.0,
        "stop_return": 18.0,
        "training_seconds": 4.0,
        "env_steps": 1000,
        "production_per_second": 250.0,
        "consumption_per_second": 125.0,
        "roles": {"actor-0.0": role, "actor-0.1": {"idle": 0.75}, "learner-0.0": role},
    } | more


def run_of(folder, means, **more):
    rows = [
        {
            "time/time_elapsed": float(i),
            "env_steps": 10 * i,
            RETURN: mean,
            LEARNED: mean,
            CONSUMPTION: 100.0,
        }
        for i, mean in enumerate(means)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "summary.json").write_text(json.dumps(summary(**more)))
    return read_training(folder)


def test_a_run_that_did_not_arrive_took_for_ever(tmp_path):
    done = run_of(tmp_path, [None, -20.0, -12.5, -13.0])
    assert done.curve() == [(1.0, -20.0), (2.0, -12.5), (3.0, -13.0)]
    assert done.best() == -12.5
    assert done.final_seconds == done.process_seconds == math.inf


def test_time_counts_from_the_roles_or_from_the_process(tmp_path):
    done = run_of(tmp_path, [], final_time_seconds=60.0, mean_return_100=18.1)
    assert (done.final_seconds, done.process_seconds, done.best()) == (60.0, 62.0, 18.1)


def test_a_course_holds_the_last_value_and_begins_with_the_first():
    def row(points):
        return {"curves": {RETURN: points}}

    rows = [row([(0.0, 1.0), (10.0, 3.0)]), row([(5.0, 5.0)]), row([])]
    found = courses.course(rows)
    assert found[0] == (0.0, Spread(1.0, 1.0, 1.0))
    assert found[50] == (5.0, Spread(3.0, 1.0, 5.0))
    assert found[-1] == (10.0, Spread(4.0, 3.0, 5.0))
    assert courses.course([row([])]) == []


def test_a_figure_has_a_line_for_every_system_and_the_returns_of_others(tmp_path):
    row = courses.row_of(run_of(tmp_path, [-20.0, -15.0], mean_return_100=-15.0))
    rows = [{"game": "pong", "system": name, "seed": 1, **row} for name in ("TianJi", "Ape-X")]
    lines = [line.split(" | ") for line in courses.table(rows, "about").splitlines()]
    assert [line[1] for line in lines if line[0] == "| Pong"] == ["TianJi", "Ape-X"]
    assert lines[-1][3:6] == ["-15.0", "-15.0", "never"] and lines[-1][-3:-1] == ["-20.7", "14.6"]
    drawn = courses.panels(rows)
    assert isinstance(drawn[0], Course) and set(drawn[0].lines) == {"TianJi", "Ape-X"}
    root = xml.etree.ElementTree.fromstring(draw(drawn))
    words = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Pong", "Ape-X", "random", "samples/s"} <= words
    assert "human" not in words  # far above: it would press the lines flat
    courses.write_curves(rows, tmp_path / "curves.csv")
    points = list(csv.DictReader((tmp_path / "curves.csv").read_text().splitlines()))
    assert len(points) == 2 * 3 * 2 and points[0]["value"] == "-20.0"
    assert [point["env_steps"] for point in points[:2]] == ["0", "10"]
    assert courses.course(rows, "steps")[-1] == (10, Spread(-15.0, -15.0, -15.0))
    assert courses.panels(rows, "steps")[0].x_label == "steps"


@pytest.mark.parametrize("game", courses.GAMES)
def test_every_game_of_a_figure_has_its_presets_and_references(game):
    kinds = ["fast", "paper_ppo", "paper_dqn"]
    assert all(courses.preset(kind, game).is_file() for kind in kinds)
    assert courses.name_of(game) in courses.preset("fast", game).read_text()
    assert len(courses.REFERENCE[game]) == 3


@pytest.mark.parametrize("game", courses.GAMES)
def test_every_game_of_a_figure_has_settings_for_two_cores(game):
    case = figure9.case("laptop", game)
    config = load(case.config, case.settings)
    environment = config.environment
    assert (environment.game, config.stop_return) == (courses.name_of(game), None)
    assert {"life", "fire"} <= {wrapper.type for wrapper in environment.wrappers}


def runs(system, *seconds):
    about = {"mean_return": 18.0, "env_steps": 1e5, "cpu_seconds": 1.0}
    rates = {"samples_per_second": 1.0, "steps_per_second": 1.0}
    return [{"system": system, "seconds": s, **about, **rates} for s in seconds]


def test_the_ratio_of_medians_is_ours_over_the_plain_loops():
    rows = runs("ours", 90, 110, 100) + runs("plain", 200, 190, 210)
    assert "0.50 (" in pong.verdict(rows) and "100 (90-110) s" in pong.verdict(rows)
    assert "| ours | 3 | 100.0 (90.0-110.0)" in pong.table(rows)
    svg = draw(pong.panels(rows))
    assert "Pong to 18" in svg


@pytest.mark.parametrize(
    "rows",
    [runs("ours", 90.0), runs("ours", 90.0, math.inf, math.inf) + runs("plain", 100.0)],
)
def test_there_is_no_ratio_of_what_was_not_reached(rows):
    assert "no ratio" in pong.verdict(rows).lower()


def test_a_run_on_the_gpu_is_told_in_rows(tmp_path):
    done = run_of(tmp_path, [-3.0], final_time_seconds=55.0)
    rows = list(gpu.figures(done, "cuda"))
    found = {row["what"]: row["value"] for row in rows}
    assert found["from all roles ready to a mean of 18"] == 55.0
    assert found["production while learning"] == 250.0
    assert found["actor idle, learner on cuda"] == 0.5
    assert "buffer idle, learner on cuda" not in found
    assert {row["ok"] for row in rows} == {None}
    (solved, *_) = judged = list(gpu.medians([row | {"seed": 1} for row in rows], is_judged=True))
    assert (solved["seed"], solved["ok"]) == (1, True)
    assert [row["what"] for row in judged if row["ok"] is False] == [gpu.PRODUCTION]


def test_the_medians_of_several_seeds_are_judged():
    rows = []
    for seed, (seconds, rate) in enumerate([(55.0, 28e3), (math.inf, 26e3), (62.0, 30e3)]):
        rows.append({**gpu.row(gpu.SOLVED, seconds, "s"), "seed": seed})
        rows.append({**gpu.row(gpu.PRODUCTION, rate, "steps/s"), "seed": seed})
    rows.append({**gpu.said("lost"), "seed": 2})
    found = [(row["seed"], row["value"], row["ok"]) for row in gpu.medians(rows, is_judged=True)]
    assert found == [("median", 62.0, False), ("median", 28e3, True)]
    assert {row["ok"] for row in gpu.medians(rows, is_judged=False)} == {None}


def test_the_plain_loop_of_dqn_draws_true_stacks_and_returns():
    """Ten rows of one game, which ends at row 4; row 5 only resets."""
    replay = plain_dqn.Replay(8, 1, "cpu")  # a ring: rows 0 and 1 are overwritten
    for t in range(10):
        frame = torch.full((1, 84, 84), t, dtype=torch.uint8)
        done, valid = np.array([t == 4]), np.array([t != 5])
        reward = np.array([1.0 * (t == 4) + 8.0 * (t == 8)], np.float32)
        replay.add(frame, torch.tensor([t]), reward=reward, done=done, valid=valid)
    torch.manual_seed(0)
    stacks, action, gain, discount, then, valid = replay.draw(64)
    seen = {}
    for i, t in enumerate(action.tolist()):
        seen[t] = (stacks[i, :, 0, 0].tolist(), gain[i].item(), discount[i].item(), bool(valid[i]))
        assert then[i, -1, 0, 0] == t + 3
    g = plain_dqn.GAMMA
    assert seen == {
        5: ([2, 3, 4, 5], 0.0, pytest.approx(g**3), False),
        6: ([0, 0, 0, 6], pytest.approx(8 * g**2), pytest.approx(g**3), True),
    }


def test_the_rate_is_told_beside_the_faster_of_the_peer_s_ways():
    rates = {"sf": (90, 110), "sf overlapped": (60, 50), "ours bfloat16": (260, 240)}
    rows = [
        {"system": name, "samples_per_second": rate, "cpu_ms_per_sample": 1.0}
        for name, found in rates.items()
        for rate in found
    ]
    (said,) = sf.verdicts(rows)
    assert said.startswith("ours bfloat16: 2.50 (") and said.endswith("asked 2.5: reached.")
    assert "no ratio" in sf.verdicts(rows[4:])[0] and "| sf | 2 | 100" in sf.table(rows)
    assert "Pong, 84 x 84" in draw(sf.panels(rows))


def test_the_table_says_what_failed_and_what_never_came(tmp_path):
    rows = [
        {"part": "exact", **gpu.row("weights", 0.001, "apart"), "ok": True},
        {"part": "pong", **gpu.row("to 18", math.inf, "s")},
        {"part": "dqn", **gpu.said("lost\nits | way")},
    ]
    gpu.write(rows, "a GPU", tmp_path)
    lines = (tmp_path / "gpu.md").read_text().splitlines()
    assert lines[0] == "a GPU"
    assert [line.split(" | ")[-1] for line in lines[-3:]] == ["yes |", " |", "NO |"]
    assert "never" in lines[-2] and "lost its / way" in lines[-1]
    read = list(csv.DictReader((tmp_path / "gpu.csv").read_text().splitlines()))
    assert [row["part"] for row in read] == ["exact", "pong", "dqn"]


def test_runs_side_by_side_have_cores_of_their_own(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 2, 3, 5, 6, 7, 9})
    assert beside.places(2, str) == [[1, 2], [3, 5], [6, 7]]
    assert beside.places(2, lambda core: str(core // 2)) == [[1, 2], [5, 6]]  # two threads a core
    assert beside.places(8, str) == []


@pytest.mark.parametrize("name", ["gpu", "figure11"])
def test_without_a_gpu_nothing_is_begun(name, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    with pytest.raises(SystemExit) as ended:
        __import__(name).main()
    said = capsys.readouterr().err
    assert ended.value.code == 2 and "no GPU" in said and said.count("\n") == 1
