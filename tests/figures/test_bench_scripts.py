"""Every experiment of bench/ as somebody would start it, with very small numbers."""

import csv
import json
import re
import subprocess
import sys

import pytest
from benches import BENCH

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(300)]

SMALL = {
    "actors": ["--systems", "ours", "--actors", "1", "2", "--step-seconds", "0.0001"],
    "scaling": ["--actors", "1", "2", "--group-actors", "1"],
    "ablation": ["--best", "L1A8", "--bad", "L1A6x1", "--seconds", "10"],  # a pool has to fill
    "staleness": ["--lags", "1", "2"],
    "table1": ["--learners", "1", "--actors", "1", "2"],
    "ratelimit": [],
    "gossip": ["--presets", "ppo", "--intervals", "3", "--limit", "5000"],
}
REAL = ("staleness", "gossip")
KEYS = {"actors": "steps_per_second", "gossip": "produced"}  # of what is more than nothing


def run(name, folder, env, *options):
    return subprocess.run(
        [sys.executable, str(BENCH / f"{name}.py"), "--out", str(folder), *options],
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.parametrize("name", SMALL)
def test_an_experiment_prints_its_table_and_writes_its_files(name, tmp_path, child_env):
    limits = ["--quick", "--seconds", "3", "--seeds", "1"]
    done = run(name, tmp_path, child_env, *limits, *SMALL[name])
    assert done.returncode == 0, done.stderr
    table = (tmp_path / f"{name}.md").read_text()
    assert table in done.stdout + "\n" and "|---" in table
    rows = list(csv.DictReader((tmp_path / f"{name}.csv").read_text().splitlines()))
    assert len(rows) >= 2 and "did not finish" not in done.stdout
    kind = "real" if name in REAL else "simulated"
    assert {row["kind"] for row in rows} == {kind}
    assert kind in table and kind in (tmp_path / f"{name}.svg").read_text()
    assert all(float(row[KEYS.get(name, "consumption")]) > 0 for row in rows)


def test_faults_are_survived_and_their_cost_is_told(tmp_path, child_env):
    few = ["--kills", "2", "--schedules", "2", "--pairs", "1", "--short", "1", "--target", "40"]
    done = run("faults", tmp_path, child_env, "--seeds", "1", *few)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "faults.csv").read_text().splitlines()))
    assert "did not finish" not in done.stdout and {row["part"] for row in rows} == set("abcd")
    assert all(0 < float(row["seen"]) < float(row["back"]) for row in rows if row["part"] == "b")
    (schedules,) = (row for row in rows if row["part"] == "c")
    assert [schedules[name] for name in ("hang", "left", "missing")] == ["0", "0", "0"]
    assert len((tmp_path / "faults.md").read_text().splitlines()) == 4 + 13


def test_the_planned_split_is_raced_against_others(tmp_path, child_env):
    limits = ["--quick", "--seconds", "4", "--seeds", "1", "--cores", "2"]
    done = run("plan", tmp_path, child_env, *limits)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "plan.csv").read_text().splitlines()))
    assert "did not finish" not in done.stdout and 2 <= len(rows) <= 4
    assert [row["planned"] for row in rows] == ["True"] + ["False"] * (len(rows) - 1)
    for row in rows:
        share = float(row["predicted"]) / float(row["production"]) - 1
        assert float(row["error"]) == pytest.approx(share, abs=1e-3)
    table = (tmp_path / "plan.md").read_text()
    lines = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| L")]
    assert {line[0].strip() for line in lines} == {row["split"] for row in rows}
    assert [line[1].strip() for line in lines].count("planned") == 1
    assert all(re.fullmatch(r" [+-]\d+\.\d% ", line[-1]) for line in lines)
    assert "The planned split makes" in table and "(real costs)" in table


@pytest.mark.parametrize("costs", ["probe", "run"])
def test_the_simulator_stands_beside_runs(costs, tmp_path, child_env):
    out = tmp_path / "simulator.json"
    done = run("simulator", out, child_env, "--quick", "--seconds", "3", "--costs", costs)
    worst = float(re.search(r"worst error ([\d.]+) %", done.stdout)[1])
    assert done.returncode == int(worst > 15.0), done.stderr  # a busy machine may be far off
    found = json.loads(out.read_text())
    layouts = [(row["case"]["config"], row["case"]["layout"]["actors"]) for row in found["rows"]]
    assert layouts == [("slow_dqn.py", 2), ("slow_dqn.py", 2), ("slow_ppo.py", 2)]
    assert [row["case"]["layout"]["buffer_alone"] for row in found["rows"]] == [False, True, False]
    for row in found["rows"]:
        said, was, error = row["said"], row["was"], row["error"]
        assert error["consumed/s"] == pytest.approx(said["consumed/s"] / was["consumed/s"] - 1)
        assert error["learner idle"] == pytest.approx(said["learner idle"] - was["learner idle"])
        assert was["produced/s"] > 100 and 0 <= was["learner idle"] <= 1
    errors = [abs(each) for row in found["rows"] for each in row["error"].values()]
    assert worst == pytest.approx(100 * max(errors), abs=0.06)
    assert done.stdout.count(" / ") >= 5 * len(layouts)


