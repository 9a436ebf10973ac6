"""Runs in processes that were interrupted and resumed: nothing in them shows a dent."""

import json
import os
import signal
import subprocess
import sys

import pytest
from commands import ROOT, TASKS, Finished, end, eventually, rows, start, train, training

import tianji
from tianji.core import checkpoint
from tianji.observe import episode_file

pytestmark = pytest.mark.process

ENDLESS = ("--set", "exp.train_steps=100000000", "--quiet")
JOBS = {
    "synchronous ppo": ("walk_ppo",),
    "asynchronous ppo": ("walk_ppo", "hyp.mode=async", "hyp.max_lag=3", "hyp.batch_size=2"),
    "dqn": ("walk_dqn", "hyp.max_decay_step=20000"),
    "two groups": ("walk_dqn", "hyp.max_decay_step=20000", "global_cfg.group_num=2"),
    "two learners": ("walk_ppo", "learner_cfg.num=2"),
    "dqn, its buffer apart": ("walk_dqn", "hyp.max_decay_step=20000", "buffer_cfg.cores=1"),
}
GROWING = ("env_steps", "updates", "episodes", "received", "consumed")


def options(overrides):
    return [part for override in overrides for part in ("--set", override)]


def resume(folder, *options, timeout=60):
    """Runs `tianji resume` to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "tianji", "resume", str(folder), "--quiet", *options],
        capture_output=True,
        text=True,
        cwd=folder.parent,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        timeout=timeout,
    )
    return Finished(done.returncode, done.stdout, done.stderr, folder)


def interrupted(config, folder, *options, steps=3_000):
    """Trains until so many steps were made, and then a signal comes."""
    process = start(config, folder, *ENDLESS, *options)
    try:
        training(process, folder)
        enough = lambda: rows(folder)[-1]["env_steps"] > steps  # noqa: E731
        eventually(enough, what=f"step {steps}")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    finally:
        end(process)
    assert process.returncode == 143, err
    return Finished(143, out, err, folder)


def more(summary, steps=3_000):
    return ("--set", f"exp.train_steps={summary['received'] + steps}")


def explored(saved, *actors):
    """Steps that the epsilon of actors depends on, of all of them together."""
    return sum(saved.part(actor)["policy"]["steps"] for actor in actors)


SLOW = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("asynchronous ppo", "dqn", "dqn, its buffer apart", "two groups", "two learners")
]


@pytest.mark.parametrize("name", ["synchronous ppo", *SLOW])
def test_a_resumed_run_shows_no_dent(tmp_path, name):
    task, *overrides = JOBS[name]
    folder = tmp_path / "run"
    first = interrupted(TASKS / f"{task}.py", folder, *options(overrides)).summary
    kept, _ = checkpoint.newest(folder)
    before = rows(folder)
    done = resume(folder, *more(first))
    assert done.status == 0, done.err
    assert f"resumed from {kept.folder.name}" in done.err
    second, after = done.summary, rows(folder)[len(before) :]
    assert (second["status"], second["resumes"], second["warnings"]) == ("finished", 1, [])
    for key in GROWING:
        assert second[key] > first[key], key
    for key in ("env_steps", "updates", "rollout/episodes", "wall_s", "time/time_elapsed"):
        values = [row[key] for row in before + after]
        assert values == sorted(values), key
    ratio = second["replay_ratio"]
    assert ratio["measured"] == pytest.approx(ratio["target"], rel=0.03)
    assert {"walk_ppo": first["staleness"]["max"] + 3, "walk_dqn": 400}[task] >= second[
        "staleness"
    ]["max"]  # of fresh weights, which nobody must act with, it would be all updates so far
    assert second["updates"] > 400 or task == "walk_ppo"
    if name == "synchronous ppo":
        assert second["staleness"]["max"] == 0
    returns = [row["rollout/ep_rew_mean"] for row in after]
    assert min(returns) > before[-1]["rollout/ep_rew_mean"] - 0.4
    if task == "walk_dqn":
        last, _ = checkpoint.newest(folder)
        made = second["env_steps"] - first["env_steps"]
        actors = [name for name in second["roles"] if name.startswith("actor")]
        assert made <= explored(last, *actors) - explored(kept, *actors) <= made * 1.5 + 200


AGENTS = {"qmix": (), "mappo": ("learner_cfg.num=2",), "maddpg": ("global_cfg.group_num=2",)}


@pytest.mark.parametrize(
    "name", ["qmix", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mappo", "maddpg"))]
)
def test_a_run_of_several_agents_goes_on(tmp_path, name):
    folder, overrides = tmp_path / "run", ("actor_cfg.num=2", *AGENTS[name])
    task = TASKS / f"two_step_{name}.py"
    first = interrupted(task, folder, *options(overrides), steps=1_000).summary
    done = resume(folder, *more(first, 1_000))
    assert done.status == 0, done.err
    second = done.summary
    assert (second["status"], second["resumes"], second["warnings"]) == ("finished", 1, [])
    assert all(second[key] > first[key] for key in GROWING)
    ratio = second["replay_ratio"]
    assert ratio["measured"] == pytest.approx(ratio["target"], rel=0.06)
    assert (second["fusions"] > 0) == (name == "maddpg")


@pytest.mark.slow  # the local engine does the same faster
def test_without_its_samples_a_run_says_so_and_fills_its_store_again(tmp_path):
    folder = tmp_path / "run"
    never = ("--set", "exp.save_replay=never")
    first = interrupted(TASKS / "walk_dqn.py", folder, *never).summary
    assert not list(folder.glob("checkpoints/*/*.store.safetensors"))
    done = resume(folder, *more(first))
    assert done.status == 0, done.err
    assert (
        "the samples were left out: exp.save_replay is 'never': the store fills again" in done.err
    )
    assert done.summary["status"] == "finished"
    assert done.summary["replay_ratio"]["measured"] == pytest.approx(8, rel=0.05)


@pytest.mark.parametrize(
    "engines",
    [("local", "process"), pytest.param(("process", "local"), marks=pytest.mark.slow)],
    ids=" ".join,
)
def test_a_run_may_go_on_with_another_engine(tmp_path, engines):
    folder, config = tmp_path / "run", TASKS / "walk_dqn.py"
    first = interrupted(config, folder, "--engine", engines[0]).summary
    process = start(config, folder, *ENDLESS, "--engine", engines[1])
    try:
        enough = lambda: rows(folder)[-1]["env_steps"] > first["env_steps"] + 1_000  # noqa: E731
        eventually(enough, what="more steps")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    finally:
        end(process)
    assert process.returncode == 143, err
    second = Finished(143, out, err, folder).summary
    assert (first["engine"], second["engine"]) == engines
    for key in GROWING:
        assert second[key] > first[key], key
    assert second["replay_ratio"]["measured"] == pytest.approx(8, rel=0.03)
    assert second["staleness"]["max"] < 400 < second["updates"]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A run that came to its end."""
    done = train(TASKS / "walk_ppo.py", tmp_path_factory.mktemp("ended") / "run", "--quiet")
    assert (done.status, done.summary["status"]) == (0, "finished"), done.err
    return done


