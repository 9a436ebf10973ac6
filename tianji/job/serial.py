"""Algorithm 1: inference, simulation and update in one loop, one after the other, without channels.

This is the oracle: what an engine with no slack does must be this, bit for bit. It uses
the same policy, storage and algorithm as the roles, and nothing else of them but how they count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tianji.core.algorithm import Algorithm, Weights
from tianji.core.balance import Balance
from tianji.core.counts import Count, Vector
from tianji.core.frames import BEFORE, FIRST, older
from tianji.core.schema import Arrays
from tianji.core.store import feedback_of, keep
from tianji.job.factory import make_env
from tianji.job.job import Job
from tianji.roles.episodes import Ended, Episodes
from tianji.roles.role_specs import Kind
from tianji.roles.sample_stats import SampleStats


@dataclass(frozen=True)
class Outcome:
    """What serial training came to."""

    algorithm: Algorithm
    version: int  # updates
    received: int  # environment steps
    balance: Balance  # its counts tell the replay ratio
    counts: Vector  # as a learner counts
    consumption: SampleStats  # how old the samples were
    freshness: float  # P of equation 2 as it was, mean of all batches
    episodes: list[Ended]


class _Actor:
    """The environments and the policy of one actor, and where they stand."""

    def __init__(self, job: Job, index: int, clock: Callable[[], float]) -> None:
        self.env = make_env(job.config)
        self.policy = job.algorithm.policy(job.task, index, job.seed(Kind.ACTOR, index))
        self.trajectory = job.trajectory.empty()
        self.episodes = Episodes(self.env.spec.n_envs, clock)
        self._length = job.length
        self._obs = self.env.reset(job.env_seed(index))
        self._first = np.ones(self.env.spec.n_envs, np.bool_)

    def act(self, weights: Weights, version: int) -> Arrays:
        """Makes a trajectory with these weights."""
        trajectory, first = self.trajectory, self._first
        self.policy.load(weights, version)  # dependency I
        if BEFORE in trajectory:  # frames are stacked: those before this trajectory
            trajectory[BEFORE][...] = older(trajectory, self._length)
        if FIRST in trajectory:
            trajectory[FIRST][0] = first
        for name, array in self._obs.items():
            trajectory[name][0] = array
        for t in range(self._length):
            decision = self.policy.act({name: trajectory[name][t] for name in self._obs}, first)
            step = self.env.step(decision["action"])  # dependency II
            keep(decision, trajectory, t)
            step.write(trajectory, t)
            first = step.first
            if FIRST in trajectory:
                trajectory[FIRST][t + 1] = first
            self.episodes.add(step, version)
        trajectory["length"][...] = self._length
        self._obs = {name: np.array(array) for name, array in step.obs.items()}
        self._first = first
        return trajectory


def train(
    job: Job, clock: Callable[[], float] = time.monotonic, n_actors: int | None = None
) -> Outcome:
    """Trains until `train_steps` were received, from all actors in turns or from `n_actors`.

    The first trajectory of each is made before the first update.
    """
    actors = [_Actor(job, i, clock) for i in range(n_actors or job.task.n_actors)]
    algorithm = job.algorithm(job.task, job.seed(Kind.LEARNER))
    seed = job.seed(Kind.BUFFER)
    store = job.sampling.build(job.trajectory, len(actors), job.arriving, seed)
    balance = Balance(job.ratio, job.sampling.batch_units, job.sampling.warmup)
    batch = job.sampling.batch_schema(job.trajectory).empty()
    counts, fresh = np.zeros(len(Count)), 0.0
    consumption = SampleStats(counts, algorithm.scalars, clock)
    version = received = n_added = 0
    while received < job.config.exp.train_steps:
        source = n_added % len(actors)
        trajectory = actors[source].act(algorithm.weights(), version)
        added = store.add(source, trajectory, version)  # dependency III
        n_added += 1
        received += added.steps
        balance.receive(added.units)
        while n_added >= len(actors) and store.ready() and balance.may_consume():
            fresh += min(1.0, balance.batch / store.size())
            store.draw(batch)
            scalars: dict[str, Any] = algorithm.learn(algorithm.stage(batch))
            if job.sampling.reweighs:
                store.reweigh(feedback_of(batch, scalars.pop("priorities", None)))
            consumption.add(batch, version, scalars)
            balance.consume()
            version += 1
    for actor in actors:
        actor.env.close()
    fresh /= max(1, version)
    ended = [episode for actor in actors for episode in actor.episodes.ended]
    return Outcome(algorithm, version, received, balance, counts, consumption, fresh, ended)
