"""A chaos test: its schedule is a function of its seed, and each verdict can fail."""

import json
import math
import os
from dataclasses import replace

import numpy as np
import pytest
from commands import ROOT, TASKS

from tianji.cli.main import main
from tianji.config import load
from tianji.config.environment import EnvironmentConfig
from tianji.core.balance import usual_lag
from tianji.core.errors import TianJiError
from tianji.core.mishaps import NotFinite
from tianji.core.status import Status
from tianji.engines.supervise import replaced_kinds
from tianji.envs import make
from tianji.job.preflight import try_out
from tianji.tools.chaos import invariants, results
from tianji.tools.chaos.env_orders import Word, orders_of
from tianji.tools.chaos.fault_injection import CODES
from tianji.tools.chaos.faulty_worker import ChaosError, with_ordered_faults
from tianji.tools.chaos.invariants import Bounds, Ending, FaultOutcome, Record, judge
from tianji.tools.chaos.processes import Usage, members_of
from tianji.tools.chaos.run_under_test import Row, row_of
from tianji.tools.chaos.schedule import RUN, Fault, Strike, chosen, schedule
from tianji.tools.chaos.settings import ChaosSettings, bounds_of, settle

HOMES = ("learner-0.0", "actor-0.0", "actor-0.1")
ALL = chosen(None)


# The schedule


def test_the_same_seed_gives_the_same_faults():
    first = schedule(3, 60.0, ALL, HOMES, 3.0)
    assert first == schedule(3, 60.0, ALL, HOMES, 3.0)
    assert first != schedule(4, 60.0, ALL, HOMES, 3.0)


def test_a_longer_schedule_begins_as_a_shorter_one():
    short, long = (schedule(3, seconds, ALL, HOMES, 3.0) for seconds in (30.0, 90.0))
    assert long[: len(short)] == short and len(long) > len(short)


def test_every_kind_of_fault_comes_before_any_comes_again():
    strikes = schedule(0, 600.0, ALL, HOMES, 3.0)
    for start in range(0, len(strikes) - len(ALL), len(ALL)):
        assert {strike.fault for strike in strikes[start : start + len(ALL)]} == set(ALL)


def test_faults_come_as_often_as_they_were_asked_to_and_hit_those_they_can():
    strikes = schedule(0, 3_000.0, ALL, HOMES, 3.0)
    pauses = [strike.pause for strike in strikes]
    assert min(pauses) >= 1.5 and max(pauses) <= 4.5 and 2.8 < np.mean(pauses) < 3.2
    for strike in strikes:
        whole_run = strike.fault in (Fault.ACTORS, Fault.DISK)
        anybody = strike.fault in (Fault.KILL, Fault.STOP)
        assert strike.victim in ((RUN,) if whole_run else HOMES if anybody else HOMES[1:])
    killed = [strike.victim for strike in strikes if strike.fault is Fault.KILL]
    for start in range(0, len(killed) - 2, 3):
        assert set(killed[start : start + 3]) == set(HOMES)  # everyone before anyone again


def test_the_reducer_is_not_killed_for_training_goes_on_without_it():
    homes = ("learner-0.0", "learner-1.0", "actor-0.0", "reducer-0.0")
    strikes = schedule(0, 300.0, [Fault.KILL, Fault.STOP], homes, 3.0)
    assert {s.victim for s in strikes if s.fault is Fault.KILL} == set(homes[:3])
    assert {s.victim for s in strikes if s.fault is Fault.STOP} == set(homes)


def test_nobody_is_lost_who_would_not_be_replaced():
    several = load(TASKS / "echo_ppo.py", ["learner_cfg.num=2"])
    homes = ("learner-0.0", "learner-0.1", "actor-0.0", "actor-0.1")
    strikes = schedule(0, 300.0, [Fault.KILL], homes, 3.0, replaced_kinds(several))
    assert {strike.victim for strike in strikes} == set(homes[2:])


def test_who_acts_for_actors_is_killed_too():
    config, more = str(TASKS / "echo_ppo.py"), ["actor_cfg.inference=True"]
    settings = settle(config, more, 0, 300.0, [Fault.KILL], 3.0)
    assert {strike.victim for strike in settings.strikes} == set(settings.homes)
    assert "inference-0.0" in settings.homes


