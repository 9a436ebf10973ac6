"""What the experiments of bench/ make of their numbers, without running one."""

import argparse
import math
import signal
import threading
import xml.etree.ElementTree

import benches
import pytest
import scaling
from experiment import Sheet, attempt, conduct, fits, parser, seeds_of
from figures import Panel, Series, draw
from limiter import SamplesPerInsert
from measures import Knee, Spread, knee, ratio_interval, shown, slope, window_ratios
from rivals import Costs
from sleepy import Pace
from splits import Split
from tables import markdown, values
from trainings import command, measured, offered, peer_line

from tianji.config import load


def test_a_spread_is_the_median_and_the_range():
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert Spread.of([19.4, 19.0, 20.1]).text() == "19.4 (19.0-20.1)"
    assert Spread.of([5.0]).text(0) == "5"


def test_a_run_that_never_arrived_pulls_the_median_up():
    assert Spread.of([1.0, math.inf, math.inf]).text() == "never (1.0-never)"
    assert shown(None) == shown(math.nan) == "-"


def test_the_knee_of_a_line_with_a_plateau_is_where_they_meet():
    found = knee([1, 2, 4, 8, 16], [100, 200, 400, 500, 500])
    assert found == Knee(pytest.approx(5.0), pytest.approx(100.0), pytest.approx(500.0))


def test_a_knee_is_found_in_noise():
    found = knee([1, 2, 4, 8, 16], [97, 205, 396, 408, 391])
    assert 3.8 < found.at < 4.2


@pytest.mark.parametrize("ys", [[100, 200, 400, 800], [99, 203, 396, 805]])
def test_growth_in_proportion_has_no_knee(ys):
    assert knee([1, 2, 4, 8], ys) is None


def test_the_order_of_the_points_does_not_matter():
    assert knee([8, 1, 4, 2], [400, 100, 400, 200]).at == pytest.approx(4.0)


@pytest.mark.parametrize("ys, wanted", [([10, 20, 40], 1.0), ([10, 10, 10], 0.0)])
def test_the_slope_says_how_linear_growth_is(ys, wanted):
    assert slope([1, 2, 4], ys) == pytest.approx(wanted)


def test_a_ratio_of_equals_is_one_and_its_interval_contains_it():
    found = ratio_interval([10, 11, 12], [10, 11, 12])
    assert found.middle == 1.0
    assert found.low < 1.0 < found.high


def test_the_interval_of_a_ratio_lies_within_the_extremes():
    found = ratio_interval([40.0, 44.0, 48.0], [10.0, 11.0, 12.0])
    assert found.middle == 4.0
    assert 40 / 12 <= found.low < 4.0 < found.high <= 48 / 10


def test_more_runs_narrow_the_interval():
    few = ratio_interval([40, 44, 48], [10, 11, 12])
    many = ratio_interval([40, 44, 48] * 8, [10, 11, 12] * 8)
    assert many.high - many.low < few.high - few.low


def test_a_ratio_to_what_never_arrived_is_infinite_and_of_it_unknown():
    assert ratio_interval([math.inf] * 3, [10.0] * 3).middle == math.inf
    assert math.isnan(ratio_interval([math.inf] * 3, [math.inf] * 3).middle)


def test_a_window_has_what_fell_into_it():
    came, went = [(0.1, 10), (1.2, 10), (2.5, 10)], [(0.2, 40), (1.9, 20), (2.6, 60), (3.1, 99)]
    assert window_ratios(came, went, 1.0, 0.0, 3.0) == [4.0, 2.0, 6.0]


def test_a_window_without_arrivals_has_no_ratio():
    assert window_ratios([(0.5, 10)], [(0.5, 10), (1.5, 10)], 1.0, 0.0, 2.0) == [1.0]


def test_the_first_items_may_always_be_inserted_and_not_sampled():
    limiter = SamplesPerInsert(ratio=2.0, min_size=5, error_buffer=2.0)
    assert limiter.insert(4)
    assert limiter.samplable() == 0
    assert limiter.insert(1)
    assert limiter.samplable() == 2  # diff may fall from 10 to 8


