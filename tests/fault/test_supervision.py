"""Processes that are lost in every way come back, and training goes on."""

import json
import os
import re
import signal
import time

import numpy as np
import pytest
from commands import ROOT, TASKS, alive, children, end, eventually, rows, start, train, training

from tianji.core import checkpoint
from tianji.observe.trace.trace_reader import read

pytestmark = [pytest.mark.fault, pytest.mark.process]

ENDLESS = ("--set", "exp.stop_return=1e9", "--set", "exp.train_steps=100000000")
INFERENCE = ("--set", "actor_cfg.inference=True", "--set", "actor_cfg.num=2")
GROWING = ("env_steps", "updates", "rollout/episodes", "time/restarts", "staleness/dropped")


class Run:
    """A run that would not end by itself."""

    def __init__(self, config, folder, *options):
        self.folder = folder
        self.process = start(config, folder, *ENDLESS, *options)
        self.seen = set()
        training(self.process, folder)

    def crew(self):
        found = children(self.process.pid)
        self.seen |= {*found.values()}
        return found

    def kill(self, *homes, number=signal.SIGKILL):
        crew = self.crew()
        for home in homes:
            os.kill(crew[home], number)

    def comes_back(self, n):
        """Waits for the `n`th return, and for updates after it."""
        eventually(lambda: self.last["time/restarts"] >= n, what="a restart")
        updates = self.last["updates"]
        eventually(lambda: self.last["updates"] > updates + 20, what="more updates")
        self.crew()

    @property
    def last(self):
        assert self.process.poll() is None, self.process.communicate()
        return rows(self.folder)[-1]

    def stop(self):
        """Ends it, and checks what must be true of every run, whatever has happened in it."""
        self.crew()
        self.process.send_signal(signal.SIGTERM)
        out, self.err = self.process.communicate(timeout=120)
        assert self.process.returncode == 143, self.err
        return check(self.folder, self.seen)


def check(folder, pids):
    """Counts never fall, nothing is lost that was not counted, nobody is left; the summary."""
    summary = json.loads((folder / "summary.json").read_text())
    written = rows(folder)
    for name in GROWING:
        values = [row[name] for row in written]
        assert values == sorted(values), name
    assert summary["produced"] >= summary["received"]
    config = json.loads((folder / "config.json").read_text())["config"]
    length = config["hyp"].get("step_len") or config["parallel"]["actor_cfg"]["send_size"]
    trajectory = length * config["parallel"]["actor_cfg"]["envs"]
    assert abs(summary["missing_steps"] or 0) <= trajectory * summary["restarts"]
    assert summary["staleness"]["max"] >= 0
    assert summary["restarts"] == written[-1]["time/restarts"]
    assert not any(map(alive, pids))
    assert checkpoint.newest(folder)[0] is not None
    return summary


@pytest.fixture
def begin(tmp_path):
    made = []

    def make(config, *options):
        made.append(Run(config, tmp_path / "run", *options))
        return made[-1]

    yield make
    for each in made:
        end(each.process)


def test_synchronous_training_goes_on_while_an_actor_is_away_and_when_all_are(begin):
    run = begin(TASKS / "echo_ppo.py")
    run.kill("actor-0.0")
    run.comes_back(1)
    run.kill("actor-0.0", "actor-0.1")
    run.comes_back(3)
    summary = run.stop()
    assert summary["restarts"] == 3
    assert summary["staleness"]["max"] == 0
    assert run.err.count("was killed by SIGKILL; it is replaced") == 3
    assert summary["roles"]["actor-0.0"]["produced"] > 0


def test_the_only_actor_of_dqn_comes_back_and_explores_on(begin):
    run = begin(TASKS / "echo_dqn.py", "--set", "exp.save_freq=100", "--set", "exp.save_keep=1000")
    run.kill("actor-0.0")
    run.comes_back(1)
    saved = set(checkpoint.folders_of(run.folder))

    def parts():
        new = set(checkpoint.folders_of(run.folder)) - saved
        found = [checkpoint.load(folder).part("actor-0.0") for folder in new]
        return [part for part in found if "policy" in part]  # without: it was away

    eventually(parts, what="a checkpoint of the new actor")
    run.stop()
    assert all(p["policy"]["steps"] >= p["counts"]["produced"] for p in parts())