def test_faults_are_chosen_by_name():
    assert chosen("kill, hang,kill") == [Fault.KILL, Fault.HANG]
    with pytest.raises(TianJiError, match=r"'kil' is no fault\. Did you mean 'kill'"):
        chosen("kil")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--faults", "kil"], "'kil' is no fault. Did you mean 'kill'?"),
        (["--seconds", "0.1"], "no fault comes within 0.1 s"),
        (["--every", "0"], "--seconds and --every want a number above 0"),
        (["--set", "hyp.lrr=1"], "hyp has no key 'lrr'"),
        (["--out", str(TASKS)], "there is something in it"),
    ],
)
def test_a_mistake_is_answered_before_anything_is_started(tmp_path, words, said, capsys):
    out = tmp_path / "out"
    assert main(["chaos", str(TASKS / "echo_dqn.py"), "--out", str(out), *words]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists()


# The verdicts: a run that keeps every promise, and one broken promise after the other

BOUNDS = Bounds(100.0, ratio=4.0, batch=32, once=False, kept_bytes=1 << 20, trajectory=16)
KILL = Strike(1.0, Fault.KILL, "learner-0.0")


def row(at, **changes):
    values = dict(at=at, env_steps=int(80 * at), updates=int(10 * at), ratio=4.0, new=0.2)
    return Row(**(values | dict(staleness=50.0, checkpoints=int(at)) | changes))


def whole():
    """What is seen of a run that keeps every promise."""
    usages = [(float(t), Usage(100 << 20, 50, 9, 3)) for t in range(1, 20)]
    rows = [row(t) for t in range(1, 20)]
    trial = FaultOutcome(KILL, at=5.0, updates=50, detected=0.1, back=2.0, replaced=1)
    stop = FaultOutcome(Strike(1.0, Fault.STOP, "actor-0.0", 0.0), at=8.0, updates=80, back=0.0)
    counts = dict(produced=1_520, received=1_500, missing_steps=0)
    summary = counts | dict(status="interrupted", restarts=1)
    return Record(
        BOUNDS, rows, usages, [trial, stop], Ending(True, 143, 2.0, summary, (), (), "0001")
    )


def broken(record):
    return {verdict.name for verdict in judge(record) if verdict.held is False}


def ending(record, **changes):
    summary = record.ending.summary | changes.pop("summary", {})
    return replace(record, ending=replace(record.ending, summary=summary, **changes))


def test_a_run_that_keeps_every_promise_breaks_none():
    assert broken(whole()) == set()
    unseen = [verdict.name for verdict in judge(whole()) if verdict.held is None]
    assert unseen == ["mishaps counted"]


def test_a_run_without_a_fault_or_a_row_has_kept_nothing():
    verdicts = judge(Record(BOUNDS, [], [], []))
    assert {verdict.held for verdict in verdicts} == {None}


def test_training_that_does_not_go_on_is_seen():
    record = whole()
    record.trials.append(FaultOutcome(KILL, at=9.0, updates=90, detected=0.1))
    assert broken(record) == {"training goes on"}
    assert "not after kill learner-0.0" in judge(record)[0].found


def test_a_fault_that_could_not_be_done_breaks_nothing():
    record = whole()
    record.trials.append(FaultOutcome(Strike(1.0, Fault.NAN, "actor-0.0"), 9.0, 90, undone="why"))
    assert broken(record) == set()


def test_memory_that_grows_is_seen():
    record = whole()
    allowed = 1.25 * (100 << 20) + (1 << 20) + (256 << 20)
    record.usages[-1] = (19.0, Usage(int(allowed) + 1))
    assert broken(record) == {"memory bounded"}
    record.usages[-1] = (19.0, Usage(int(allowed)))
    assert broken(record) == set()


def test_samples_that_are_too_old_are_seen():
    record = whole()
    record.rows[7] = row(8.0, staleness=101.0)
    assert broken(record) == {"staleness in its bound"}


def test_what_a_stopped_actor_holds_may_get_older_by_what_was_learned_meanwhile():
    record = whole()
    record.trials.append(FaultOutcome(Strike(1.0, Fault.STOP, "actor-0.0", 3.0), 6.0, 60, back=0.0))
    record.rows[-1] = row(19.0, staleness=130.0)  # 60 to 90 updates from 6 s to 9 s
    assert broken(record) == set()
    record.rows[-1] = row(19.0, staleness=131.0)
    assert broken(record) == {"staleness in its bound"}


def test_what_is_learned_from_once_is_never_older_whoever_was_stopped():
    record = whole()
    record.bounds = replace(BOUNDS, once=True)
    record.trials.append(FaultOutcome(Strike(1.0, Fault.STOP, "actor-0.0", 3.0), 6.0, 60, back=0.0))
    record.rows[-1] = row(19.0, staleness=101.0)
    assert "staleness in its bound" in broken(record)


@pytest.mark.parametrize(
    ("keys", "bound"),
    [
        ((), 0),  # synchronous
        (("hyp.mode=async",), usual_lag(2, 2)),
        (("hyp.mode=async", "hyp.batch_size=1"), usual_lag(2, 1)),
        (("hyp.mode=async", "hyp.max_lag=7"), 7),
        (("hyp.buffer_size=8",), None),  # Lag-k drops nothing
    ],
)
def test_on_policy_the_bound_of_staleness_is_that_of_the_balance(keys, bound):
    job = try_out(load(ROOT / "configs" / "cartpole_ppo.py", ["actor_cfg.num=2", *keys]))
    assert bounds_of(job).staleness == bound


def test_samples_that_are_learned_from_too_often_are_seen():
    record = whole()
    record.rows[-1] = row(19.0, ratio=4.3)
    assert broken(record) == {"no sample twice"}


def test_a_sample_of_on_policy_training_that_is_learned_from_twice_is_seen():
    record = whole()
    record.bounds = replace(BOUNDS, ratio=4.0, once=True)
    record.rows[:] = [replace(each, new=1.0) for each in record.rows]
    assert broken(record) == set()
    record.rows[-1] = row(19.0, new=0.99)
    assert broken(record) == {"no sample twice"}


def test_steps_that_are_forgotten_or_invented_are_seen():
    record = whole()
    record.rows[9] = row(10.0, env_steps=1)
    assert broken(record) == {"steps counted"}
    assert broken(ending(whole(), summary=dict(received=1_521))) == {"steps counted"}


@pytest.mark.parametrize("missing", [17, -17])
def test_more_uncounted_steps_than_one_trajectory_of_each_lost_process_are_seen(missing):
    assert broken(ending(whole(), summary=dict(missing_steps=missing))) == {"counts add up"}
    few = missing // 17 * 16
    assert broken(ending(whole(), summary=dict(missing_steps=few))) == set()
    record = ending(whole(), summary=dict(missing_steps=few))
    record.trials[0] = replace(record.trials[0], replaced=0)
    assert "counts add up" in broken(record)


def test_versions_that_fall_are_seen_whoever_was_lost():
    record = whole()
    record.rows[9] = row(10.0, updates=85)
    assert broken(record) == {"versions monotone"}


def test_a_process_that_was_replaced_although_it_was_only_stopped_is_seen():
    record = ending(whole(), summary=dict(restarts=2))
    record.trials[1] = replace(record.trials[1], replaced=1)
    assert broken(record) == {"no false alarm"}


def test_a_replaced_process_of_which_the_summary_does_not_tell_is_seen():
    assert broken(ending(whole(), summary=dict(restarts=0))) == {"restarts counted"}


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Fault.RAISE, dict(env_restarts=2)),
        (Fault.NAN, dict(not_finite=2)),
        (Fault.NAN, dict(not_finite=3, skipped_updates=1)),
    ],
)
def test_a_broken_environment_that_is_not_told_or_was_learned_from_is_seen(fault, told):
    record = whole()
    strike = Strike(1.0, fault, "actor-0.0")
    record.trials += [FaultOutcome(strike, at=9.0 + i, updates=90, back=0.1) for i in range(3)]
    counts = dict(env_restarts=3, not_finite=3, skipped_updates=0)
    assert broken(ending(record, summary=counts)) == set()
    assert broken(ending(record, summary=counts | told)) == {"mishaps counted"}