@pytest.mark.parametrize("name", ["table1", "scaling"])
def test_real_splits_that_do_not_fit_the_cores_are_left_out_and_said(name, tmp_path, child_env):
    done = run(name, tmp_path, child_env, "--quick", "--real", "--actors", "4000")
    assert "left out" in done.stdout
    assert done.returncode == 1 or name == "scaling"


def test_a_split_that_is_none_is_a_mistake_of_the_command(tmp_path, child_env):
    done = run("ablation", tmp_path, child_env, "--best", "eight")
    assert done.returncode == 2 and "write L2A8" in done.stderr


def test_what_a_gpu_is_checked_with_runs_on_the_cpu(tmp_path, child_env):
    small = ["--actors", "1", "--envs", "4", "--seconds", "280"]
    done = run("gpu", tmp_path, child_env, "--cpu", *small)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(csv.DictReader((tmp_path / "gpu.csv").read_text().splitlines()))
    ours, loops = {"pong", "inference", "cores", "dqn"}, {"plain", "plain_dqn"}
    assert {row["part"] for row in rows} == {"exact", "speeds"} | ours | loops
    checked = [row for row in rows if row["ok"]]
    assert len(checked) >= 22 and all(row["ok"] == "True" for row in checked)
    rates = [float(row["value"]) for row in rows if row["unit"] in ("samples/s", "steps/s")]
    assert len(rates) >= 11 and min(rates) > 0
    assert (tmp_path / "gpu.md").read_text().count("| dqn |") >= 8


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pong", []),
        ("figure4", ["--parts", "ab", "--set", "hyp.buffer_size=2000"]),
        ("figure9", ["--games", "pong", "boxing", "--set", "hyp.step_len=16"]),
    ],
)
def test_a_figure_of_atari_prints_its_table_and_writes_its_files(
    name, options, tmp_path, child_env
):
    small = ["--seeds", "1", "--seconds", "4", "--set", "actor_cfg.envs=4", *options]
    done = run(name, tmp_path, child_env, *small)
    assert done.returncode == 0 and "did not finish" not in done.stdout, done.stderr
    rows = list(csv.DictReader((tmp_path / f"{name}.csv").read_text().splitlines()))
    assert len(rows) == 2 and all(int(row["env_steps"]) > 0 for row in rows)
    assert (tmp_path / f"{name}.md").read_text() in done.stdout + "\n"
    assert "</svg>" in (tmp_path / f"{name}.svg").read_text()


def test_the_soak_prints_one_table(tmp_path, child_env):
    words = ["--seconds", "14", "--every", "2", "--faults", "stop,slow"]
    done = run("soak", tmp_path, child_env, *words)
    table = (tmp_path / "soak.md").read_text()
    assert table in done.stdout and table.count("| flat |") == 4, done.stdout + done.stderr
    assert done.returncode == 0


def test_lockstep_stands_beside_our_engines(tmp_path, child_env):
    pytest.importorskip("lbforaging")
    small = ["--tasks", "lbf", "--seeds", "1", "--seconds", "4", "--envs", "2"]
    done = run("lockstep", tmp_path, child_env, *small, "--set", "hyp.warmup_size=700")
    assert done.returncode == 0 and "did not finish" not in done.stdout, done.stderr
    rows = list(csv.DictReader((tmp_path / "lockstep.csv").read_text().splitlines()))
    assert [row["system"] for row in rows] == ["processes", "serial", "lockstep"]
    assert all(float(row["steps_per_second"]) > 0 for row in rows)
    assert all(float(row["samples_per_second"]) > 0 for row in rows)
    assert "times those of lockstep (asked: 5)" in (tmp_path / "lockstep.md").read_text()


def test_figure_10_is_drawn_on_smax(tmp_path, child_env):
    pytest.importorskip("jaxmarl")
    small = ["--seeds", "1", "--seconds", "20", "--every", "10000", "--set", "exp.eval_times=8"]
    done = run("figure10", tmp_path, child_env, "--systems", "QMIX", "MAPPO", *small)
    assert done.returncode == 0 and "did not finish" not in done.stdout, done.stderr
    rows = list(csv.DictReader((tmp_path / "figure10.csv").read_text().splitlines()))
    assert [row["system"] for row in rows] == ["QMIX", "MAPPO"]
    assert len((tmp_path / "figure10.curves.csv").read_text().splitlines()) > 2
    assert "3m (SMAX)" in (tmp_path / "figure10.svg").read_text()
