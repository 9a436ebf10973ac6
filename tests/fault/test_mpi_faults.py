"""What is promised when a rank, a launcher or a link of an MPI job breaks: clear and in time."""

import json
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import jobs
import pytest
from commands import TASKS, alive, eventually, rows, without_a_mean
from mpi_pair import MISSING

from tianji.core import checkpoint

pytestmark = [
    pytest.mark.fault,
    pytest.mark.process,
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]

ENDLESS = ("--set", "exp.stop_return=1e9", "--set", "exp.train_steps=100000000")
LINK_SECONDS = 3.0
SOON = ("--set", f"global_cfg.link_seconds={LINK_SECONDS}")
OFTEN = ("--set", "exp.save_seconds=1")
THREE = ("--set", "actor_cfg.num=3")
IMPATIENT = ("--set", "actor_cfg.num=2", "--set", "environment.step_seconds=1")
NOT_REPLACED = ("--set", "global_cfg.restarts=0")


@pytest.fixture
def begin(tmp_path):
    """Starts a job that would not end by itself; returns its process, folder and ranks."""
    begun = []

    def start(task, *options, endless=True, **more):
        folder = tmp_path / "run"
        config = task if isinstance(task, Path) else TASKS / f"echo_{task}.py"
        more_options = (*ENDLESS, *options) if endless else options
        process = jobs.start(config, folder, *more_options, **more)
        begun.append((process, folder))
        return process, folder, jobs.training(process, folder)

    yield start
    for process, folder in begun:
        jobs.end(process, folder)


def more_updates(folder, n=1):
    """Waits until so many more were made than now."""
    before = rows(folder)[-1]["updates"]
    eventually(lambda: rows(folder)[-1]["updates"] >= before + n, 20, "more updates")


def checkpoints(folder):
    """Those that are whole."""
    return [path.name for path in checkpoint.folders_of(folder)]


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def goes_on(folder):
    """Waits until a run has learned more, and has saved what it learned."""
    more_updates(folder, 50)
    saved = checkpoints(folder)
    eventually(lambda: set(checkpoints(folder)) - set(saved), 10, "another checkpoint")


def stop(process, rank_0):
    """Ends a job in order: rank 0 is told, as the command would."""
    os.kill(rank_0, signal.SIGTERM)
    return process.communicate(timeout=120)


def hanging(folder):
    """A job of which one environment hangs, once."""
    (folder / "echo.py").write_text((TASKS / "echo.py").read_text())
    what = f'echo:BreaksOnce", how="hangs", mark="{folder / "mark"}"'
    text = (TASKS / "echo_dqn.py").read_text().replace('echo:Echo", n=4', what)
    (folder / "config.py").write_text(text)
    return folder / "config.py"


def has_a_stack(folder):
    """Whether an actor's log says where it hangs."""
    logs = [folder / "logs" / f"actor-0.{i}.log" for i in range(2)]
    return any("in step" in log.read_text() for log in logs)


@pytest.mark.slow
def test_a_step_that_hangs_leaves_its_stack_in_the_log_of_its_rank(begin, tmp_path):
    process, folder, ranks = begin(hanging(tmp_path), *IMPATIENT, *NOT_REPLACED)
    eventually(lambda: has_a_stack(folder), 20, "a stack")
    more_updates(folder, 20)  # the other actor goes on
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 143


def said(process, heard):
    """All that a job has said on standard error so far."""
    with suppress(BlockingIOError):
        heard += os.read(process.stderr.fileno(), 1 << 16)
    return heard


@pytest.mark.parametrize(
    ("task", "machines"),
    [
        ("ppo", {"a": 2, "b": 2}),
        pytest.param("dqn", {"a": 2, "b": 2}, marks=pytest.mark.slow),
        pytest.param("dqn", None, marks=pytest.mark.slow),
        pytest.param("ppo", None, marks=pytest.mark.slow),
        pytest.param("dqn", {"a": 3, "b": 1}, marks=pytest.mark.slow),
    ],
)
def test_a_killed_actor_is_replaced_and_the_one_in_its_place_too(begin, task, machines):
    """On its own machine, with others there or alone."""
    process, folder, ranks = begin(task, "--set", "actor_cfg.num=2", machines=machines)
    heard = bytearray()
    os.set_blocking(process.stderr.fileno(), False)
    for n in (1, 2):
        os.kill(jobs.ranks(folder)["actor-0.1"], signal.SIGKILL)
        eventually(lambda n=n: said(process, heard).count(b"is back after") == n, 20, "its return")
        more_updates(folder, 20)
    os.set_blocking(process.stderr.fileno(), True)
    out, err = stop(process, ranks["launcher"])
    told = summary(folder)
    assert (told["status"], told["restarts"], told["lost"]) == ("interrupted", 2, [])
    assert heard.count(b"was lost; it is replaced") == 2
    away = [fault["away_seconds"] for fault in told["faults"]]
    assert max(away) < 10
    assert told["received"] <= told["produced"]
    jobs.gone(ranks.values())