@pytest.mark.parametrize("ratio, error_buffer", [(2.0, 2.0), (0.5, 1.0), (4.0, 64.0)])
def test_the_difference_stays_within_the_error_buffer(ratio, error_buffer):
    limiter = SamplesPerInsert(ratio, 10, error_buffer)
    limiter.insert(10)
    for _ in range(50):
        limiter.sample(limiter.samplable())
        assert limiter.inserted * ratio - limiter.sampled >= limiter.smallest - 1e-6
        limiter.insert(limiter.insertable())
        assert limiter.inserted * ratio - limiter.sampled <= limiter.largest + 1e-6
    assert limiter.inserted > 50 and limiter.sampled > 50 * ratio


def test_neither_side_is_ever_stuck_with_the_other():
    limiter = SamplesPerInsert(4.0, 10, 4.0)
    limiter.insert(10)
    for _ in range(100):
        assert limiter.insertable() or limiter.samplable()
        limiter.sample(limiter.samplable())
        limiter.insert(limiter.insertable())


def test_an_error_buffer_that_would_lock_up_is_refused():
    with pytest.raises(ValueError, match="use 4 at least"):
        SamplesPerInsert(4.0, 10, 3.0)


def in_threads(*calls):
    """Starts each in a thread of its own; returns what they answered, once all have ended."""
    answers = [None] * len(calls)

    def run(i):
        answers[i] = calls[i]()

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return answers


def test_callers_that_wait_for_each_other_all_go_on_and_keep_the_ratio():
    limiter = SamplesPerInsert(ratio=2.0, min_size=4, error_buffer=2.0)
    inserts = [lambda: all(limiter.insert(3) for _ in range(40))] * 2
    sampled = in_threads(*inserts, lambda: all(limiter.sample(5) for _ in range(94)))
    assert sampled == [True] * 3
    events = sorted([(t, n, 0) for t, n in limiter.came] + [(t, 0, n) for t, n in limiter.went])
    came = went = 0
    for _, more_came, more_went in events:
        came, went = came + more_came, went + more_went
        assert came <= 4 or limiter.smallest <= 2 * came - went <= limiter.largest
    assert (came, went) == (240, 470)


def test_a_caller_that_nobody_answers_waits_until_the_limiter_is_closed(eventually):
    limiter = SamplesPerInsert(ratio=1.0, min_size=2, error_buffer=1.0)

    def insert_too_many():
        return limiter.insert(5)

    def close_once_it_is_stuck():
        eventually(lambda: sum(n for _, n in limiter.came) == 3)  # what fits without a sample
        limiter.close()

    assert in_threads(insert_too_many, close_once_it_is_stuck)[0] is False
    assert sum(n for _, n in limiter.came) == 3
    assert not limiter.insert(1) and not limiter.sample(1)


