"""What every engine promises: the same job ends in the same way, with the same counts."""

import pytest
from commands import TASKS, rows, train
from puppets import MISSING

pytestmark = pytest.mark.process


MPI = pytest.param("mpi", marks=pytest.mark.skipif(MISSING is not None, reason=str(MISSING)))


@pytest.fixture(params=["local", "process", MPI])
def run(request, tmp_path):
    """Runs one of the echo tasks without a target, unless one is given."""

    def go(task, *overrides):
        options = ["--engine", request.param, "--set", "exp.stop_return=1e9"]
        for override in overrides:
            options += ["--set", override]
        done = train(TASKS / f"echo_{task}.py", tmp_path / "run", *options)
        assert done.status == 0, done.err
        assert done.summary["engine"] == request.param
        return done

    return go


def test_it_ends_after_the_steps_that_were_asked_for(run):
    summary = run("dqn", "exp.train_steps=1500").summary
    assert summary["status"] == "finished"
    assert 1500 <= summary["received"] < 1500 + 16 * 4  # a trajectory is taken whole
    assert summary["consumed"] == summary["updates"] * 32
    assert abs(summary["updates"] - (summary["received"] - 64) * 8 / 32) <= 1


def test_it_ends_after_the_updates_that_were_asked_for(run):
    summary = run("ppo", "learner_cfg.exit_val.learn_step=7").summary
    assert (summary["status"], summary["updates"]) == ("finished", 7)


def test_it_ends_after_the_episodes_that_were_asked_for(run):
    summary = run("ppo", "exp.episodes=200").summary
    assert summary["status"] == "finished"
    assert summary["episodes"] >= 200


def test_it_ends_at_the_time_limit(run):
    summary = run("dqn", "exp.max_seconds=0.5", "exp.train_steps=100000000").summary
    assert summary["status"] == "stopped"
    assert summary["final_time_seconds"] is None


def test_it_ends_when_the_target_is_reached(run):
    done = run("ppo", "exp.stop_return=5")
    assert done.summary["status"] == "solved"
    assert done.summary["mean_return_100"] >= 5
    assert 0 < done.summary["final_time_seconds"] <= done.summary["wall_seconds"]


def test_synchronous_samples_are_never_stale(run):
    summary = run("ppo", "exp.train_steps=6000").summary
    assert summary["staleness"]["max"] == 0
    assert summary["produced"] - summary["consumed"] <= 2 * 32 * 8  # what was under way at the end


def test_several_actors_are_all_heard(run):
    summary = run("dqn", "actor_cfg.num=3", "exp.train_steps=3000").summary
    shares = [summary["roles"][f"actor-0.{i}"]["produced"] for i in range(3)]
    assert min(shares) > 0


def test_the_run_folder_is_complete(run):
    folder = run("ppo", "exp.train_steps=3000").folder
    names = {path.name.split(".")[0] for path in folder.iterdir()}
    assert {"config", "metrics", "summary", "events", "checkpoints", "logs"} <= names
    assert rows(folder)[-1]["updates"] > 0
