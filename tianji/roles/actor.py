"""Actors: policy inference and simulation in one loop."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from tianji.core.algorithm import Policy
from tianji.core.channel import Inbox, Outbox
from tianji.core.counts import Count, Vector
from tianji.core.env import Env, Step
from tianji.core.mishaps import Mishaps
from tianji.core.schema import Arrays
from tianji.core.tracer import What
from tianji.roles.env_restart import EnvRestart
from tianji.roles.episodes import Clock, EpisodeLog
from tianji.roles.role import Role
from tianji.roles.trajectory import TrajectoryWriter
from tianji.roles.trigger import PushTrigger

LARGE = 200_000  # weights: copying them takes as long as some steps of a cheap environment


class Actor(Role):
    """Policy inference and simulation in one loop, so that an action never crosses a process."""

    def __init__(
        self,
        name: str,
        env: Env,
        policy: Policy,
        weights: Inbox,
        trajectories: Outbox,
        episodes: Outbox,
        trigger: PushTrigger,
        length: int,
        seed: int,
        per_version: int | None = None,
        clock: Clock = time.monotonic,
        counts: Vector | None = None,
        make_env: Callable[[], Env] | None = None,  # what broke is made anew with it
        restarts: int = 0,  # times an hour that this may happen
    ) -> None:
        super().__init__(name, counts)
        self.mishaps = Mishaps(name, self.counts, restarts)
        self.env = env
        self.policy = policy
        self.weights = weights
        self.trigger = trigger
        self.version = -1  # nothing received yet
        self.per_version = per_version  # synchronous: this many trajectories per version, no more
        self._large = False  # weights that take longer to load than a step
        self._length = length
        self.seed = seed
        self.obs = env.reset(seed)
        self.first = np.ones(env.spec.n_envs, np.bool_)  # where `obs` begins an episode
        self.trajectory = TrajectoryWriter(trajectories)
        self.log = EpisodeLog(env.spec.n_envs, episodes, clock)
        self._restart: EnvRestart[Env] | None = None
        if make_env is not None:
            self._restart = EnvRestart(make_env, seed, self.mishaps)
            self._restart.mend(env)

    def step(self) -> bool:
        """Takes newer weights if there are any, then acts once in every environment."""
        if self.weights.closed:
            return self._finish()
        if not (self._large and self.trajectory.is_open):
            self.take_weights()
        if not self.trajectory.is_open and not self._begin():
            return False
        self.tracer.begin()
        decision = self.policy.act(self.obs, self.first)  # ❺ act, and ❸ keep what came of it
        self.tracer.decided()
        try:
            step = self.env.step(decision["action"])
        except Exception as error:  # of anybody's simulator
            step = self._renewed(error)
        self.tracer.acted()
        self.obs, self.first = self.trajectory.add(decision, step), step.first
        ended, length = self.log.add(step, self.version), self.trajectory.length
        if length == self._length or self.trigger.fires(length, ended):
            self._push()  # ❸ it is already where the buffer will read it
        return True

    def _renewed(self, error: Exception) -> Step:
        """What broke all environments costs their episodes, not the run."""
        if self._restart is None:
            raise error
        self.env, step = self._restart.after(self.env, error)
        return step

    def take_weights(self) -> None:
        """❹ A newer model, if one has come; a large one only where a trajectory begins."""
        if (message := self.weights.take()) is not None:
            weights = message.arrays["weights"]
            self._large = weights.size > LARGE
            self.tracer.begin()
            self.policy.load(weights, message.version)
            self.version = self.counts[Count.VERSION] = message.version
            self.counts[Count.WEIGHTS_TAKEN] += 1
            self.tracer.received(What.WEIGHTS, message)

    def _begin(self) -> bool:
        """Opens the next trajectory, if it may be begun and the channel has room for it."""
        if self.paused or self._lacks_weights():
            return False
        begun = self.trajectory.begin(self.obs, self.first, self.version)
        self.counts[Count.REFUSED] = self.trajectory.refused
        if begun:  # room that was made after an update: its weights were published before
            self.take_weights()
            self.trajectory.version = self.version
        return begun

    def _lacks_weights(self) -> bool:
        due = 0 if self.per_version is None else self.trajectory.sent // self.per_version
        return self.version < due

    def waits_for(self) -> Count:
        """Weights, or room for the next trajectory."""
        return Count.WAITED_WEIGHTS if self._lacks_weights() else Count.WAITED_ROOM

    def _push(self) -> None:
        self.tracer.begin()
        # Counted first: sending wakes others, and behind it one may be killed before it counts.
        self.counts[Count.PRODUCED] += self.trajectory.n_valid
        self.counts[Count.MESSAGES] += 1
        self.trajectory.send()
        self.tracer.sent(What.TRAJECTORY, self.trajectory.version)
        self.counts[Count.PUSHED] = self.trajectory.sent
        self.log.push()

    def _finish(self) -> bool:
        self.log.push()
        self.trajectory.close()  # what was begun is given up
        self.done = True
        return True

    def report(self) -> Arrays:
        """Counters, and the newest mishap of the environments in words."""
        return {"counts": self.counts, "mishap": self.mishaps.words}

    def close(self) -> None:
        """Closes the environments."""
        self.env.close()