@pytest.mark.parametrize(
    ("config", "home"),
    [
        ("echo_ppo.py", "actor-0.0"),
        pytest.param("echo_dqn.py", "actor-0.1", marks=pytest.mark.slow),
        pytest.param("echo_ppo.py", "inference-0.0", marks=pytest.mark.slow),
        ("echo_dqn.py", "inference-0.0"),
    ],
)
def test_an_actor_that_another_acts_for_and_that_other_come_back(begin, config, home):
    run = begin(TASKS / config, *INFERENCE)
    before = run.crew()
    run.kill(home)
    run.comes_back(1)
    after = run.crew()
    assert {each for each in before if after[each] != before[each]} == {home}
    summary = run.stop()
    assert summary["restarts"] == 1
    [fault] = summary["faults"]
    assert (fault["process"], fault["how"]) == (home, "was killed by SIGKILL")
    if "ppo" in config:
        assert summary["staleness"]["max"] == 0


def test_a_learner_comes_back_with_its_buffer_while_actors_stay(begin):
    run = begin(TASKS / "echo_dqn.py", "--set", "exp.save_seconds=0.5")
    before, updates = run.crew(), run.last["updates"]
    run.kill("learner-0.0")
    run.comes_back(1)
    after = run.crew()
    assert run.last["updates"] > updates
    assert after["actor-0.0"] == before["actor-0.0"]
    assert after["learner-0.0"] != before["learner-0.0"]
    summary = run.stop()
    assert summary["restarts"] == 1
    [fault] = summary["faults"]
    assert (fault["process"], fault["how"]) == ("learner-0.0", "was killed by SIGKILL")
    assert summary["replay_ratio"]["measured"] <= 8.0


def test_a_buffer_of_its_own_comes_back_in_synchronous_training(begin):
    run = begin(TASKS / "echo_ppo.py", "--set", "buffer_cfg.cores=1")
    before = run.crew()
    run.kill("buffer-0.0")
    run.comes_back(1)
    after = run.crew()
    assert {home for home in before if after[home] != before[home]} == {"buffer-0.0"}
    summary = run.stop()
    assert (summary["restarts"], summary["staleness"]["max"]) == (1, 0)


def broken(folder, how):
    """A configuration beside an environment that breaks once."""
    text = (TASKS / "echo_ppo.py").read_text()
    what = f'echo:BreaksOnce", how="{how}", mark="{folder / "mark"}"'
    (folder / "echo.py").write_text((TASKS / "echo.py").read_text())
    config = folder / "config.py"
    config.write_text(text.replace('echo:Echo", n=4', what))
    return config


@pytest.mark.parametrize(
    ("how", "words", "seconds"),
    [
        ("hangs", r"hung: a step took more than \d+ s", 2),
        pytest.param("crashes", "was killed by SIGSEGV", 60, marks=pytest.mark.slow),
    ],
)
def test_an_actor_whose_environment_hangs_or_crashes_is_replaced(tmp_path, how, words, seconds):
    folder, more = tmp_path / "run", f"environment.step_seconds={seconds}"
    ends = ("--set", "exp.train_steps=40000", "--set", "exp.stop_return=1e9")
    done = train(broken(tmp_path, how), folder, "--set", more, *ends)
    assert done.status == 0, done.err
    [fault] = done.summary["faults"]
    assert re.search(words, fault["how"])
    assert fault["away_seconds"] < 60
    log = (folder / "logs" / f"{fault['process']}.log").read_text()
    assert "in step" in log or how == "crashes"  # its stack


