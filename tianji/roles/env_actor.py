"""Actors without a policy: simulation alone, where an inference role of the group acts."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from tianji.core.channel import Inbox, Message, Outbox
from tianji.core.counts import Count, Vector
from tianji.core.env import Env, EnvSpec, Step
from tianji.core.mishaps import Mishaps
from tianji.core.schema import Arrays, Field, Schema
from tianji.core.state import fresh_seed
from tianji.roles.env_restart import EnvRestart, MovingEnvs
from tianji.roles.episodes import Clock, EpisodeLog
from tianji.roles.role import Role
from tianji.roles.split_actor import EnvHalves, joined_step

ABOUT = (
    Field("half", "int64"),  # of the actor's environments
    Field("stream", "int64"),  # see `EnvActor.stream`
)
NO_HALF = -1  # of a message without actions, for an actor whose stream is older


def steps_schema(env: EnvSpec, n_halves: int) -> Schema:
    """What one half of an actor's environments shows, and what its last actions came to."""
    per_env = (
        *env.observations,
        env.reward,
        *(Field(name, "bool") for name in ("terminated", "truncated", "valid", "first")),
        *(Field(f"final_{f.name}", f.dtype, f.shape) for f in env.observations if env.same_step),
    )
    return Schema((*ABOUT, *Schema(per_env).stacked(env.n_envs // n_halves).fields))


def actions_schema(env: EnvSpec, n_halves: int) -> Schema:
    """Actions for one half of an actor's environments."""
    action = Field("action", env.action.dtype, env.action.shape)
    return Schema((*ABOUT, *Schema((action,)).stacked(env.n_envs // n_halves).fields))


class EnvActor(Role):
    """Simulation alone: what the environments show goes to an inference role, which sends actions.

    Frames are sent one by one, as the environments make them. With two halves, one moves while the
    inference role acts in the other. Actions for a half come when its step was sent, so that never
    more than one message of each is in flight.
    """

    def __init__(
        self,
        name: str,
        env: Env,
        actions: Inbox,
        steps: Outbox,
        episodes: Outbox,
        length: int,
        seed: int,
        clock: Clock = time.monotonic,
        counts: Vector | None = None,
        make_env: Callable[[], Any] | None = None,  # what broke is made anew with it
        restarts: int = 0,  # times an hour that this may happen
    ) -> None:
        super().__init__(name, counts)
        self.mishaps = Mishaps(name, self.counts, restarts)
        self._whole = env
        self._envs: list[Any] = env.halves if isinstance(env, EnvHalves) else [env]
        self.actions, self.steps = actions, steps
        self.stream = 0  # grows where it begins anew, in the middle of what it had sent before
        self.seed = seed
        self.obs = env.reset(seed)
        self.log = EpisodeLog(env.spec.n_envs, episodes, clock)
        restart = None
        if make_env is not None:
            restart = EnvRestart(make_env, seed, self.mishaps)
            restart.mend(env)
        self._halves = [MovingEnvs(self._envs, i, restart) for i in range(len(self._envs))]
        self._versions = [-1] * len(self._envs)  # of the policies that chose the last actions
        self._length = length
        self.begin()

    @property
    def env(self) -> Any:
        """All environments as one; those that broke are made anew."""
        return self._envs[0] if len(self._envs) == 1 else self._whole

    def begin(self) -> None:
        """Begins a stream with what is observed now."""
        self._shown = 0  # halves of which was said where they begin
        self._moving: deque[int] = deque()  # halves whose step is not finished
        self._row: list[Step] = []  # of the halves that have made the newest step
        self._n_rows, self._n_valid = 0, 0  # of the trajectory that is being made of this

    def begin_episodes(self) -> None:
        """Not the first ones once more."""
        self.obs = self.env.reset(fresh_seed(self.seed, int(self.counts[Count.PRODUCED])))
        self.log.begin_anew()

    def take_over(self, stream: int) -> None:
        """Goes on with the counts of a lost actor, and in a new stream: that one's was `stream`."""
        self.log.begin_from(int(self.counts[Count.PRODUCED]))
        self.stream = stream + 1

    def step(self) -> bool:
        """Begins what it was sent actions for, else finishes what has begun."""
        if self.actions.closed:
            return self._finish()
        if self._shown < len(self._halves):
            return self._show()
        if (message := self.actions.take()) is not None:
            self._move(message)
            return True
        if not self._moving:
            return False
        self._send(self._moving.popleft())
        return True

    def waits_for(self) -> Count:
        """Actions: it has nothing else to wait for."""
        return Count.WAITED_ACTIONS

    def _show(self) -> bool:
        """Says where the next half begins; in the middle of an episode that is as good as new."""
        while not self._shown and self.actions.take() is not None:
            pass  # for what was shown before
        if (slot := self.steps.slot()) is None:
            return False
        size = self.env.spec.n_envs // len(self._halves)
        part = slice(self._shown * size, (self._shown + 1) * size)
        for name, array in self.obs.items():
            slot[name][...] = array[part]
        slot["first"][...] = True
        self._commit(slot, self._shown)
        self._shown += 1
        return True

    def _move(self, message: Message) -> None:
        arrays = message.arrays
        stream, half = int(arrays["stream"]), int(arrays["half"])
        if stream > self.stream:
            self._begin_anew(stream)
        if stream != self.stream or half == NO_HALF:
            return  # for what it showed before it began anew, or to tell it to
        self.counts[Count.VERSION] = message.version
        self.tracer.begin()
        self._versions[half] = message.version
        self._halves[half].begin(np.array(arrays["action"]))
        if len(self._halves) == 1:
            self._send(half)
        else:
            self._moving.append(half)

    def _begin_anew(self, stream: int) -> None:
        """In new episodes: another acts now, who knows nothing of those in progress."""
        for half in self._moving:
            self._halves[half].finish()
        self.begin_episodes()
        self.stream = stream
        self.begin()

    def _send(self, half: int) -> None:
        """Finishes the step of a half and sends what came of it."""
        step = self._halves[half].finish()
        slot = self.steps.slot()
        assert slot is not None, "as many messages may be in flight as there are halves"
        for name in ("reward", "terminated", "truncated", "valid", "first"):
            slot[name][...] = getattr(step, name)
        for name, array in step.obs.items():
            slot[name][...] = array
        for name, array in (step.final or {}).items():
            slot[f"final_{name}"][...] = array
        self._row.append(step)
        if is_row := len(self._row) == len(self._halves):  # they move in turns
            self._count()
        self._commit(slot, half)
        self.tracer.acted()
        if is_row:
            self._note(joined_step(self._row), self._versions[half])
            self._row = []

    def _commit(self, slot: Arrays, half: int) -> None:
        slot["half"][...], slot["stream"][...] = half, self.stream
        self.steps.commit(self._versions[half])

    def _count(self) -> None:
        """As the inference role does, who makes trajectories of this; before it hears of it."""
        self._n_rows += 1
        self._n_valid += sum(int(np.count_nonzero(step.valid)) for step in self._row)
        if self._n_rows == self._length:
            self.counts[Count.PRODUCED] += self._n_valid
            self.counts[Count.PUSHED] += 1
            self._n_rows, self._n_valid = 0, 0

    def _note(self, step: Step, version: int) -> None:
        """What was seen last, and the games that have ended."""
        self.obs = step.obs
        self.log.add(step, version)
        if not self._n_rows:  # a trajectory is full
            self.log.push()

    def _finish(self) -> bool:
        self.log.push()
        self.steps.close()
        self.done = True
        return True

    def report(self) -> Arrays:
        """Counters, and the newest mishap of the environments in words."""
        return {"counts": self.counts, "mishap": self.mishaps.words}

    def close(self) -> None:
        """Closes the environments."""
        self.env.close()
