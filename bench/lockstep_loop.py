"""QMIX in lockstep, as EPyMARL's parallel runner steps: one process per environment, over pipes.

Every step waits for the slowest environment, and nobody steps while the network learns. Network,
storage and update are ours, and so is the policy (numpy), so that only the way of stepping differs;
it goes on where an environment has ended its episode, which EPyMARL lets wait for the longest one.
Prints one JSON line.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from options import Options, count, positive, whole

from tianji.config import Config, load
from tianji.core.balance import Balance
from tianji.core.env import EnvSpec, Step
from tianji.core.frames import FIRST
from tianji.core.store import keep
from tianji.job.factory import make_env
from tianji.job.job import Job, prepare

SEEN = ("reward", "terminated", "truncated", "valid", "first")  # besides the observations


def play(pipe: Connection, file: Path, settings: list[str], seed: int) -> None:
    """A child: one environment, which answers every action with what came of it."""
    env = make_env(load(file, settings), 1)
    pipe.send((env.spec.to_json(), env.reset(seed)))
    while (action := pipe.recv()) is not None:
        step = env.step(action)
        pipe.send((step.obs, *(getattr(step, name) for name in SEEN)))
    env.close()


class Lockstep:
    """As many environments as processes; a step takes as long as the slowest."""

    def __init__(self, n: int, file: Path, settings: list[str], seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        ends = [context.Pipe() for _ in range(n)]
        self.pipes: list[Any] = [ours for ours, _ in ends]
        self.children = [
            context.Process(target=play, args=(theirs, file, settings, seed + i), daemon=True)
            for i, (_, theirs) in enumerate(ends)
        ]
        for child in self.children:
            child.start()
        begun = [pipe.recv() for pipe in self.pipes]
        self.spec, self.obs = begun[0][0], joined([obs for _, obs in begun])

    def step(self, actions: Any) -> Step:
        """Sends every action, and waits for all answers."""
        for e, pipe in enumerate(self.pipes):
            pipe.send(actions[e : e + 1])
        answers = [pipe.recv() for pipe in self.pipes]
        reward, *flags = (np.concatenate(part) for part in list(zip(*answers, strict=True))[1:])
        return Step(joined([answer[0] for answer in answers]), reward, *flags)

    def close(self) -> None:
        """Ends the children."""
        for pipe, child in zip(self.pipes, self.children, strict=True):
            pipe.send(None)
            child.join()


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Observations of one environment each, as those of all."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def train(job: Job, env: Lockstep, seconds: float, seed: int) -> tuple[int, int, float]:
    """Acts and learns in turns; steps made and learned from, and the seconds, from an update on."""
    policy, learner = job.algorithm.policy(job.task, 0, seed), job.algorithm(job.task, seed)
    store = job.sampling.build(job.trajectory, 1, 0, seed)
    balance = Balance(job.ratio, job.sampling.batch_units, job.sampling.warmup)
    rows, batch = job.trajectory.empty(), job.sampling.batch_schema(job.trajectory).empty()
    obs, first = env.obs, np.ones(job.task.env.n_envs, np.bool_)
    version, steps, samples, began = 0, 0, 0, math.inf
    while time.monotonic() < began + seconds:
        policy.load(learner.weights(), version)
        for name, array in obs.items():
            rows[name][0] = array
        for t in range(job.length):
            if FIRST in rows:
                rows[FIRST][t] = first
            decision = policy.act(obs, first)
            step = env.step(decision["action"])
            keep(decision, rows, t)
            step.write(rows, t)
            obs, first = step.obs, step.first
        if FIRST in rows:
            rows[FIRST][job.length] = first
        rows["length"][...] = job.length
        added = store.add(0, rows, version)
        balance.receive(added.units)
        steps += added.steps
        while store.ready() and balance.may_consume():
            store.draw(batch)
            learner.learn(learner.stage(batch))
            balance.consume()
            samples += int(batch["valid"].sum())
            version += 1
        if version and began == math.inf:  # after the first updates
            began, steps, samples = time.monotonic(), 0, 0
    return steps, samples, time.monotonic() - began


def main() -> int:
    parser = Options(__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--envs", type=count, default=8, help="processes, one environment each (8)")
    parser.add_argument("--seconds", type=positive, default=30.0, help="from the first update (30)")
    parser.add_argument("--seed", type=whole, default=0)
    parser.add_argument("--set", action="append", default=[], help="key=value")
    o = parser.parse_args()
    settings = [*o.set, f"actor_cfg.envs={o.envs}"]
    config: Config = load(o.config, settings)
    env = Lockstep(o.envs, o.config, settings, o.seed)
    job = prepare(config, replace(EnvSpec.from_json(env.spec), n_envs=o.envs))
    steps, samples, seconds = train(job, env, o.seconds, o.seed)
    env.close()
    print(
        json.dumps({"steps_per_second": steps / seconds, "samples_per_second": samples / seconds})
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
