"""What is promised when something breaks: a true status, a clear word, nothing left behind."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from commands import (
    ROOT,
    TASKS,
    alive,
    begun,
    children,
    end,
    eventually,
    rows,
    start,
    train,
    training,
    without_a_mean,
)

import tianji
from tianji.core import alarm, checkpoint
from tianji.core.signals import ECHO_SECONDS
from tianji.engines import stall

pytestmark = [pytest.mark.fault, pytest.mark.process]

ENDLESS = ("--set", "exp.stop_return=1e9", "--set", "exp.train_steps=100000000")


@pytest.fixture
def run(tmp_path):
    """A run that would not end by itself."""
    folder = tmp_path / "run"
    process = start(ROOT / "configs" / "cartpole_dqn.py", folder, *ENDLESS)
    crew = training(process, folder)
    yield process, folder, crew
    end(process)


@pytest.mark.parametrize(
    "victim", ["actor-0.0", pytest.param("learner-0.0", marks=pytest.mark.slow)]
)
def test_one_that_is_killed_and_may_not_be_replaced_ends_the_run_and_is_named(tmp_path, victim):
    options = (*ENDLESS, "--set", "global_cfg.restarts=0")
    process = start(TASKS / "echo_dqn.py", tmp_path / "run", *options)
    try:
        crew = training(process, tmp_path / "run")
        _kill(crew[victim], signal.SIGKILL)
        out, err = process.communicate(timeout=120)
    finally:
        end(process)
    assert process.returncode == 1
    assert f"{victim} was killed by SIGKILL" in err
    assert not any(map(alive, crew.values()))


@pytest.mark.parametrize(
    "victim",
    [
        "learner-0.1",
        pytest.param("learner-1.0", marks=pytest.mark.slow),
    ],
)
def test_one_of_several_learners_that_is_killed_ends_the_run_and_is_named(tmp_path, victim):
    pair = {"learner-0.1": "learner_cfg.num=2"}.get(victim, "global_cfg.group_num=2")
    folder, more = tmp_path / "run", ("--set", pair, "--set", "exp.save_freq=50")
    more += ("--set", "global_cfg.restarts=0") if victim == "learner-1.0" else ()
    process = start(ROOT / "configs" / "cartpole_dqn.py", folder, *ENDLESS, *more)
    try:
        crew = training(process, folder)
        _kill(crew[victim], signal.SIGKILL)
        out, err = process.communicate(timeout=120)
    finally:
        end(process)
    assert process.returncode == 1
    assert f"{victim} was killed by SIGKILL" in err
    assert "did not end" not in err  # the others did, by themselves
    assert not any(map(alive, crew.values()))
    assert "Failed" in out and "tianji resume" in out


FUSED = ("--set", "global_cfg.group_num=2", "--set", "learner_cfg.send_root_interval=20")
APART = "training goes on without it, and the groups are not averaged any more"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("killed", "was killed by SIGKILL"),
        pytest.param("raises", "failed with exit status 1", marks=pytest.mark.slow),
    ],
)
def test_groups_learn_on_apart_when_the_reducer_is_gone_and_the_run_says_so(tmp_path, how, words):
    folder, path = tmp_path / "run", ROOT if how == "killed" else without_a_mean(tmp_path)
    options = (*ENDLESS, *FUSED, "--set", "exp.save_seconds=1")
    process = start(TASKS / "echo_dqn.py", folder, *options, path=path)
    try:
        crew = training(process, folder)
        if how == "killed":
            eventually(lambda: rows(folder)[-1]["fusion/n"], 20, "a fusion")
            _kill(crew["reducer-0.0"], signal.SIGKILL)
        eventually(lambda: not alive(crew["reducer-0.0"]), 20, "its end")
        _more_updates(folder)
        saved = set(checkpoint.folders_of(folder))
        eventually(lambda: set(checkpoint.folders_of(folder)) - saved, 10, "another checkpoint")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    finally:
        end(process)
    assert process.returncode == 143, err
    assert err.count(f"tianji: warning: reducer-0.0 {words}; {APART}") == 1
    assert err.count("ValueError: no mean today") == (how == "raises")
    assert "  lost       reducer-0.0: the groups were not averaged any more\n" in out
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["status"], summary["lost"]) == ("interrupted", ["reducer-0.0"])
    assert any(APART in warning for warning in summary["warnings"])
    assert (summary["fusions"] > 0) == (how == "killed")
    _averages_again(folder, options, summary["fusions"])


def _averages_again(folder, options, fusions):
    """The same command goes on, with a reducer."""
    process = start(TASKS / "echo_dqn.py", folder, *options)
    try:
        eventually(lambda: rows(folder)[-1]["fusion/n"] > fusions, 40, "another fusion")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    finally:
        end(process)
    assert (process.returncode, "lost " in out) == (143, False), err


def _more_updates(folder):
    before = rows(folder)[-1]["updates"]
    eventually(lambda: rows(folder)[-1]["updates"] > before + 100, 20, "more updates")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_cleanly(run, number, status):
    process, folder, crew = run
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == status
    assert "Interrupted" in out
    assert "Traceback" not in err
    assert (folder / "checkpoints" / "final.safetensors").exists()
    assert not any(map(alive, crew.values()))


@pytest.mark.slow
def test_a_second_signal_ends_the_run_at_once(run):
    process, folder, crew = run
    _kill(crew["actor-0.0"], signal.SIGSTOP)  # the end would wait for it
    process.send_signal(signal.SIGTERM)
    time.sleep(ECHO_SECONDS + 0.2)  # before, it would be the same wish
    process.send_signal(signal.SIGTERM)
    sent_at = time.monotonic()
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGTERM
    assert time.monotonic() < sent_at + 5
    eventually(lambda: not any(map(alive, crew.values())), 5, "the end of the children")


def test_children_and_shared_memory_go_when_the_launcher_is_killed(run):
    process, folder, crew = run
    memory = _memory_files([process.pid, *crew.values()])
    assert memory  # of the rings
    process.kill()
    process.wait()
    killed_at = time.monotonic()
    eventually(lambda: not any(map(alive, crew.values())), 5, "the end of the children")
    assert time.monotonic() < killed_at + 5
    everybody = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    assert not memory & _memory_files(everybody)


@pytest.fixture
def starting(tmp_path):
    """A run whose environments start programs, in turns a plain one and a stubborn one."""
    mark, folder = tmp_path / "started", tmp_path / "run"
    config = _echo(tmp_path, "Starts", f", mark={str(mark)!r}")
    process = start(config, folder, *ENDLESS, process_group=0)
    crew = training(process, folder)

    def started(home="actor-0."):
        words = [line.split() for line in mark.read_text().splitlines()]
        return [int(pid) for who, pid in words if who.startswith(home)]

    yield process, crew, started
    for pid in started(""):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    end(process)


def test_what_an_environment_has_started_goes_with_its_actor_and_with_the_run(starting):
    process, crew, started = starting
    first, everybody = started("actor-0.0"), started()
    for line in Path(f"/proc/{first[0]}/status").read_text().splitlines():
        if line.startswith("SigIgn:"):
            assert not int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1
    _kill(crew["actor-0.0"], signal.SIGKILL)
    eventually(lambda: not any(map(alive, first)), what="the end of its programs")
    eventually(lambda: set(started()) > set(everybody), what="the next actor")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert not any(map(alive, started()))


def test_what_an_environment_has_started_goes_when_the_launcher_is_killed(starting):
    process, crew, started = starting
    process.kill()
    process.wait()
    plain = started()[::2]  # nobody is left to kill who does not listen
    eventually(lambda: not any(map(alive, [*crew.values(), *plain])), what="the end of all")


def test_ctrl_z_stops_the_whole_run_and_it_goes_on(starting):
    process, crew, started = starting
    os.killpg(process.pid, signal.SIGTSTP)  # as a terminal does it
    everybody = [process.pid, *crew.values(), *started()]
    eventually(lambda: all(_state(pid) == "T" for pid in everybody), what="silence")
    os.killpg(process.pid, signal.SIGCONT)
    eventually(lambda: not any(_state(pid) == "T" for pid in everybody), what="the next step")
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130


def _state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _memory_files(pids):
    """Files without a name in the file system that these processes have open."""
    found = set()
    for pid in pids:
        with suppress(OSError):  # it has gone, or is somebody else's
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if os.readlink(link).startswith("/memfd:"):
                        found.add((link.stat().st_dev, link.stat().st_ino))
    return found


def test_training_goes_on_while_the_launcher_sleeps(run):
    process, folder, crew = run
    before = rows(folder)[-1]["updates"]
    process.send_signal(signal.SIGSTOP)
    busy = _cpu_seconds(crew["learner-0.0"])
    eventually(lambda: _cpu_seconds(crew["learner-0.0"]) > busy + 0.5, 20, "work of the learner")
    process.send_signal(signal.SIGCONT)
    eventually(lambda: rows(folder)[-1]["updates"] > before + 100, 10, "news of that work")


def test_a_frozen_learner_stops_the_actors_at_the_bound(run):
    process, folder, crew = run
    _kill(crew["learner-0.0"], signal.SIGSTOP)
    eventually(lambda: _quiet(crew["actor-0.0"]), 20, "an idle actor")
    _kill(crew["learner-0.0"], signal.SIGCONT)
    before = rows(folder)[-1]["updates"]
    eventually(lambda: rows(folder)[-1]["updates"] > before, 10, "more updates")


ENGINES = ["process", pytest.param("local", marks=pytest.mark.slow)]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_environment_that_raises_once_costs_an_episode_and_is_shown(tmp_path, engine):
    folder = tmp_path / "run"
    done = train(_echo(tmp_path, "RaisesOnce"), folder, "--engine", engine)
    assert done.status == 0, done.err
    assert (done.summary["status"], done.summary["env_restarts"]) in (("solved", 1), ("solved", 2))
    (warning, *_) = done.summary["warnings"]
    assert warning.startswith("actor-0.") and "at step " in warning and "made anew" in warning
    assert 'raise RuntimeError("the simulator lost its marbles")' in warning
    assert "marbles" in done.err and "made anew" in done.out
    assert rows(folder)[-1]["faults/env_restarts"] == done.summary["env_restarts"]
    if engine == "process":
        assert any("Traceback" in _words(log) for log in (folder / "logs").glob("actor-*.log"))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_environment_that_raises_again_and_again_ends_the_run(tmp_path, engine):
    done = train(_echo(tmp_path, "Raises"), tmp_path / "run", "--engine", engine)
    assert done.status == 1
    assert "actor-0." in done.err and "global_cfg.restarts allows 10" in done.err
    assert "RuntimeError: the simulator lost its marbles" in done.err
    assert done.summary["status"] == "failed" and done.summary["env_restarts"] >= 11
    assert "marbles" in done.summary["error"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_reward_that_is_no_number_costs_an_episode_and_is_named(tmp_path, engine):
    done = train(_echo(tmp_path, "NotANumber"), tmp_path / "run", "--engine", engine)
    assert (done.status, done.summary["status"]) == (0, "solved")
    assert done.summary["not_finite"] > 0
    assert "environment 0: field 'reward' has NaN or Inf at step 10 of its episode" in done.err
    assert "Traceback" not in done.err


SPOILT = """
import math
from pathlib import Path