@pytest.mark.slow
def test_an_actor_whose_environment_hangs_is_replaced(begin, tmp_path):
    process, folder, ranks = begin(hanging(tmp_path), *IMPATIENT)
    heard = bytearray()
    os.set_blocking(process.stderr.fileno(), False)
    eventually(lambda: b"is back after" in said(process, heard), 20, "its return")
    assert has_a_stack(folder)
    os.set_blocking(process.stderr.fileno(), True)
    stop(process, ranks["launcher"])
    assert summary(folder)["restarts"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("task", ["dqn", "ppo"])
def test_training_goes_on_without_a_killed_actor_and_says_so(begin, task):
    machines = {"a": 2, "b": 3}
    process, folder, ranks = begin(task, *THREE, *OFTEN, *NOT_REPLACED, machines=machines)
    os.kill(ranks["actor-0.2"], signal.SIGKILL)
    eventually(lambda: not alive(ranks["actor-0.2"]), 5)
    goes_on(folder)
    out, err = stop(process, ranks["launcher"])
    told = summary(folder)
    assert (told["status"], told["lost"]) == ("interrupted", ["actor-0.2"])
    assert "actor-0.2 (rank " in err
    assert "was lost; training goes on without it" in err
    assert any("actor-0.2" in warning for warning in told["warnings"])
    assert told["roles"]["actor-0.0"]["produced"] > 0
    jobs.gone(ranks.values())


def test_the_status_of_a_run_that_lost_an_actor_is_that_of_its_end(begin):
    process, folder, ranks = begin("ppo", "--max-seconds", 2, *NOT_REPLACED)
    os.kill(ranks["actor-0.1"], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "actor-0.1" in err
    assert summary(folder)["status"] == "stopped"
    jobs.gone(ranks.values())


@pytest.mark.slow
def test_training_goes_on_without_a_killed_evaluator(begin):
    options = ("--set", "exp.eval_step=2000", "--set", "exp.eval_times=1", "--max-seconds", "5")
    process, folder, ranks = begin("ppo", *options)
    os.kill(ranks["evaluator-0.0"], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "evaluator-0.0 (rank " in err
    assert summary(folder)["status"] == "stopped"
    jobs.gone(ranks.values())


@pytest.mark.slow
def test_training_goes_on_without_an_evaluator_that_fails(begin, tmp_path):
    text = (TASKS / "echo.py").read_text() + SHY
    (tmp_path / "echo.py").write_text(text)
    config = tmp_path / "shy.py"
    config.write_text((TASKS / "echo_ppo.py").read_text().replace("echo:Echo", "echo:Shy"))
    options = ("--set", "exp.eval_step=2000", "--set", "exp.eval_times=1", "--max-seconds", "3")
    process, folder, ranks = begin(config, *options)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert err.count("ValueError: not in front of an audience") == 1
    assert summary(folder)["status"] == "stopped"
    jobs.gone(ranks.values())


@pytest.mark.slow
def test_a_run_starts_without_an_actor_that_is_killed_before_it_is_ready(begin, tmp_path):
    (tmp_path / "echo.py").write_text((TASKS / "echo.py").read_text() + LATE)
    config = tmp_path / "late.py"
    config.write_text((TASKS / "echo_dqn.py").read_text().replace("echo:Echo", "echo:Late"))
    options = (*THREE, *NOT_REPLACED, "--max-seconds", 3)
    process, folder, ranks = begin(config, *options, machines={"a": 2, "b": 3})
    os.kill(ranks["actor-0.2"], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert summary(folder)["status"] == "stopped"
    assert summary(folder)["updates"] > 100
    assert "actor-0.2 (rank " in err


FUSED = ("--set", "global_cfg.group_num=2", "--set", "learner_cfg.send_root_interval=20")
APART = "training goes on without it, and the groups are not averaged any more"


@pytest.mark.parametrize(
    ("how", "words", "machines"),
    [
        pytest.param("killed", "was lost", {"a": 3, "b": 3}, marks=pytest.mark.slow),
        pytest.param("raises", "failed with exit status 1", {"a": 3, "b": 3}),
        pytest.param("raises", "failed with exit status 1", None, marks=pytest.mark.slow),
    ],
)
def test_groups_learn_on_apart_when_the_reducer_is_gone(begin, tmp_path, how, words, machines):
    path = {} if how == "killed" else {"PYTHONPATH": without_a_mean(tmp_path)}
    options = (*FUSED, *OFTEN, "--set", "actor_cfg.num=1")
    process, folder, ranks = begin("dqn", *options, machines=machines, **path)
    if how == "killed":
        eventually(lambda: rows(folder)[-1]["fusion/n"], 20, "a fusion")
        os.kill(ranks["reducer-0.0"], signal.SIGKILL)
    eventually(lambda: "reducer-0.0" not in jobs.ranks(folder), 20, "the end of the reducer")
    goes_on(folder)
    out, err = stop(process, ranks["launcher"])
    told = summary(folder)
    assert (told["status"], told["lost"]) == ("interrupted", ["reducer-0.0"])
    assert len(re.findall(rf"reducer-0\.0 \(rank \d on \S+\) {words}; {APART}", err)) == 1
    assert "  lost       reducer-0.0: the groups were not averaged any more\n" in out
    assert err.count("ValueError: no mean today") == (how == "raises")
    assert any(APART in warning for warning in told["warnings"])
    jobs.gone(ranks.values())


LATE = """

class Late(Echo):
    def init(self, **options):
        super().init(**options)
        if "actor-0.2" in os.readlink("/proc/self/fd/1"):
            time.sleep(100)
"""

SHY = """

class Shy(Echo):
    def reset(self):
        if "evaluator" in os.readlink("/proc/self/fd/1"):
            raise ValueError("not in front of an audience")
        return super().reset()
"""


def test_a_killed_learner_ends_the_run_and_the_same_command_goes_on(begin):
    same = {"machines": {"a": 2, "b": 2}}
    options = (*OFTEN, "--max-seconds", 4)
    process, folder, ranks = begin("ppo", *options, **same)
    eventually(lambda: checkpoints(folder), 20, "a checkpoint")
    os.kill(ranks["learner-0.0"], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    told = summary(folder)
    assert told["status"] == "failed"
    assert "learner-0.0 (rank 2 on b) was lost" in err
    assert "learner-0.0 (rank 2 on b) was lost" in told["error"]
    jobs.gone(ranks.values())

    done = jobs.train(TASKS / "echo_ppo.py", folder, *ENDLESS, *options, **same)
    assert done.status == 0, done.err
    assert (done.summary["status"], done.summary["resumes"]) == ("stopped", 1)
    assert done.summary["updates"] > 0


@pytest.mark.slow
def test_the_command_that_started_the_ranks_fails_when_the_learner_is_killed(begin):
    process, folder, ranks = begin("ppo")
    os.kill(ranks["learner-0.0"], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "learner-0.0 (rank 1 on " in err
    assert summary(folder)["status"] == "failed"
    jobs.gone(ranks.values(), 2)


@pytest.mark.slow
def test_the_loss_of_all_actors_is_a_clear_end(begin):
    process, folder, ranks = begin("ppo", *NOT_REPLACED)
    for home in ("actor-0.0", "actor-0.1"):
        os.kill(ranks[home], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "actor-0." in err and "was lost" in err
    assert summary(folder)["status"] == "failed"
    jobs.gone(ranks.values(), 2)


@pytest.mark.slow
def test_an_environment_that_raises_in_a_rank_is_shown_once_with_its_traceback(tmp_path):
    config = tmp_path / "config.py"
    (tmp_path / "echo.py").write_text((TASKS / "echo.py").read_text())
    config.write_text((TASKS / "echo_ppo.py").read_text().replace("echo:Echo", "echo:Raises"))
    done = jobs.train(config, tmp_path / "run")
    assert done.status == 1
    assert done.err.count("RuntimeError: the simulator lost its marbles") == 1
    assert done.err.count("Traceback") == 1
    assert "actor-0." in done.err
    assert done.summary["status"] == "failed"


@pytest.mark.slow
def test_a_learner_that_stops_for_less_than_link_seconds_does_no_harm(begin):
    process, folder, ranks = begin("dqn", *SOON)
    os.kill(ranks["learner-0.0"], signal.SIGSTOP)
    time.sleep(LINK_SECONDS - 1.2)
    os.kill(ranks["learner-0.0"], signal.SIGCONT)
    more_updates(folder, 50)
    out, err = stop(process, ranks["launcher"])
    assert process.returncode == 143, err


def test_a_learner_that_does_not_answer_ends_the_run_in_time(begin):
    process, folder, ranks = begin("ppo", *SOON, machines={"a": 2, "b": 2})
    began = time.monotonic()
    os.kill(ranks["learner-0.0"], signal.SIGSTOP)
    eventually((folder / "summary.json").exists, LINK_SECONDS + 8, "the summary")
    assert time.monotonic() - began > LINK_SECONDS
    told = summary(folder)
    assert told["status"] == "failed"
    assert "learner-0.0 (rank 2 on b) did not answer for 3 s" in told["error"]
    others = [pid for home, pid in ranks.items() if home != "learner-0.0"]
    jobs.gone(others, 5)


@pytest.mark.slow
def test_a_job_that_was_stopped_as_a_whole_goes_on(begin):
    process, folder, ranks = begin("ppo", *SOON, machines={"a": 2, "b": 2})
    for pid in ranks.values():
        os.kill(pid, signal.SIGSTOP)
    time.sleep(LINK_SECONDS + 1)
    for pid in ranks.values():
        os.kill(pid, signal.SIGCONT)
    more_updates(folder, 20)
    out, err = stop(process, ranks["launcher"])
    assert summary(folder)["status"] == "interrupted"


@pytest.mark.slow
def test_a_killed_mpirun_is_noticed_no_rank_outlives_it_and_the_same_command_goes_on(begin):
    same = {"machines": {"a": 2, "b": 2}}
    options = (*SOON, *OFTEN, "--max-seconds", 6)
    process, folder, ranks = begin("ppo", *options, **same)
    eventually(lambda: checkpoints(folder), 20, "a checkpoint")
    shared = jobs.shared_files(ranks.values())
    process.kill()
    jobs.gone(ranks.values(), 30)
    assert not shared & set(os.listdir("/dev/shm"))
    assert summary(folder)["status"] == "failed"
    assert "mpirun has ended although the run had not" in summary(folder)["error"]
    done = jobs.train(TASKS / "echo_ppo.py", folder, *ENDLESS, *options, **same)
    assert done.status == 0, done.err
    assert (done.summary["status"], done.summary["resumes"]) == ("stopped", 1)


@pytest.mark.slow
def test_all_ranks_end_when_rank_0_is_killed(begin):
    process, folder, ranks = begin("ppo", *SOON, machines={"a": 2, "b": 2})
    os.kill(ranks["launcher"], signal.SIGKILL)
    jobs.gone(ranks.values(), LINK_SECONDS + 5)
    process.communicate(timeout=120)
    assert not (folder / "summary.json").exists()


@pytest.mark.slow
def test_the_command_fails_when_rank_0_is_killed(begin):
    process, folder, ranks = begin("ppo", *SOON)
    os.kill(ranks["launcher"], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "rank 0 ended without a word" in err
    jobs.gone(ranks.values(), 2)


SIGNALS = [
    (signal.SIGTERM, 143),
    pytest.param(signal.SIGUSR1, 138, marks=pytest.mark.slow),
    pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_a_signal_ends_the_run_cleanly_with_a_checkpoint(begin, number, status):
    process, folder, ranks = begin("dqn")
    shared = jobs.shared_files(ranks.values())
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == status, err
    assert "Interrupted" in out
    assert "Traceback" not in err
    assert checkpoints(folder)
    assert (folder / "checkpoints" / "final.safetensors").exists()
    assert summary(folder)["status"] == "interrupted"
    jobs.gone(ranks.values(), 2)
    assert not shared & set(os.listdir("/dev/shm"))
    assert [path.name for path in folder.parent.iterdir()] == ["run"]  # which is its TMPDIR