def test_an_actor_whose_environment_exits_with_the_status_of_a_mistake_is_replaced(tmp_path):
    text, mark = (TASKS / "echo_ppo.py").read_text(), tmp_path / "mark"
    (tmp_path / "echo.py").write_text((TASKS / "echo.py").read_text())
    config = tmp_path / "config.py"
    config.write_text(text.replace('echo:Echo", n=4', f'echo:ExitsOnce", status=2, mark="{mark}"'))
    ends = ("--set", "exp.train_steps=20000", "--set", "exp.stop_return=1e9")
    done = train(config, tmp_path / "run", *ends)
    assert done.status == 0, done.err
    [fault] = done.summary["faults"]
    assert fault["how"] == "failed with exit status 2"


@pytest.mark.slow
def test_an_evaluator_whose_environment_hangs_is_given_up_and_training_goes_on(begin, tmp_path):
    (tmp_path / "echo.py").write_text((TASKS / "echo.py").read_text())
    config = tmp_path / "config.py"
    config.write_text((TASKS / "echo_ppo.py").read_text().replace("Echo", "HangsInEvaluation"))
    options = ("exp.eval_step=1000", "environment.step_seconds=2")
    run = begin(config, *(word for option in options for word in ("--set", option)))
    evaluator = eventually(lambda: run.crew().get("evaluator-0.0"), what="an evaluator")
    eventually(lambda: not alive(evaluator), what="its end")
    updates = run.last["updates"]
    eventually(lambda: run.last["updates"] > updates + 20, what="more updates")
    [warning] = run.stop()["warnings"]
    assert re.match(r"evaluator-0.0 hung: a step took .* training goes on without it", warning)
    assert "in step" in warning  # its stack


@pytest.mark.parametrize("engine", ["process", pytest.param("local", marks=pytest.mark.slow)])
def test_a_run_ends_although_its_environment_hangs_in_the_last_games(tmp_path, engine):
    (tmp_path / "echo.py").write_text((TASKS / "echo.py").read_text())
    config = tmp_path / "config.py"
    config.write_text((TASKS / "echo_ppo.py").read_text().replace("Echo", "HangsInEvaluation"))
    options = ("--set", "exp.eval_step=1000000000", *ENDLESS, "--max-seconds", "1")
    began = time.monotonic()
    done = train(config, tmp_path / "run", *options, "--engine", engine)
    assert time.monotonic() - began < 60
    assert (done.status, done.summary["status"]) == (0, "stopped"), done.err
    [warning] = done.summary["warnings"]
    assert "not evaluated: their environment did not come back within 7 s:\n" in warning
    assert "in step" in warning  # its stack


@pytest.mark.slow
def test_an_actor_that_is_stopped_for_five_seconds_is_left_alone(begin):
    run = begin(TASKS / "echo_ppo.py")
    before = run.crew()
    run.kill("actor-0.0", number=signal.SIGSTOP)
    time.sleep(5)
    run.kill("actor-0.0", number=signal.SIGCONT)
    updates = run.last["updates"]
    eventually(lambda: run.last["updates"] > updates + 20, what="more updates")
    assert run.crew() == before
    assert run.stop()["restarts"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "options", "homes"),
    [
        ("echo_ppo.py", ("--set", "global_cfg.group_num=2"), ("actor-0.1", "actor-1.0")),
        ("echo_impala.py", ("--set", "actor_cfg.num=2"), ("actor-0.0", "actor-0.1")),
        ("echo_dqn.py", ("--set", "buffer_cfg.cores=1"), ("actor-0.0",)),
        ("echo_dqn.py", ("--set", "learner_cfg.num=2"), ("actor-0.0",)),
        ("echo_ppo.py", (), ("learner-0.0",)),
        ("echo_ppo.py", ("--set", "exp.save_seconds=0.5"), ("learner-0.0", "actor-0.1")),
        ("echo_ppo.py", ("--set", "buffer_cfg.cores=1"), ("learner-0.0",)),
        ("echo_impala.py", ("--set", "actor_cfg.num=2"), ("learner-0.0",)),
        ("echo_dqn.py", ("--set", "buffer_cfg.cores=1"), ("learner-0.0", "buffer-0.0")),
        ("echo_apex.py", ("--set", "buffer_cfg.cores=1"), ("buffer-0.0",)),
        ("echo_dqn.py", ("--set", "buffer_cfg.slack=0"), ("learner-0.0", "actor-0.0")),
        ("echo_ppo.py", INFERENCE, ("actor-0.0", "actor-0.1")),
        ("echo_ppo.py", INFERENCE, ("inference-0.0", "actor-0.1")),
        ("echo_impala.py", INFERENCE, ("inference-0.0", "learner-0.0")),
    ],
)
def test_in_every_layout(begin, config, options, homes):
    run = begin(TASKS / config, *options)
    for i in range(3):
        run.kill(*homes)
        run.comes_back((i + 1) * len(homes))
    assert run.stop()["restarts"] == 3 * len(homes)