def test_a_run_without_a_whole_checkpoint_is_seen():
    assert broken(ending(whole(), checkpoint=None)) == {"checkpoint whole"}


@pytest.mark.parametrize("what", ["left", "segments"])
def test_whatever_is_left_behind_is_seen(what):
    assert broken(ending(whole(), **{what: ["actor-0.0 (17)"]})) == {"nothing left behind"}


@pytest.mark.parametrize(
    "changes",
    [
        dict(exit_status=0),
        dict(exit_status=-9, summary=dict(status=None)),
        dict(summary=dict(status="failed")),
        dict(summary=dict(status="nonsense")),
        dict(seconds=10.1),
    ],
)
def test_an_exit_status_that_is_not_true_or_late_is_seen(changes):
    assert broken(ending(whole(), **changes)) == {"exit status true"}


def test_every_status_that_a_run_ends_with_has_its_exit_statuses():
    assert set(invariants.STATUSES) == set(Status) - {Status.RUNNING, Status.UNFINISHED}


def test_a_verdict_decides_the_sentence_and_the_file(tmp_path):
    record = ending(whole(), checkpoint=None)
    settings = ChaosSettings("a.py", (), 7, 60.0, tuple(ALL), HOMES, (KILL, KILL), BOUNDS)
    found = judge(record)
    said = results.sentence(found, record, settings)
    assert said.startswith("2 faults of seed 7: broken: checkpoint whole.")
    content = json.loads(results.write(tmp_path, settings, record, found).read_text())
    assert content["held"] is False and content["faults"][0]["strike"]["fault"] == "kill"
    assert "BROKEN   none is whole" in results.verdicts(found)
    whole_found = judge(whole())
    said = results.sentence(whole_found, whole(), settings)
    assert "every invariant held" in said and f" 2 of {len(ALL)} kinds came." in said
    asked = replace(settings, faults=tuple({trial.strike.fault for trial in whole().trials}))
    assert "kinds" not in results.sentence(whole_found, whole(), asked)