def everything(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


REFUSED = {
    "nothing new": ((), "has ended (finished): give it more to do"),
    "another step size": (("--set", "hyp.lr=0.1"), "hyp.lr: 0.005 there, 0.1 here"),
    "nothing but what it saves": (("--set", "exp.save_seconds=9"), "has ended (finished)"),
    "as many steps": (("--set", "exp.train_steps=100"), "is beyond exp.train_steps=100 already"),
    "more, and another step size": (
        ("--set", "exp.train_steps=9000", "--set", "hyp.lr=0.1"),
        "hyp.lr: 0.005 there, 0.1 here",
    ),
    "other actors": (("--set", "actor_cfg.num=3"), "actor_cfg.num: 2 there, 3 here"),
    "no such key": (("--set", "exp.train_stepz=9"), "train_stepz"),
    "no time at all": (("--max-seconds", "-1"), "max_seconds"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_resumed_is_refused_and_nothing_changes(ended, case):
    given, word = REFUSED[case]
    before = everything(ended.folder)
    done = resume(ended.folder, *given)
    assert done.status == 2
    assert word in done.err
    assert "Traceback" not in done.err and len(done.err.strip().splitlines()) <= 3
    assert everything(ended.folder) == before


def test_the_same_command_does_not_train_on_what_has_ended(ended):
    before = everything(ended.folder)
    done = train(TASKS / "walk_ppo.py", ended.folder, "--quiet")
    assert done.status == 2
    assert f"tianji resume {ended.folder} --set exp.train_steps=1_000_000" in done.err
    assert everything(ended.folder) == before


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_is_no_run_is_refused(tmp_path, there):
    folder = tmp_path / "mine"
    if there:
        folder.mkdir()
        (folder / "notes.txt").write_text("mine")
    done = resume(folder)
    assert done.status == 2
    assert "holds no run to resume" in done.err
    assert [path.name for path in tmp_path.rglob("*")] == (["mine", "notes.txt"] if there else [])


def test_a_run_that_has_ended_can_be_given_more_to_do(ended):
    first, before = ended.summary, rows(ended.folder)
    done = resume(ended.folder, "--set", "exp.train_steps=9_000")
    assert done.status == 0, done.err
    second = done.summary
    assert (second["status"], second["resumes"]) == ("finished", 1)
    assert 9_000 <= second["received"] < 9_000 + 2 * 32 * 4
    assert second["updates"] > first["updates"]
    assert rows(ended.folder)[: len(before)] == before
    assert json.loads((ended.folder / "summary.before.json").read_text()) == first
    final, saved = (
        ended.folder / "checkpoints/final.safetensors",
        checkpoint.newest(ended.folder)[0],
    )
    assert final.exists() and saved.version == second["updates"]

    limit = second["wall_seconds"] + 5
    timed = resume(
        *(ended.folder, "--set", "exp.train_steps=100000000"),
        *("--max-seconds", str(limit), "--stop-return", "-1"),
    )
    assert timed.summary["status"] == "solved"  # at once: its last 100 episodes reach that
    assert timed.summary["resumes"] == 2


@pytest.mark.slow
def test_a_limit_that_was_reached_long_ago_is_refused(tmp_path):
    folder = tmp_path / "run"
    first = interrupted(TASKS / "walk_dqn.py", folder)
    *_, last = first.out.splitlines()
    assert last == f"  go on      tianji resume {folder}"
    done = resume(folder, "--max-seconds", "0.001")
    assert (done.status, done.summary) == (2, first.summary)
    assert "is beyond exp.max_seconds=0.001 already" in done.err


def test_the_kept_episodes_of_a_resumed_run_are_those_of_one_run(tmp_path):
    folder = tmp_path / "run"
    asked = dict(train_steps=1_500, keep_episodes=True)
    first = tianji.train(TASKS / "walk_dqn.py", engine="local", run_dir=folder, exp=asked)
    with (folder / episode_file.FILE).open("a") as file:
        file.write("9.0,0,9999,1,0.0,1\n")  # of work that was lost: after the last checkpoint
    second = tianji.resume(folder, exp=dict(train_steps=3_000))
    found = episode_file.read(folder)
    assert found.steps.size == second.summary["episodes"] > first.summary["episodes"] > 20
    assert found.steps[-1] <= second.summary["produced"] + 2 * 16
    assert found.steps[-1] - found.length.sum() < 2 * 12  # what was in progress at the end
