"""`tianji bench`: its seeds, its folder, and what is made of several runs."""

import csv
import json
import math

import pytest

from tianji.cli import bench as verb
from tianji.cli.main import parser
from tianji.core import stats
from tianji.core.errors import TianJiError
from tianji.tools import bench, child_run


def row(seed, mean=100.0, seconds=2.0, speed=1_000.0, won=None):
    status = "finished" if seconds is None else "solved"
    values = (seed, status, mean, won, seconds, 5_000, 40, speed, 3.5)
    return dict(zip(bench.COLUMNS, values, strict=True))


def parsed(*words):
    return parser(["bench"]).parse_args(["bench", "my_job.py", *words])


@pytest.mark.parametrize(
    ("said", "seeds"),
    [("1-5", [1, 2, 3, 4, 5]), ("7", [7]), ("4, 1-2,2", [1, 2, 4]), ("0-0", [0])],
)
def test_seeds_are_numbers_and_ranges(said, seeds):
    assert parsed("--seeds", said).seeds == seeds


def test_there_are_five_seeds_unless_said():
    assert parsed().seeds == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("said", ["", "5-1", "1-", "-3", "one", "0-1000", "1,,2", "9" * 10])
def test_what_is_no_seed_is_refused(said, capsys):
    with pytest.raises(SystemExit) as ended:
        parsed(f"--seeds={said}")
    assert ended.value.code == 2 and "--seeds" in capsys.readouterr().err


def test_all_seeds_together_are_an_iqm_with_an_interval_and_medians():
    returns, speeds = [10.0, 20.0, 30.0, 40.0, 500.0], [5.0, 1.0, 2.0, 4.0, 3.0]
    times = [4.0, None, 2.0, 8.0, None]
    rows = [row(i, *each) for i, each in enumerate(zip(returns, times, speeds, strict=True))]
    found = bench.aggregate(rows)
    assert found["iqm"] == pytest.approx(30.0)
    _, low, high = stats.stratified([returns])
    assert found["low"] == pytest.approx(30 - stats.few(5) * (30 - low)) and found["low"] < low
    assert found["high"] == pytest.approx(30 + stats.few(5) * (high - 30)) and found["high"] > high
    assert (found["solved"], found["seconds_to_target"], found["steps_per_second"]) == (3, 8.0, 3.0)


def test_a_target_that_most_seeds_missed_has_no_median_time():
    found = bench.aggregate([row(1, seconds=None), row(2, seconds=None), row(3)])
    assert found["solved"] == 1 and found["seconds_to_target"] is None


def test_one_seed_has_no_interval_and_a_run_without_episodes_no_return():
    one = bench.aggregate([row(1, mean=7.0)])
    assert (one["iqm"], one["low"], one["high"]) == (7.0, None, None)
    none = bench.aggregate([row(1, mean=None, speed=None)])
    assert none["iqm"] is None and none["steps_per_second"] is None


def test_the_table_has_a_line_for_each_seed_and_one_for_all():
    rows = [row(1), row(2, mean=None, seconds=None), row(3)]
    head, *lines = bench.table(rows).splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "all"]
    assert lines[-1].split()[1:4] == ["2", "of", "3"] and lines[1].split()[2:4] == ["-", "-"]
    narrow = bench.table(rows, 60).splitlines()
    assert max(map(len, narrow)) <= 60 and "steps/s" in narrow[0]


def test_what_was_won_is_told_where_games_can_be_won():
    rows = [row(1, won=0.5), row(2, won=0.75), row(3, won=0.625)]
    assert bench.aggregate(rows)["win_ratio"] == pytest.approx(0.625)
    head, *lines = bench.table(rows).splitlines()
    assert "won" in head and [line.split()[3] for line in lines[:3]] == ["0.50", "0.75", "0.62"]
    assert "0.62" in lines[3] and "won 0.62" in bench.sentence(rows)
    assert "won" not in bench.table([row(1)]) + bench.sentence([row(1)])
    assert bench.aggregate([row(1)])["win_ratio"] is None


def test_files_have_every_run(tmp_path):
    rows = [row(1), row(2, seconds=None)]
    bench.write(tmp_path, {"config": "x"}, rows)
    said = json.loads((tmp_path / "bench.json").read_text())
    assert said["runs"] == rows and said["all"]["solved"] == 1
    with (tmp_path / "bench.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [each["seed"] for each in found] == ["1", "2"]
    assert [each["seconds_to_target"] for each in found] == ["2.0", ""]


def test_a_folder_of_the_same_settings_goes_on_and_another_is_left_alone(root, tmp_path):
    config, out = str(root / "configs" / "cartpole_ppo.py"), tmp_path / "out"
    settings = bench.make_folder(out, config, ["exp.seed=3"], "local")
    bench.write(out, settings, [])
    assert bench.make_folder(out, config, [], "local") == settings  # the seed is each run's own
    for overrides, engine in (["hyp.lr=0.5"], "local"), ([], "process"):
        with pytest.raises(TianJiError, match="--out"):
            bench.make_folder(out, config, overrides, engine)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("")
    with pytest.raises(TianJiError, match="--out"):
        bench.make_folder(tmp_path / "mine", config, [], "local")
    with pytest.raises(TianJiError, match="--out"):
        bench.make_folder(tmp_path / "mine" / "notes.txt", config, [], "local")


def trained(place, status):
    place.mkdir()
    said = {"seed": int(place.name[5:]), "status": status, "mean_return_100": 9.0}
    (place / "summary.json").write_text(json.dumps(said))


def test_runs_that_are_over_are_kept_and_the_others_made(tmp_path, monkeypatch):
    made = []

    def train(config, overrides, engine, place, environment):
        made.append((config, overrides, engine))
        trained(place, "solved")

    monkeypatch.setattr(child_run, "train", train)
    trained(tmp_path / "seed-1", "finished")
    seen = []
    settings = {"config": "c.py", "engine": "local"}
    bench.train_all(settings, ["a=1"], [1, 2], tmp_path, lambda rows: seen.append(list(rows)))
    assert made == [("c.py", ["a=1", "exp.seed=2"], "local")]
    assert [[each["seed"] for each in rows] for rows in seen] == [[], [1], [1, 2]]
    assert seen[-1][1]["status"] == "solved" and seen[-1][1]["updates"] is None


def test_a_run_that_fails_leaves_what_was_measured(root, tmp_path, monkeypatch, capsys):
    def train_all(settings, overrides, seeds, folder, done):
        done([row(1)])
        raise child_run.RunFailed("seed-2 failed")

    monkeypatch.setattr(bench, "train_all", train_all)
    words = ["bench", str(root / "configs" / "cartpole_ppo.py"), "--out", str(tmp_path / "out")]
    assert verb.run(parser(words).parse_args(words)) == 1
    said = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert len(said["runs"]) == 1 and math.isclose(said["all"]["iqm"], 100.0)
    assert "seed-2 failed" in capsys.readouterr().err
