"""Run folders made up of numbers, as a run would have written them."""

import json
import math

import numpy as np

VERSIONS = {"tianji": "0.1.0", "python": "3.12.1", "torch": "2.11.0", "numpy": "2.4.0"}


def config(name="toy_dqn", seed=0, engine="process", **hyp):
    """What config.json holds."""
    return {
        "config": {
            "name": name,
            "folder": "/somewhere/configs",
            "environment": {"type": "GymEnv", "gym_name": "CartPole-v1", "kwargs": {}},
            "exp": {"train_steps": 500_000, "stop_return": 475.0, "seed": seed},
            "agent": {"type": "DQN", "embryo": "DQNHead"},
            "hyp": hyp,
            "parallel": {"actor_cfg": {"num": 2, "envs": 8}},
            "notices": [],
        },
        "hyp": {"lr": 0.001, "gamma": 0.99} | hyp,
        "engine": engine,
        "seed": seed,
        "versions": VERSIONS,
        "commit": "c" * 40,
    }


def row(second, actors=2, rate=1_000.0, noise=0.0):
    """One row of metrics.jsonl."""
    learned = 500.0 * (1.0 - math.exp(-second / 40.0)) + 20.0 * noise
    made = rate * (1.0 + 0.1 * noise)
    values = {
        "wall_s": second + 1.5,
        "env_steps": int(rate * second),
        "updates": int(rate * second / 32),
        "rollout/ep_rew_mean": None if second < 2 else learned,
        "rollout/ep_len_mean": learned,
        "rollout/episodes": int(second * 3),
        "time/fps": made,
        "time/total_timesteps": int(rate * second),
        "time/time_elapsed": float(second),
        "train/n_updates": int(rate * second / 32),
        "train/loss": 5.0 / (1.0 + second / 100.0) + 0.2 * noise,
        "train/q_mean": learned / 5.0,
        "balance/production": made,
        "balance/receiving": made * 0.99,
        "balance/consumption": made * 4.0,
        "balance/ratio": 4.0 - 0.5 / (1.0 + second),
        "balance/target": 4.0,
        "staleness/mean": min(500.0, 5.0 * second),
        "staleness/p50": min(430.0, 4.0 * second),
        "staleness/p95": min(1_300.0, 12.0 * second),
        "staleness/max": min(1_400.0, 14.0 * second),
        "staleness/dropped": 0,
        "staleness/age_p50": min(14_000.0, 100.0 * second),
        "staleness/freshness": 0.0085,
        "staleness/new": 0.2,
        "comm/refused": int(second * 10),
        "comm/in_queue": 1,
    }
    for name in ("learner-0.0", "buffer-0.0", *(f"actor-0.{i}" for i in range(actors))):
        busy = {"l": 0.75, "b": 0.2, "a": 0.45}[name[0]] + 0.05 * noise
        values |= {f"roles/{name}/busy": busy, f"roles/{name}/idle": max(0.0, 0.9 - busy)}
        values[f"roles/{name}/rate"] = made / actors
    return values


def summary(last, status="solved", error=None, **more):
    """What summary.json holds after this last row."""
    steps, seconds = last["env_steps"], last["time/time_elapsed"]
    roles = dict.fromkeys(key.split("/")[1] for key in last if key.startswith("roles/"))
    return {
        "status": status,
        "error": error,
        "config": "toy_dqn",
        "engine": "process",
        "seed": 0,
        "startup_seconds": 1.5,
        "final_time_seconds": seconds if status == "solved" else None,
        "wall_seconds": seconds + 1.6,
        "env_steps": steps,
        "episodes": last["rollout/episodes"],
        "updates": last["updates"],
        "mean_return_100": last["rollout/ep_rew_mean"],
        "stop_return": 475.0,
        "dropped": 0,
        "restarts": 0,
        "production_per_second": 1_000.0,
        "receiving_per_second": 990.0,
        "consumption_per_second": 4_000.0,
        "replay_ratio": {"target": 4.0, "measured": 3.99},
        "staleness": {"mean": 500.0, "p50": 430.0, "p95": 1_300.0, "max": 1_400.0},
        "age": {"mean": 17_000.0, "p50": 14_000.0, "p95": 42_000.0, "max": 46_000.0},
        "freshness": {"target": 0.0026, "measured": 0.0085},
        "new": 0.2,
        "bottleneck": "training-bound: the actors wait 55 % of the time for the learner",
        "roles": {
            name: {"busy": last[f"roles/{name}/busy"], "idle": last[f"roles/{name}/idle"]}
            | {"cores": [0, 1], "version": 1}
            for name in roles
        },
        "memory_bytes": {"channels": 439_040, "store": 2_450_392},
        "histograms": {
            "staleness_updates": [[i, 200 - i] for i in range(64)] + [[64, 900], [70, 400]],
            "age_steps": [[i, 10] for i in range(0, 64)],
            "new_percent_of_batch": [[20, 100]],
        },
        "versions": VERSIONS,
    } | more


def evaluation(steps, iqm, of="training", wall=None):
    """One row of evaluations.jsonl."""
    return {
        "of": of,
        "wall_s": wall,
        "env_steps": steps,
        "updates": steps // 32,
        "episodes": 10,
        "seed": 0,
        "mean": iqm - 1.0,
        "std": 12.0,
        "iqm": iqm,
        "low": iqm - 9.0,
        "high": iqm + 8.0,
        "returns": [iqm] * 10,
        "lengths": [int(iqm)] * 10,
    }


def write_rows(path, rows):
    """One JSON object a line."""
    path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")


def make(folder, seconds=60, status="solved", seed=0, actors=2, evaluations=(), about=None, **more):
    """A run of so many seconds; `status=None` is one that has not written its summary."""
    folder.mkdir(parents=True)
    about = config(seed=seed) if about is None else about
    (folder / "config.json").write_text(json.dumps(about), encoding="utf-8")
    generator = np.random.default_rng(seed)
    rows = [row(s, actors, noise=float(generator.standard_normal())) for s in range(1, seconds + 1)]
    write_rows(folder / "metrics.jsonl", rows)
    if evaluations:
        write_rows(folder / "evaluations.jsonl", evaluations)
    (folder / "checkpoints" / "0001-step-30000").mkdir(parents=True)
    (folder / "checkpoints" / "final.safetensors").write_bytes(b"")
    if status is not None:
        last = rows[-1] if rows else row(0, actors)
        said = summary(last, status, **more)
        (folder / "summary.json").write_text(json.dumps(said), encoding="utf-8")
    return folder
