"""Algorithm 1: inference, simulation and update in one loop, one after the other, without channels.

This is the oracle: what an engine with one actor and no slack does must be this, bit for bit. It
uses the same policy, storage and algorithm as the roles, and nothing else of them but how they
count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tianji.core.algorithm import Algorithm
from tianji.core.counts import Count, Vector
from tianji.core.frames import BEFORE, FIRST, older
from tianji.core.store import feedback_of, keep
from tianji.job.factory import make_env
from tianji.job.job import Job
from tianji.roles.balance import Balance
from tianji.roles.episodes import Ended, Episodes
from tianji.roles.role_specs import Kind
from tianji.roles.sample_stats import Consumption


@dataclass(frozen=True)
class Outcome:
    """What serial training came to."""

    algorithm: Algorithm
    version: int  # updates
    received: int  # environment steps
    balance: Balance  # its counts tell the replay ratio
    counts: Vector  # as a learner counts
    consumption: Consumption  # how old the samples were
    freshness: float  # P of equation 2 as it was, mean of all batches
    episodes: list[Ended]


def train(job: Job, clock: Callable[[], float] = time.monotonic) -> Outcome:
    """Trains until `train_steps` were received."""
    env = make_env(job.config)
    policy = job.algorithm.policy(job.task, 0, job.seed(Kind.ACTOR))
    algorithm = job.algorithm(job.task, job.seed(Kind.LEARNER))
    store = job.sampling.build(job.trajectory, 1, 0, job.seed(Kind.BUFFER))
    balance = Balance(job.ratio, job.sampling.batch_units, job.sampling.warmup)
    trajectory, batch = job.trajectory.empty(), job.sampling.batch_schema(job.trajectory).empty()
    counts, episodes = np.zeros(len(Count)), Episodes(env.spec.n_envs, clock)
    consumption, fresh = Consumption(counts, algorithm.scalars, clock), 0.0
    version = received = 0
    obs, first = env.reset(job.env_seed(0)), np.ones(env.spec.n_envs, np.bool_)
    while received < job.config.exp.train_steps:
        policy.load(algorithm.weights(), version)  # dependency I
        if BEFORE in trajectory:  # frames are stacked: those before this trajectory
            trajectory[BEFORE][...] = older(trajectory, job.length)
        if FIRST in trajectory:
            trajectory[FIRST][0] = first
        for name, array in obs.items():
            trajectory[name][0] = array
        for t in range(job.length):
            decision = policy.act({name: trajectory[name][t] for name in obs}, first)
            step = env.step(decision["action"])  # dependency II
            keep(decision, trajectory, t)
            step.write(trajectory, t)
            first = step.first
            if FIRST in trajectory:
                trajectory[FIRST][t + 1] = first
            episodes.add(step, version)
        trajectory["length"][...] = job.length
        obs = {name: np.array(array) for name, array in step.obs.items()}
        added = store.add(0, trajectory, version)  # dependency III
        received += added.steps
        balance.receive(added.units)
        while store.ready() and balance.may_consume():
            fresh += min(1.0, balance.batch / store.size())
            store.draw(batch)
            scalars: dict[str, Any] = algorithm.learn(algorithm.stage(batch))
            if job.sampling.reweighs:
                store.reweigh(feedback_of(batch, scalars.pop("priorities", None)))
            consumption.add(batch, version, scalars)
            balance.consume()
            version += 1
    env.close()
    fresh /= max(1, version)
    return Outcome(
        algorithm, version, received, balance, counts, consumption, fresh, episodes.ended
    )