from tianji.algorithms.dqn import DQN


class Spoilt(DQN):
    bad = False

    def _losses(self, batch):
        loss, *rest = super()._losses(batch)
        self.bad = self.bad or any((Path(__file__).parent / "run" / "checkpoints").glob("0*"))
        return loss * math.nan if self.bad else loss, *rest
"""


def test_a_loss_that_stays_nan_goes_back_to_the_newest_checkpoint_once_and_then_ends(tmp_path):
    (tmp_path / "spoilt.py").write_text(SPOILT)  # from the first checkpoint on
    (tmp_path / "echo.py").write_text((TASKS / "echo.py").read_text())
    text = (TASKS / "echo_dqn.py").read_text().replace('type="DQN",', 'type="spoilt:Spoilt",')
    (tmp_path / "config.py").write_text(text)
    done = train(tmp_path / "config.py", tmp_path / "run", *ENDLESS, "--set", "exp.save_freq=200")
    assert (done.status, done.summary["status"]) == (2, "failed")
    assert done.summary["skipped_updates"] == 20
    assert done.err.count("weights and optimiser are those of the newest checkpoint again") == 1
    for words in ("10 updates in a row were skipped, loss is nan", "going back to 00", "hyp.lr"):
        assert words in done.summary["error"]
    log = (tmp_path / "run" / "logs" / "learner-0.0.log").read_text()
    assert log.count("learner-0.0: goes back to 00") == 1
    weights = checkpoint.newest(tmp_path / "run")[0].part("learner-0.0")["algorithm"]["parameters"]
    assert np.isfinite(weights).all()


def test_a_run_that_stands_still_says_where_each_process_is(tmp_path, monkeypatch):
    monkeypatch.setattr(stall, "STALL_SECONDS", 1.0)
    overrides = ["actor_cfg.num=1", "actor_cfg.envs=1", "exp.train_steps=3000"]
    config = _echo(tmp_path, "Sleeps")
    report = tianji.train(config, *overrides, engine="process", run_dir=tmp_path / "run")
    assert report.exit_status == 0
    text = next(each for each in report.summary["warnings"] if "nothing has moved for" in each)
    assert "  actor-0.0 has said nothing since: it is in the middle of a step" in text
    assert "  learner-0.0 waits for a batch" in text
    assert "echo.py" in text and "in step" in text  # where the actor is


@pytest.mark.slow
def test_an_actor_that_hangs_in_its_first_reset_is_told_and_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(stall, "START_SECONDS", 2.0)
    monkeypatch.setattr(alarm, "START_SECONDS", 6.0)  # in which its replacement has to begin
    monkeypatch.setattr(alarm, "AT_FIRST", 2.0)
    text = _echo(tmp_path, "HangsAtFirst", f', mark="{tmp_path / "mark"}"')
    ends = ["exp.train_steps=3000", "exp.stop_return=1e9", "environment.step_seconds=2"]
    report = tianji.train(text, *ends, engine="process", run_dir=tmp_path / "run")
    assert report.summary["status"] == "finished"
    fault = next(each for each in report.summary["faults"] if each["process"] == "actor-0.0")
    assert fault["how"].startswith("hung: it was not ready after more than 10 s")
    warning = next(each for each in report.summary["warnings"] if "is not ready yet" in each)
    assert "  actor-0.0 is not ready yet" in warning
    assert "in reset" in warning
    assert "in reset" in (tmp_path / "run" / "logs" / "actor-0.0.log").read_text()


@pytest.mark.parametrize("how", [pytest.param("sys", marks=pytest.mark.slow), "os"])
def test_an_actor_that_just_leaves_is_noticed(tmp_path, how):
    config = _echo(tmp_path, "Leaves", f', how="{how}"')
    done = train(config, tmp_path / "run", *ENDLESS, "--set", "global_cfg.restarts=1")
    assert done.status == 1
    assert "actor-0." in done.err
    assert "replaced 1 times within an hour" in done.summary["error"]
    assert done.summary["status"] == "failed"


def test_a_signal_to_all_processes_is_the_launchers_to_answer(run):
    process, folder, crew = run
    for pid in (*crew.values(), process.pid):
        _kill(pid, signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 143
    assert (folder / "checkpoints" / "final.safetensors").exists()


def test_a_signal_before_training_leaves_no_folder(tmp_path):
    folder = tmp_path / "run"
    process = start(_echo(tmp_path, "SlowToStart"), folder)
    eventually(lambda: "actor-0.1" in children(process.pid), what="the last child")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143
    assert "failed" not in err
    assert not folder.exists()


def test_a_second_signal_while_a_failed_run_ends_does_not_cost_its_folder(tmp_path):
    folder = tmp_path / "run"
    process = start(_echo(tmp_path, "Raises"), folder, "--set", "global_cfg.restarts=0")
    eventually(lambda: "marbles" in _words(folder / "logs" / "actor-0.0.log"), what="the error")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode in (1, 130)
    assert (folder / "summary.json").exists()


def test_no_shared_memory_is_left_in_the_file_system(tmp_path):
    before = set(_shared_memory())
    done = train(TASKS / "echo_ppo.py", tmp_path / "run", "--max-seconds", "1")
    assert done.status == 0
    assert set(_shared_memory()) <= before


def _echo(folder, task, options=""):
    text = (TASKS / "echo_ppo.py").read_text().replace('echo:Echo"', f'echo:{task}"{options}')
    (folder / "echo.py").write_text((TASKS / "echo.py").read_text())
    config = folder / "config.py"
    config.write_text(text)
    return config


def _shared_memory():
    return [path.name for path in Path("/dev/shm").iterdir()]


def _words(path):
    return path.read_text() if path.exists() else ""


def _kill(pid, number):
    os.kill(pid, number)


def _cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _quiet(pid):
    """Whether a process uses less than a tenth of a core over a fifth of a second."""
    before = _cpu_seconds(pid)
    time.sleep(0.2)
    return _cpu_seconds(pid) - before < 0.03


@pytest.mark.parametrize(
    "n", [6, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_a_signal_at_any_moment_of_the_start_ends_the_command_in_order(tmp_path, n):
    slow, random = _echo(tmp_path, "SlowToStart"), np.random.default_rng(n)
    for i in range(n):
        folder, number = tmp_path / str(i), (signal.SIGINT, signal.SIGTERM)[i % 2]
        config = slow if i % 4 < 2 else TASKS / "echo_ppo.py"
        process = start(config, folder, *ENDLESS)
        try:
            eventually(lambda pid=process.pid: begun(pid), what="our part of the command")
            time.sleep(random.uniform(0.0, 1.0))
            process.send_signal(number)
            out, err = process.communicate(timeout=120)
        finally:
            end(process)
        assert process.returncode in (128 + number, -number)
        assert "Traceback" not in err
        assert folder.exists() == (folder / "summary.json").exists()  # nothing, or all of it
        assert not (folder.exists() and config == slow)
