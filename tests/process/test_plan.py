"""`tianji plan` and `train --plan` as a user has them, and what the probe measures."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import tianji

from tianji.config import load
from tianji.job.preflight import try_out
from tianji.machine import resources
from tianji.strategy.probe.measure import ActorProbe, LearnerProbe
from tianji.strategy.probe.probe import probe
from tianji.strategy.probe.probe_handle import ProbeHandle
from tianji.strategy.probe.variants import env_choices, variant, work_of

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def planned(root, tmp_path_factory):
    """One plan for all tests of it, made in as little time as possible."""
    folder = tmp_path_factory.mktemp("plan")
    path = folder / "dqn.plan.json"
    config = root / "configs" / "cartpole_dqn.py"
    done = tianji("plan", config, "--out", path, "--cores", "2", "--seconds", "6", cwd=folder)
    assert done.returncode == 0, done.stderr
    return config, path, done


def test_a_plan_says_what_to_do_and_what_to_expect(planned):
    config, path, done = planned
    assert f"tianji train {config} --plan {path}" in done.stdout
    for word in ("predicted", "balance", "staleness", "memory", "equation 1", "freshness P"):
        assert word in done.stdout
    plan = json.loads(path.read_text())
    assert plan["set"]["learner_cfg.cores"] == plan["set"]["actor_cfg.cores"] == 1
    assert plan["predicted"]["consumption"] == pytest.approx(4 * plan["predicted"]["production"])


def test_a_run_follows_its_plan_and_compares(planned, tmp_path):
    config, path, _ = planned
    run = tmp_path / "run"
    limits = ("--max-seconds", "4", "--stop-return", "1e9", "--set", "exp.train_steps=10**9")
    done = tianji("train", config, "--plan", path, "--run-dir", run, "--quiet", *limits)
    assert done.returncode == 0, done.stderr
    summary = json.loads((run / "summary.json").read_text())
    assert summary["plan"]["predicted"]["production_per_second"] > 0
    assert summary["plan"]["measured"]["production_per_second"] > 0
    assert "predicted" in done.stdout and "measured" in done.stdout
    kept = json.loads((run / "config.json").read_text())["config"]["parallel"]
    assert kept["actor_cfg"]["envs"] == json.loads(path.read_text())["set"]["actor_cfg.envs"]


def test_earlier_costs_are_used_again_without_measuring(planned, tmp_path):
    config, path, _ = planned
    done = tianji(
        "plan", config, "--profile", path, "--cores", "16", "--out", tmp_path / "large.json"
    )
    assert done.returncode == 0 and "as measured" in done.stdout
    assert json.loads((tmp_path / "large.json").read_text())["split"]["groups"] > 1


def test_a_larger_batch_keeps_freshness_and_raises_the_learning_rate(planned, tmp_path):
    config, path, _ = planned
    larger = ("--batch-scale", "4", "--lr-rule", "sqrt")
    done = tianji("plan", config, *larger, "--seconds", "5", "--out", tmp_path / "batch.json")
    assert done.returncode == 0, done.stderr
    assert "  config      its own split" in done.stdout  # that too, or none
    assert ("with --batch-scale 4" in done.stdout) is ("\nconfig  " in done.stdout)
    plan = json.loads((tmp_path / "batch.json").read_text())
    settings = {"hyp.batch_size": 512, "hyp.buffer_size": 200_000, "hyp.lr": 0.004}
    assert (plan["settings"], plan["split"]["batch"]) == (settings, 512)
    trained = tianji("train", config, "--plan", tmp_path / "batch.json", "--dry-run")
    assert trained.returncode == 0, trained.stderr
    done = tianji("plan", config, *larger, "--profile", path)
    assert done.returncode == 2 and "these costs are of another configuration" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--engine", "local"), "has only one"),
        (("--set", "global_cfg.use_comm_parallel=False"), "has only one"),
        (("--set", "actor_cfg.envs=3"), "other options say actor_cfg.envs=3"),
        (("--set", "hyp.batch_size=64"), "hyp.batch_size was 128 and is 64 now"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(planned, words, said, tmp_path):
    config, path, _ = planned
    done = tianji("train", config, "--plan", path, *words, "--run-dir", tmp_path / "run")
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "run").exists()


def test_no_plan_where_there_should_be_one(root, tmp_path):
    config = root / "configs" / "cartpole_dqn.py"
    done = tianji("train", config, "--plan", tmp_path / "none.json")
    assert done.returncode == 2 and "make one with tianji plan" in done.stderr
    done = tianji("plan", config, "--out", tmp_path / "no folder" / "plan.json")
    assert done.returncode == 2 and "make it first" in done.stderr
    done = tianji("plan", config, "--actors", "99", "--cores", "2", "--seconds", "5")
    assert done.returncode == 2 and "actor_cfg.num=99" in done.stderr


# ---------------------------------------------------------------------------------------- the probe


@pytest.fixture
def tasks(root):
    return root / "tests" / "tasks"


@pytest.mark.parametrize("name", ["walk_dqn.py", "walk_ppo.py"])
def test_roles_are_measured_as_they_train(name, tasks):
    config = load(tasks / name, [])
    acting = ActorProbe(config).run(0.05)
    assert acting.n_steps > 0 and acting.seconds > 0.045 and acting.trajectory_bytes > 0
    learning = LearnerProbe(config).run(0.05)
    assert learning.updates >= 2 and learning.n_received > 0
    assert learning.updating + learning.adding + learning.drawing <= learning.seconds


def test_receiving_has_its_cost_also_where_nothing_came_meanwhile(tasks):
    config = load(tasks / "walk_dqn.py", ["global_cfg.replay_ratio=100_000"])
    learning = LearnerProbe(config).run(0.02)
    assert learning.n_received == 0 and learning.storing > 0


def test_an_actor_whose_environment_sleeps_needs_its_core_for_a_part_of_the_time(tasks, tmp_path):
    (tmp_path / "pace").write_text("0.02")
    config = load(tasks / "drifting_dqn.py", [f"environment.pace={str(tmp_path / 'pace')!r}"])
    assert ActorProbe(config).run(0.2).computing < 0.5


def test_an_actor_that_others_keep_from_its_core_does_not_wait_for_something_else(tasks):
    """On a machine that is shared it had a core for a part of the time, and needed it for all."""
    probe, before = ActorProbe(load(tasks / "walk_dqn.py", [])), os.sched_getaffinity(0)
    spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        core = {min(before)}
        os.sched_setaffinity(spinner.pid, core)
        os.sched_setaffinity(0, core)
        began, had = time.perf_counter(), time.process_time()
        found = probe.run(0.5)
        share = (time.process_time() - had) / (time.perf_counter() - began)
    finally:
        os.sched_setaffinity(0, before)
        spinner.kill()
        spinner.wait()
    assert share < 0.8 < found.computing


def test_where_nobody_counts_how_long_a_core_was_waited_for_the_time_on_one_counts(
    tasks, monkeypatch
):
    monkeypatch.setattr("tianji.strategy.probe.measure.SCHEDSTAT", Path("/proc/self/none"))
    assert 0 < ActorProbe(load(tasks / "walk_dqn.py", [])).run(0.05).computing <= 1


def test_trajectories_that_a_trigger_cuts_short_are_counted_as_they_are(tmp_path, tasks):
    (tmp_path / "hasty.py").write_text(
        "class Hasty:\n"
        "    def __init__(self, length):\n"
        "        pass\n"
        "    def fires(self, length, ended):\n"
        "        return length == 2\n"
    )
    for name in ("walk.py", "walk_dqn.py"):
        (tmp_path / name).write_text((tasks / name).read_text())
    config = load(tmp_path / "walk_dqn.py", ["actor_cfg.trigger='hasty:Hasty'"])
    acting = ActorProbe(config).run(0.05)
    assert acting.length == 2
    assert acting.n_steps <= 2 * (acting.n_sent + 1)


def test_a_slow_environment_is_not_played_to_the_end_of_a_trajectory(tasks, monkeypatch):
    monkeypatch.setattr("tianji.strategy.probe.measure.PLAYING_SECONDS", 0.0)
    learning = LearnerProbe(load(tasks / "walk_ppo.py", [])).run(0.05)
    assert learning.updates >= 2


@pytest.mark.slow
def test_on_one_core_roles_are_measured_one_after_the_other(tasks, monkeypatch):
    from tianji.strategy.probe import probe_children as module

    monkeypatch.setattr("tianji.strategy.probe.probe_children.LONGEST_SECONDS", 0.05)
    together, at_once = module.together, []
    monkeypatch.setattr(
        module,
        "together",
        lambda hands, *more: at_once.append(len(hands)) or together(hands, *more),
    )
    probe(try_out(load(tasks / "walk_dqn.py", [])), 1, seconds=60.0)
    assert set(at_once) == {1}


def test_what_would_end_a_run_does_not_end_a_measurement(tasks):
    ends = ["exp.train_steps=60", "learner_cfg.exit_val=dict(learn_step=1)"]
    assert LearnerProbe(load(tasks / "walk_dqn.py", ends)).run(0.1).updates >= 2


@pytest.mark.parametrize("task", ["walk_dqn.py", "walk_ppo.py"])
def test_an_actor_is_measured_with_who_acts_for_it(tasks, task):
    config = load(tasks / task, ["actor_cfg.inference=True"])
    found = ActorProbe(config).run(0.1)
    assert found.n_steps > found.n_sent > 1
    assert 0 < found.deciding < found.seconds / found.n_steps
    assert found.length * found.n_sent == pytest.approx(found.n_steps, rel=0.5)
    assert not found.one_pass  # in numpy
    learning = LearnerProbe(config).run(0.05)
    assert learning.updates > 0 and learning.n_received > 0


def test_two_processes_wake_each_other_in_less_than_a_thousandth_or_so():
    with ProbeHandle("actor", 1) as hand:
        hand.await_loaded()
        assert 1e-6 < hand.round_trip(min(os.sched_getaffinity(0))) < 0.1


@pytest.mark.parametrize("probe_of", [ActorProbe, LearnerProbe])
def test_nobody_is_measured_before_everybody_is_warm(tasks, probe_of):
    """Who waits for others does not count that, and begins when they do."""
    went = []

    def go():
        time.sleep(0.2)
        went.append(time.perf_counter())

    found = probe_of(load(tasks / "walk_dqn.py", [])).run(0.1, go)
    (began,) = went
    assert 0.1 <= found.seconds <= time.perf_counter() - began


@pytest.mark.parametrize("settings", [[], ["hyp.batch_size=8", "actor_cfg.num=2"]])
def test_a_learner_that_waits_for_the_others_to_be_warm_is_not_busy_meanwhile(tasks, settings):
    """Whether it has a batch in that step or not."""
    found = LearnerProbe(load(tasks / "walk_ppo.py", settings)).run(0.1, lambda: time.sleep(0.3))
    assert 0 < found.updating <= found.seconds


def test_every_rollout_of_actors_with_pauses_is_timed(tasks):
    found = ActorProbe(load(tasks / "walk_ppo.py", []), pause=0.01).run(0.2)
    assert found.n_sent - 2 <= len(found.rollouts) <= found.n_sent
    assert sum(found.rollouts) < found.seconds + 0.01  # pauses are not in it
    assert ActorProbe(load(tasks / "walk_ppo.py", [])).run(0.05).rollouts == []


def test_pauses_of_the_others_are_not_counted(tasks):
    """What lasts a second with its pauses takes less than that."""
    config = load(tasks / "walk_ppo.py", [])
    for probe_of in (LearnerProbe, ActorProbe):
        assert probe_of(config, pause=0.0).run(0.1).seconds >= 0.1
        assert probe_of(config, pause=0.6).run(1.0).seconds < 0.8


@pytest.mark.slow
def test_learners_are_measured_together_where_they_share_a_gpu(tasks, monkeypatch):
    """The CPU stands in for it: only who runs at the same time is looked at."""
    from tianji.strategy.probe import probe_children as module

    monkeypatch.setattr("tianji.strategy.probe.probe_children.LONGEST_SECONDS", 0.05)
    monkeypatch.setattr("tianji.strategy.probe.this_machine.gpu_of", lambda device: "a GPU")
    monkeypatch.setattr(module, "ON_GPU", (2, 4))
    monkeypatch.setattr(module, "MOST_AGAIN", 0)
    for name in ("walk_dqn.py", "walk_ppo.py"):
        profile = probe(try_out(load(tasks / name, [])), 2, seconds=60.0)
        assert [n for n, _ in profile.learners[0].on_gpu] == [2]  # as many as there are cores
        assert {cost.cores for cost in profile.learners} == {1}
        assert profile.learners[0].on_gpu[0][1] >= 1.0


def test_the_whole_probe_measures_every_choice(tasks, monkeypatch):
    monkeypatch.setattr("tianji.strategy.probe.probe_children.LONGEST_SECONDS", 0.05)
    config = load(tasks / "walk_dqn.py", ["learner_cfg.device='auto'"])
    profile = probe(try_out(config), 2, seconds=60.0)
    assert profile.machine.gpu == resources.gpu_of("cuda")  # what `auto` found, not the word
    batch = profile.work.batch
    assert [(cost.cores, cost.batch) for cost in profile.learners] == [(1, batch), (1, 4 * batch)]
    assert {1, 4} <= {cost.envs for cost in profile.actors}
    assert all(cost.step_seconds > 0 and cost.receive_seconds > 0 for cost in profile.actors)


def test_an_actor_of_one_environment_stays_one(tasks):
    job = try_out(
        load(tasks / "walk_dqn.py", ["environment.vectorization='single'", "actor_cfg.envs=1"])
    )
    assert env_choices(job, 8) == [1]


def test_more_environments_than_the_store_has_room_for_are_not_measured(tasks):
    job = try_out(load(tasks / "walk_dqn.py", ["hyp.buffer_size=512", "actor_cfg.send_size=16"]))
    assert max(env_choices(job, 8)) == 16


def test_environments_of_a_rollout_are_shared_out_and_never_added(root):
    job = try_out(load(root / "configs" / "cartpole_ppo.py", []))
    choices = env_choices(job, 16)
    assert choices[0] == 64 and all(64 % envs == 0 for envs in choices)
    for envs in choices:
        parallel = variant(job, envs).parallel
        assert parallel.actor_cfg.num * parallel.actor_cfg.envs == 64
    assert work_of(job).batch == 64 * 32


def test_what_a_job_asks_for_is_what_its_configuration_says(root):
    job = try_out(load(root / "configs" / "cartpole_dqn.py", ["learner_cfg.send_root_interval=3"]))
    assert work_of(job).fusion_interval == 3


def test_the_store_of_one_group_is_counted_whatever_their_number(tasks):
    one, two = (
        work_of(try_out(load(tasks / "walk_dqn.py", [f"global_cfg.group_num={n}"]))) for n in (1, 2)
    )
    assert one.store_bytes == two.store_bytes > 0