@pytest.mark.slow
@pytest.mark.parametrize("home", ["learner-0.0", "actor-0.0"])
def test_one_that_is_lost_before_a_resumed_run_has_begun(begin, home):
    run = begin(TASKS / "echo_ppo.py")
    eventually(lambda: run.last["updates"] > 5, what="updates")
    before = run.stop()["updates"]
    run.process = start(TASKS / "echo_ppo.py", run.folder, *ENDLESS)
    eventually(lambda: home in children(run.process.pid), what="a process")
    time.sleep(0.7)  # it loads its libraries
    run.kill(home)
    eventually(lambda: run.last["updates"] > before + 20, what="more updates")
    assert run.stop()["restarts"] == 1


@pytest.mark.slow
def test_a_group_whose_learner_comes_back_is_averaged_again(begin):
    more = ("--set", "global_cfg.group_num=2", "--set", "learner_cfg.send_root_interval=20")
    run = begin(TASKS / "echo_dqn.py", *more)
    for i, home in enumerate(("learner-1.0", "learner-0.0")):
        run.kill(home)
        run.comes_back(i + 1)
        fusions = run.last["fusion/n"]
        eventually(lambda n=fusions: run.last["fusion/n"] > n + 2, what="more fusions")
    assert run.stop()["restarts"] == 2


@pytest.mark.slow
def test_a_trace_holds_all_lives_of_a_process(begin):
    run = begin(TASKS / "echo_ppo.py", "--trace")
    run.kill("actor-0.0")
    run.comes_back(1)
    run.kill("learner-0.0")
    run.comes_back(2)
    run.stop()
    trace = read(run.folder)
    assert sorted(role.name for role in trace.roles) == sorted(
        ["actor-0.0", "actor-0.1", "buffer-0.0", "learner-0.0"]
    )
    for home in ("actor-0.0", "learner-0.0"):
        assert len(list((run.folder / "trace").glob(f"{home}*"))) == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(20))
def test_whoever_is_killed_and_whenever(begin, seed):
    """Ten schedules of kills in each of these runs."""
    random = np.random.default_rng(seed)
    config = ("echo_ppo.py", "echo_dqn.py")[seed % 2]
    run = begin(TASKS / config, "--set", "actor_cfg.num=2", "--set", "global_cfg.restarts=1000")
    for _ in range(10):
        time.sleep(random.uniform(0, 2))
        crew = run.crew()
        for home in ("actor-0.0", "actor-0.1", "learner-0.0"):
            if home in crew and random.random() < 0.6:
                os.kill(crew[home], signal.SIGKILL)
    updates = run.last["updates"]
    eventually(lambda: run.last["updates"] > updates + 20, what="more updates")
    run.stop()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_a_task_is_solved_although_an_actor_is_killed_every_three_seconds(begin, name, tmp_path):
    config, more = ROOT / "configs" / f"cartpole_{name}.py", ("--set", "global_cfg.restarts=1000")
    process = start(config, tmp_path / "run", "--set", "exp.stop_return=300", *more)
    try:
        while process.poll() is None:
            time.sleep(3)
            crew = children(process.pid)
            if "actor-0.0" in crew and rows(tmp_path / "run"):
                os.kill(crew["actor-0.0"], signal.SIGKILL)
        out, err = process.communicate()
    finally:
        end(process)
    assert process.returncode == 0, err
    assert "Solved" in out
