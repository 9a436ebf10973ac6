"""What every engine promises: the same job ends in the same way, with the same counts."""

import numpy as np
import pytest
from commands import TASKS, rows, train
from mpi_pair import MISSING

from tianji.core import checkpoint
from tianji.observe import episode_file

pytestmark = pytest.mark.process


WITHOUT = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
MPI = pytest.param("mpi", marks=[WITHOUT, pytest.mark.slow])  # daily: tests/process/test_mpi.py


@pytest.fixture(params=["local", "process", MPI])
def run(request, tmp_path):
    """Runs one of the echo tasks, or of another game, without a target unless one is given."""

    def go(task, *overrides, game="echo"):
        options = ["--engine", request.param, "--set", "exp.stop_return=1e9"]
        for override in overrides:
            options += ["--set", override]
        done = train(TASKS / f"{game}_{task}.py", tmp_path / "run", *options)
        assert done.status == 0, done.err
        assert done.summary["engine"] == request.param
        return done

    go.engine = request.param
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


@pytest.mark.parametrize(
    ("task", "ratio", "overrides"),
    [
        pytest.param(
            "dqn", 2, ("global_cfg.replay_ratio=2", "exp.train_steps=3000"), marks=pytest.mark.slow
        ),
        ("dqn", 16, ("global_cfg.replay_ratio=16", "exp.train_steps=3000", "actor_cfg.num=3")),
        pytest.param(
            "dqn", 8, ("buffer_cfg.cores=1", "exp.train_steps=3000"), marks=pytest.mark.slow
        ),
        pytest.param("ppo", 1, ("exp.train_steps=40000",), marks=pytest.mark.slow),
        ("ppo", 1, ("hyp.mode='async'", "hyp.max_lag=2", "exp.train_steps=20000")),
    ],
)
def test_the_measured_replay_ratio_is_within_three_percent_of_its_target(
    run, task, ratio, overrides
):
    said = run(task, *overrides).summary["replay_ratio"]
    assert said["target"] == ratio
    assert said["measured"] == pytest.approx(ratio, rel=0.03)


def test_every_finished_episode_is_kept_where_that_was_asked_for(run):
    done = run("dqn", "exp.keep_episodes=True", "exp.train_steps=1500", "actor_cfg.num=2")
    found = episode_file.read(done.folder)
    assert found.steps.size == done.summary["episodes"] > 20
    assert (np.diff(found.steps) >= 0).all()
    assert found.steps[-1] <= done.summary["produced"] + 2 * 16 * 4  # and what was not pushed
    assert 0 <= found.version.min() < found.version.max() <= done.summary["updates"]


def test_one_role_may_act_for_all_actors(run):
    if run.engine == "mpi":
        pytest.skip("refused there")
    done = run("ppo", "actor_cfg.inference=True", "exp.stop_return=9.5", "exp.keep_episodes=True")
    summary, roles = done.summary, done.summary["roles"]
    assert summary["status"] == "solved"
    assert summary["staleness"]["max"] == 0
    assert summary["produced"] >= summary["received"] >= summary["consumed"] > 0
    shares = [roles[f"actor-0.{i}"]["produced"] for i in (0, 1)]
    assert min(shares) > 0 and sum(shares) == summary["produced"]
    assert roles["inference-0.0"]["produced"] <= summary["produced"]
    assert episode_file.read(done.folder).steps.size == summary["episodes"]


def test_several_actors_are_all_heard(run):
    summary = run("dqn", "actor_cfg.num=3", "exp.train_steps=3000").summary
    shares = [summary["roles"][f"actor-0.{i}"]["produced"] for i in range(3)]
    assert min(shares) > 0


def test_groups_share_the_steps_and_are_fused(run):
    summary = run(
        *("dqn", "global_cfg.group_num=2", "learner_cfg.send_root_interval=5"),
        "exp.train_steps=12001",  # long enough for groups that begin at different times to meet
    ).summary
    roles = summary["roles"]
    received = [roles[f"buffer-{group}.0"]["received"] for group in (0, 1)]
    assert all(6000 <= n < 6001 + 16 * 4 for n in received)
    assert summary["received"] == sum(received)
    versions = [roles[f"learner-{group}.0"]["version"] for group in (0, 1)]
    assert summary["updates"] == sum(versions)
    assert summary["consumed"] == sum(versions) * 32
    assert all(abs(v - (n - 64) * 8 / 32) <= 1 for v, n in zip(versions, received, strict=True))
    assert 0 < summary["fusions"] <= min(versions) / 5
    assert summary["fusion_distance"] > 0
    assert summary["replay_ratio"]["measured"] == pytest.approx(8, rel=0.01)