class Clock:
    """Sleeps last a tenth longer than asked."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += 1.1 * seconds


def test_what_sleeps_take_too_long_does_not_add_up():
    clock = Clock()
    pace = Pace(clock, clock.sleep)
    for _ in range(100):
        pace.begin()
        clock.now += 0.002  # the work itself
        pace.end(0.01)
    assert clock.now == pytest.approx(1.0, abs=0.002)


def test_time_between_calls_is_nobodys_debt():
    clock = Clock()
    pace = Pace(clock, clock.sleep)
    pace.begin()
    pace.end(0.01)
    clock.now = 5.0
    pace.begin()
    pace.end(0.01)
    assert clock.now == pytest.approx(5.01, abs=0.0011)


@pytest.mark.parametrize("cost", [0.0, 0.001])
def test_work_that_takes_longer_than_its_cost_is_not_made_longer(cost):
    clock = Clock()
    pace = Pace(clock, clock.sleep)
    for _ in range(3):
        pace.begin()
        clock.now += 0.002
        pace.end(cost)
    assert clock.now == pytest.approx(0.006)


def test_lengths_are_the_same_for_the_same_seed_and_have_their_mean():
    costs = Costs()
    one, other = costs.lengths(0.05, 7), costs.lengths(0.05, 7)
    drawn = [one() for _ in range(4_000)]
    assert drawn[:10] == [other() for _ in range(10)]
    assert sum(drawn) / len(drawn) == pytest.approx(0.05, rel=0.03)


@pytest.mark.parametrize("name", ["ppo.py", "dqn.py", "ppo_table2.py"])
def test_the_configs_of_the_experiments_load(name):
    groups = ["global_cfg.group_num=2"] if name == "ppo.py" else []  # it says how often they fuse
    assert load(benches.BENCH / "jobs" / name, groups).notices == ()


def test_a_split_is_read_as_the_paper_writes_it():
    assert Split.read("L2A8") == Split(2, 8, 4)
    assert Split.read("L1A14x2").n_cores == Split.read("L2A8").n_cores == 16
    assert str(Split(2, 24)) == "L2A24"


@pytest.mark.parametrize("text", ["A8", "L0A4", "L2A3", "l2a8", "L2A8x0"])
def test_what_is_no_split_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"L2A8|evenly"):
        Split.read(text)


def test_a_real_split_asks_for_cores_and_a_simulated_one_for_sleep():
    real, slept = Split(2, 8).settings(True), Split(2, 8).settings(False)
    assert real["actor_cfg.num"] == slept["actor_cfg.num"] == 4
    assert real["learner_cfg.cores"] == 4 and "hyp.sample_seconds" not in real
    assert "learner_cfg.cores" not in slept and slept["hyp.sample_seconds"] > 0


def test_only_several_groups_are_told_when_to_fuse():
    assert Split(2, 8).settings(False)["learner_cfg.send_root_interval"] == 3
    assert "learner_cfg.send_root_interval" not in Split(1, 8).settings(False)


def test_samples_are_as_fresh_with_more_learner_cores():
    given = argparse.Namespace(real=False, lr_rule="linear", envs=1)
    one, four = (scaling.settings(given, 8, cores) for cores in (1, 4))
    assert four["hyp.batch_size"] == 4 * one["hyp.batch_size"]
    assert four["hyp.lr"] == 4 * one["hyp.lr"]
    fresh = [keys["hyp.batch_size"] / keys["hyp.buffer_size"] for keys in (one, four)]
    assert fresh[0] == fresh[1]


def test_a_run_that_wants_too_many_cores_is_named_and_left_out(capsys):
    assert fits("L2A8", 10_000, is_real=False) and fits("L1A1", 1, is_real=True)
    assert not capsys.readouterr().out
    assert not fits("L2A8", 10_000, is_real=True)
    assert capsys.readouterr().out.startswith("L2A8 is left out: it wants 10000 cores, ")


def test_seeds_are_given_counted_or_three():
    options = parser("any", "", 1)
    assert seeds_of(options.parse_args([])) == [1, 2, 3]
    assert seeds_of(options.parse_args(["--quick"])) == [1]
    assert seeds_of(options.parse_args(["--repeats", "2"])) == [1, 2]
    assert seeds_of(options.parse_args(["--seeds", "7", "9", "--quick"])) == [7, 9]


def test_what_actors_offer_is_what_they_made_over_the_time_they_were_at_it():
    roles = {
        "actor-0.0": {"produced": 600, "busy": 0.5},
        "actor-0.1": {"produced": 400, "busy": 1.0},
        "learner-0.0": {"idle": 0.2},
    }
    assert offered({"roles": roles, "production_per_second": 100.0}) == pytest.approx(160.0)


def test_a_target_that_was_not_reached_took_for_ever():
    summary = dict.fromkeys(
        ("env_steps", "updates", "receiving_per_second", "consumption_per_second", "dropped"), 1
    )
    summary |= {"final_time_seconds": None, "production_per_second": 1.0, "startup_seconds": 2.0}
    summary |= {"staleness": {"mean": 1.0, "p95": 2.0}, "freshness": {"measured": 1.0}}
    summary |= {"roles": {"learner-0.0": {"idle": 0.25}}, "histograms": {}}
    row = measured(summary)
    assert row["final_seconds"] == math.inf and row["learner_idle"] == 0.25


def test_rows_are_in_the_file_as_soon_as_they_are_added(tmp_path, capsys):
    sheet = Sheet(tmp_path / "new", "some", ("seed", "final_seconds"))
    sheet.add({"seed": 1, "final_seconds": math.inf, "other": 3, "foreign_load": 0.5})
    assert (tmp_path / "new" / "some.csv").read_text().split() == ["seed,final_seconds", "1,never"]
    assert sheet.finish(lambda rows: f"the table of {len(rows)}", lambda rows: []) == 0
    said = capsys.readouterr().out
    assert "seed=1  final_seconds=inf" in said and "the table of 1" in said
    assert "1 of 1 runs began while others used" in (tmp_path / "new" / "some.md").read_text()


def test_a_run_after_the_total_is_not_begun_and_the_table_is_of_what_there_is(tmp_path, capsys):
    sheet = Sheet(tmp_path, "some", ("seed",), total=-1.0)
    with sheet:
        attempt(sheet, {"seed": 1}, lambda: pytest.fail("it was run"))
    assert "stopped" in capsys.readouterr().out
    assert sheet.finish(lambda rows: "", lambda rows: []) == 1


def test_every_seed_is_tried_in_every_setting_before_the_next_seed(tmp_path):
    def trials(seed):
        for setting in "ab":
            yield {"setting": setting}, lambda seed: {"found": 10 * seed}, (seed,)

    given = parser("some", "", 1).parse_args(["--seeds", "7", "9", "--out", str(tmp_path)])
    seen = []
    status = conduct(
        "some", ("setting",), given, trials, lambda rows: str(seen.extend(rows)), lambda rows: []
    )
    assert status == 0
    assert [(row["seed"], row["setting"], row["found"]) for row in seen] == [
        (7, "a", 70), (7, "b", 70), (9, "a", 90), (9, "b", 90),
    ]  # fmt: skip


def test_ctrl_c_ends_the_runs_and_a_failure_does_not(tmp_path, capsys):
    def run(error):
        if error is not None:
            raise error
        return {"final_seconds": 1.0}

    sheet = Sheet(tmp_path, "some", ("seed",))
    with sheet:
        for seed, error in enumerate(
            [None, RuntimeError("broken"), None, KeyboardInterrupt(), None]
        ):
            attempt(sheet, {"seed": seed}, run, error)
    assert [row["seed"] for row in sheet.rows] == [0, 2]
    assert "'seed': 1} did not finish: broken" in capsys.readouterr().out


def test_a_signal_to_end_is_as_good_as_ctrl_c(tmp_path, capsys):
    before = signal.getsignal(signal.SIGTERM)
    with Sheet(tmp_path, "some", ("seed",)):
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("it went on")
    assert "stopped" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_mistake_in_an_experiment_is_not_swallowed(tmp_path):
    with pytest.raises(ZeroDivisionError), Sheet(tmp_path, "some", ("seed",)):
        raise ZeroDivisionError


ROW = {"kind": "simulated", "way": "unpaced", "setting": "L2A8", "seed": 1, "final_seconds": 19.014}
ROW |= {"production": 11661.471, "consumption": 11432.79, "offered": 12800.0, "learned": 0.98}
ROW |= {"dropped": 0, "staleness_mean": 1.5, "learner_idle": 0.02}


def test_table_1_has_the_papers_columns_and_its_settings_once():
    from table1 import table

    never = ROW | {"final_seconds": math.inf}
    text = table([ROW, never], "unpaced")
    header = (
        "| Setting | Final Time(s) | Production Throughput(steps/s) | "
        "Consumption Throughput(steps/s) |"
    )
    runs = text[text.rindex(header) :].splitlines()
    assert runs[2:] == [
        "| L2A8 | 19.01 | 11,661.47 | 11,432.79 |",
        "|  | never | 11,661.47 | 11,432.79 |",
    ]
    assert "simulated" in text.splitlines()[0]


def test_table_1_has_medians_and_ranges_and_names_the_fastest():
    from table1 import table

    slower = [ROW | {"setting": "L2A16", "final_seconds": t} for t in (28.0, 25.0, 29.0)]
    text = table([ROW, *slower], "unpaced")
    assert "| L2A16 | 28.00 (25.00-29.00) |" in text
    assert "The shortest final time is that of L2A8." in text


@pytest.mark.parametrize(
    ("learners", "learner_cores", "n_cores", "wanted"),
    [(2, 4, 16, "L2A8"), (2, 4, 32, "L2A8"), (1, 4, 16, "L1A4"), (2, 2, 16, "L2A4")],
)
def test_the_planned_split_is_the_solvers(learners, learner_cores, n_cores, wanted):
    """Whatever the cores: those that the learners cannot use stay idle."""
    from table1 import planned

    assert str(planned(learners, learner_cores, n_cores)) == wanted


def test_the_planned_split_follows_the_costs(monkeypatch):
    import table1

    monkeypatch.setattr(table1, "STEP_SECONDS", table1.STEP_SECONDS / 2)
    assert str(table1.planned(2, 4)) == "L2A4"


@pytest.mark.parametrize(
    "ways, wanted",
    [
        (["unpaced", "paced"], ["L2A4 unpaced", "L2A8 unpaced", "L2A8 paced"]),
        (["paced"], ["L2A4 paced", "L2A8 paced"]),
    ],
)
def test_below_the_planned_split_both_ways_are_one_run(ways, wanted):
    from table1 import runs_of

    given = argparse.Namespace(actors=[4, 8], learners=2, learner_cores=4, real=False, ways=ways)
    assert [f"{split} {way}" for split, way in runs_of(given)] == wanted


@pytest.mark.parametrize("n_actors, lag, wanted", [(8, 32, 32), (24, 1, 4)])
def test_samples_may_wait_for_as_long_as_asked_and_what_is_in_flight_always(n_actors, lag, wanted):
    from table1 import free

    assert free(Split(2, n_actors), 512, lag)["hyp.max_lag"] == wanted


def test_a_speed_up_over_what_never_arrived_has_no_bound_and_is_not_the_best():
    from actors import table

    rows = [
        {"kind": "real", "system": s, "actors": n, "seed": 1, "final_seconds": t}
        for s, n, t in (("ours", 1, 5.0), ("sb3", 1, 20.0), ("ours", 2, 4.0), ("sb3", 2, math.inf))
    ]
    text = table(rows)
    assert "| 2 | 4.0 | never | no bound |" in text
    assert "best against sb3: 4.00 times as fast with 1 actors" in text


def test_a_peer_that_did_not_arrive_took_for_ever():
    said = '{"solved": %s, "seconds_from_process_start": 9, "seconds_from_training_start": 8}'
    assert peer_line("noise\n" + said % "true")["seconds_from_training_start"] == 8
    assert peer_line(said % "false")["seconds_from_training_start"] == math.inf


def test_the_command_of_a_run_has_every_setting_behind_a_set():
    words = command("a.py", benches.ROOT / "run", ["exp.seed=1", "hyp.lr=2"], "--quiet")
    assert words[-5:] == ["--quiet", "--set", "exp.seed=1", "--set", "hyp.lr=2"]
    assert words[2:5] == ["tianji", "train", "a.py"]


def test_the_values_of_a_column_are_in_the_order_in_which_they_came():
    assert values([{"n": 3}, {"n": 1}, {"n": 3}], "n") == [3, 1]


def test_a_markdown_table_has_a_rule_under_its_header():
    assert markdown(["a", "b"], [["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |"


@pytest.mark.parametrize("is_bars", [False, True])
def test_a_plot_is_whole_also_where_nothing_arrived(is_bars):
    points = [(1, Spread(2.0, 1.0, 3.0)), (4, Spread(math.inf, 2.0, math.inf))]
    panel = Panel("A < B (simulated)", "actors", "s", [Series("a & b", points)], is_bars=is_bars)
    panel.marks.append((2.0, "knee"))
    text = draw([panel, Panel("empty", "", "")])
    root = xml.etree.ElementTree.fromstring(text)
    words = {each.text for each in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"A < B (simulated)", "a & b", "never", "knee"} <= words
    assert "empty" not in words
