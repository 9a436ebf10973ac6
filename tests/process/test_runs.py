"""Whole runs in processes: counts follow the balance, versions follow the mode, shares are kept."""

from pathlib import Path

import pytest
from commands import ROOT, TASKS, end, rows, start, train, training

pytestmark = pytest.mark.process

NO_TARGET = ("--set", "exp.stop_return=1e9")


def steps(n):
    return (*NO_TARGET, "--set", f"exp.train_steps={n}")


@pytest.mark.parametrize("actors", [1, 3])
@pytest.mark.parametrize("ratio", [2, 16])
def test_updates_follow_the_balance_within_one_batch(tmp_path, actors, ratio):
    done = train(
        TASKS / "echo_dqn.py",
        tmp_path / "run",
        *steps(2000),
        "--set",
        f"global_cfg.replay_ratio={ratio}",
        "--set",
        f"actor_cfg.num={actors}",
    )
    assert done.status == 0, done.err
    s = done.summary
    assert s["status"] == "finished"
    assert abs(s["updates"] - (s["received"] - 64) * ratio / 32) <= 1
    assert s["replay_ratio"]["measured"] == pytest.approx(ratio, rel=0.03)


def test_a_buffer_with_a_core_of_its_own_keeps_the_same_balance(tmp_path):
    options = (*steps(2000), "--set", "buffer_cfg.cores=1")
    done = train(TASKS / "echo_dqn.py", tmp_path / "run", *options)
    s = done.summary
    assert done.status == 0, done.err
    assert (tmp_path / "run" / "logs" / "buffer-0.0.log").exists()
    assert abs(s["updates"] - (s["received"] - 64) * 8 / 32) <= 1


def test_a_buffer_that_has_handed_out_its_last_batch_is_no_failure(tmp_path):
    for i in range(4):  # it used to leave while the learner was busy with that batch
        options = (*steps(4000), "--set", "buffer_cfg.cores=1", "--seed", str(i))
        done = train(ROOT / "configs" / "cartpole_ppo.py", tmp_path / f"run{i}", *options)
        assert (done.status, done.summary["status"]) == (0, "finished"), done.err


def test_synchronous_samples_are_of_the_learners_version(tmp_path):
    done = train(TASKS / "echo_ppo.py", tmp_path / "run", *steps(10_000))
    assert done.summary["updates"] >= 19
    assert done.summary["staleness"] == {"mean": 0.0, "p50": 0.0, "p95": 0.0, "max": 0.0}
    assert done.summary["freshness"]["measured"] == 1.0


@pytest.mark.parametrize(("correction", "name"), [("none", None), ("ewma", "PPO-EWMA")])
def test_asynchronous_samples_are_within_the_bound(tmp_path, correction, name):
    options = ("--set", "hyp.mode=async", "--set", "hyp.max_lag=2")
    options += ("--set", f"hyp.correction={correction}")
    done = train(TASKS / "echo_ppo.py", tmp_path / "run", *steps(20_000), *options)
    assert done.status == 0, done.err
    assert done.summary["staleness"]["max"] <= 2
    assert done.summary["staleness"]["mean"] > 0
    assert done.summary["correction"] == name
    assert ("corrected by PPO-EWMA" in done.out) is (name is not None)


def test_a_slow_actor_does_not_hold_up_the_others(tmp_path):
    (tmp_path / "echo.py").write_text((TASKS / "echo.py").read_text())
    text = (TASKS / "echo_dqn.py").read_text().replace("echo:Echo", "echo:Uneven")
    config = tmp_path / "uneven.py"
    config.write_text(text)
    options = ("--set", "actor_cfg.num=3", "--set", "actor_cfg.envs=1", "--max-seconds", "4")
    done = train(config, tmp_path / "run", *NO_TARGET, *options)
    rates = [done.summary["roles"][f"actor-0.{i}"]["produced"] for i in range(3)]
    assert rates[0] > 0
    assert (
        min(rates[1:]) > 4 * rates[0]
    )  # a hundred times as fast, less what a loaded machine takes
    assert done.summary["replay_ratio"]["measured"] == pytest.approx(8, rel=0.03)


def test_each_role_runs_on_its_cores_with_its_threads_and_actors_load_no_torch(tmp_path):
    folder = tmp_path / "run"
    options = ("--set", "learner_cfg.cores=1", "--set", "actor_cfg.cores=1")
    process = start(ROOT / "configs" / "figure7.py", folder, *steps(10**8), *options)
    try:
        crew = training(process, folder)
        learner, actor = (_cores(crew[name]) for name in ("learner-0.0", "actor-0.0"))
        assert len(learner) == len(actor) == 1
        assert learner != actor
        assert b"OMP_NUM_THREADS=1\0" in Path(f"/proc/{crew['actor-0.0']}/environ").read_bytes()
        assert "torch" in Path(f"/proc/{crew['learner-0.0']}/maps").read_text()
        assert "torch" not in Path(f"/proc/{crew['actor-0.0']}/maps").read_text()
    finally:
        end(process)


def test_the_papers_figure_7_trains_as_printed(tmp_path):
    done = train(ROOT / "configs" / "figure7.py", tmp_path / "run", *steps(1500))
    assert done.status == 0, done.err
    assert done.summary["status"] == "finished"
    assert done.summary["updates"] > 1000


def _cores(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list"))


def test_the_default_job_has_a_curve_of_fifty_points(tmp_path):
    done = train(ROOT / "configs" / "cartpole_ppo.py", tmp_path / "run", "--quiet")
    assert (done.status, done.summary["status"]) == (0, "solved"), done.err
    found = rows(tmp_path / "run")
    assert len(found) >= 50
    assert len({row["rollout/ep_rew_mean"] for row in found}) >= 40
    times = [row["time/time_elapsed"] for row in found if row["rollout/ep_rew_mean"] is not None]
    assert times[0] < 0.3 * times[-1]