SEVERAL_AGENTS = {
    "qmix": ("global_cfg.group_num=2", "learner_cfg.send_root_interval=5", "exp.train_steps=3600"),
    "maddpg": ("actor_cfg.num=2", "buffer_cfg.cores=1"),
    "mappo": (
        *("learner_cfg.num=2", "actor_cfg.num=2", "actor_cfg.envs=4"),
        "exp.train_steps=3600",
    ),
}
PROCESS_DAILY = [
    "process",
    pytest.param("local", marks=pytest.mark.slow),
    MPI,
]


@pytest.mark.parametrize("run", PROCESS_DAILY, indirect=True)
@pytest.mark.parametrize(
    "task", ["mappo", *(pytest.param(t, marks=pytest.mark.slow) for t in ("maddpg", "qmix"))]
)
def test_several_agents_keep_the_balance_in_groups_and_with_several_learners(run, task):
    summary = run(task, *SEVERAL_AGENTS[task], game="two_step").summary
    roles = summary["roles"]
    assert (summary["status"], summary["warnings"]) == ("finished", [])
    assert all(said["produced"] > 0 for name, said in roles.items() if name.startswith("actor"))
    assert summary["replay_ratio"]["measured"] == pytest.approx(
        summary["replay_ratio"]["target"], rel=0.03
    )
    assert summary["updates"] > 20
    assert (summary["staleness"]["max"] == 0) == (task == "mappo")
    assert (summary["fusions"] > 0) == (task == "qmix")


def test_learners_of_a_group_make_every_update_together(run):
    done = run("dqn", "learner_cfg.num=2", "exp.train_steps=1500")
    summary, roles = done.summary, done.summary["roles"]
    assert summary["consumed"] == summary["updates"] * 32
    assert roles["learner-0.0"]["version"] == roles["learner-0.1"]["version"]
    assert roles["learner-0.0"]["consumed"] == summary["consumed"] / 2
    assert abs(summary["updates"] - (summary["received"] - 64) * 8 / 32) <= 1
    saved, _ = checkpoint.newest(done.folder)
    first, second = (saved.part(f"learner-0.{i}")["algorithm"] for i in (0, 1))
    assert first["parameters"].tobytes() == second["parameters"].tobytes()


@pytest.mark.slow
def test_groups_of_several_learners_stay_alike_within_each_group(run):
    done = run(
        *("ppo", "global_cfg.group_num=2", "learner_cfg.num=2", "actor_cfg.num=2"),
        *("learner_cfg.send_root_interval=1", "global_cfg.exit_val.fusion_step=4"),
    )
    assert done.summary["status"] == "finished"
    assert done.summary["fusions"] == 4
    assert done.summary["staleness"]["max"] == 0
    saved, _ = checkpoint.newest(done.folder)
    for group in (0, 1):
        parts = [saved.part(f"learner-{group}.{i}")["algorithm"] for i in (0, 1)]
        assert parts[0]["parameters"].tobytes() == parts[1]["parameters"].tobytes()


@pytest.mark.slow
def test_groups_without_fusion_learn_by_themselves(run):
    summary = run(
        *("ppo", "global_cfg.group_num=2", "global_cfg.use_group_parallel=False"),
        "learner_cfg.exit_val.learn_step=3",
    ).summary
    assert summary["updates"] == 6
    assert "reducer-0.0" not in summary["roles"]
    assert (summary["fusions"], summary["fusion_distance"]) == (0, None)


def test_the_run_folder_is_complete(run):
    folder = run("ppo", "exp.train_steps=3000").folder
    names = {path.name.split(".")[0] for path in folder.iterdir()}
    assert {"config", "metrics", "summary", "events", "checkpoints", "logs"} <= names
    assert rows(folder)[-1]["updates"] > 0