def test_who_is_left_is_seen_by_its_process_group():
    mine = os.getpgrp()
    assert members_of({mine})[os.getpid()] == mine
    assert os.getpid() not in members_of({1 << 30})


def test_a_row_of_metrics_is_read_and_another_line_is_not():
    values = {"env_steps": 8, "updates": 2, "balance/ratio": None, "staleness/new": 1.0}
    assert row_of(values, 1.0) == Row(1.0, 8, 2, None, 1.0, None, 0)
    assert row_of({"env_steps": "many"}, 1.0) is None


# Environments that obey


class Game:
    """A game as its author wrote it."""

    def step(self, action):
        return np.zeros(2), 1.0, False, False, {}


class Loop:
    """What `tianji.envs.make` gives, as far as it matters here."""

    def __init__(self):
        self._envs = [Game()]

    def step(self, action):
        return self._envs[0].step(action)


@pytest.fixture
def loop(tmp_path):
    orders = orders_of(tmp_path, "actor-0.0")
    env = Loop()
    with_ordered_faults(env, orders_of(tmp_path, "actor-0.0"))  # the other side of it
    return env, orders


def test_an_environment_under_orders_counts_its_steps_and_changes_nothing(loop):
    env, orders = loop
    assert [env.step(0)[1] for _ in range(3)] == [1.0] * 3
    assert orders.words[Word.STEPS] == 3


def test_an_order_to_raise_is_obeyed_once(loop):
    env, orders = loop
    number = orders.give(CODES[Fault.RAISE])
    with pytest.raises(ChaosError):
        env.step(0)
    assert orders.words[Word.OBEYED] == number
    assert env.step(0)[1] == 1.0


def test_an_order_to_pay_nan_is_obeyed_once_also_by_a_game_that_was_made_anew(loop):
    env, orders = loop
    for _ in range(2):
        orders.give(CODES[Fault.NAN])
        assert [math.isnan(env.step(0)[1]) for _ in range(2)] == [True, False]
        env._envs[0] = Game()


def test_an_env_of_ones_own_pays_nan_on_order_and_its_layer_refuses_it(tmp_path):
    section = EnvironmentConfig("masked:Halved")
    env = make(section, 4, str(TASKS))
    with_ordered_faults(env, orders_of(tmp_path, "actor-0.0"))
    orders, obs = orders_of(tmp_path, "actor-0.0"), env.reset(0)
    number = orders.give(CODES[Fault.NAN])
    with pytest.raises(NotFinite, match="'reward'"):
        env.step(obs["mask"].argmax(1))
    assert orders.words[Word.OBEYED] == number and orders.words[Word.STEPS] == 1
    assert env.step(env.reset(0)["mask"].argmax(1)).valid.all()


def test_who_comes_later_does_not_obey_orders_of_before(tmp_path, loop):
    _, orders = loop
    orders.give(CODES[Fault.RAISE])
    another = Loop()
    with_ordered_faults(another, orders_of(tmp_path, "actor-0.0"))
    assert another.step(0)[1] == 1.0


def test_an_environment_of_ours_raises_and_refuses_to_pay_nan(tmp_path):
    class Own:
        def step(self, action):
            return 0

    orders, env = orders_of(tmp_path, "actor-0.0"), Own()
    with_ordered_faults(env, orders_of(tmp_path, "actor-0.0"))
    number = orders.give(CODES[Fault.NAN])
    assert env.step(0) == 0 and orders.words[Word.OBEYED] == -number
    orders.give(CODES[Fault.RAISE])
    with pytest.raises(ChaosError):
        env.step(0)
