"""The parts of roles that write down when they work: policy, environments, store and algorithm."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

import numpy.typing as npt

from tianji.core.algorithm import Algorithm, Policy, Weights
from tianji.core.env import BoolArray, Env, Step
from tianji.core.schema import Arrays
from tianji.core.state import State, restore_to, state_of
from tianji.core.store import Amount, Store
from tianji.observe.trace.format import Doing, What
from tianji.observe.trace.recorder import NEVER, Track
from tianji.observe.trace.traced_ends import Handling


class TracedPolicy:
    """Acts as another policy does; the row is written when its environments have stepped."""

    def __init__(self, policy: Policy, track: Track) -> None:
        self._policy = policy
        self._track = track
        self.began = 0.0  # the last inference
        self.decided = 0.0  # it ended

    def act(self, obs: Arrays, first: BoolArray, explore: bool = True) -> Arrays:
        """What the policy decides."""
        self.began = time.monotonic()
        decision = self._policy.act(obs, first, explore)
        self.decided = time.monotonic()
        return decision

    def load(self, weights: Weights, version: int) -> None:
        """Has the policy copy the weights."""
        began = time.monotonic()
        self._policy.load(weights, version)
        self._track.add(Doing.RECEIVE, began, 0, version, What.WEIGHTS)

    def state(self) -> State | None:
        """Of the policy, if it has one."""
        return state_of(self._policy)

    def restore(self, state: State) -> None:
        """Restores the policy."""
        restore_to(self._policy, state)


class TracedEnv:
    """Steps as other environments do."""

    def __init__(self, env: Env, policy: TracedPolicy, track: Track) -> None:
        self._env = env
        self._policy = policy
        self._track = track
        self.spec = env.spec

    def reset(self, seed: int | None = None) -> Arrays:
        """Starts the environments anew."""
        return self._env.reset(seed)

    def step(self, action: npt.NDArray[Any]) -> Step:
        """What the environments answer."""
        began = time.monotonic()
        step = self._env.step(action)
        self._track.act(self._policy.began, self._policy.decided, began)
        return step

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()

    def state(self) -> State | None:
        """Of the environments, if they have one."""
        return state_of(self._env)

    def restore(self, state: State) -> None:
        """Restores the environments."""
        restore_to(self._env, state)


class TracedStore:
    """Keeps what another store keeps."""

    def __init__(self, store: Store, track: Track, handling: Handling) -> None:
        self._store = store
        self._track = track
        self._handling = handling
        self.size = store.size  # these are asked at every step, and no row is made of them
        self.ready = store.ready
        self.expire = store.expire

    def add(self, source: int, trajectory: Arrays, version: int) -> Amount:
        """Copies a trajectory; the row begins when it was taken."""
        handling, began = self._handling, time.monotonic()
        number, since = handling.number, handling.since
        added = self._store.add(source, trajectory, version)
        if since != NEVER:
            began, handling.since, handling.number = since, NEVER, -1
        self._track.add(Doing.RECEIVE, began, number, version, What.TRAJECTORY, source)
        return added

    def draw(self, out: Arrays) -> None:
        """Fills a batch; the row is written when it has been sent."""
        self._handling.since = time.monotonic()
        self._store.draw(out)

    def reweigh(self, feedback: Arrays) -> int:
        """As the store does."""
        return self._store.reweigh(feedback)

    def clear(self) -> Amount:
        """Drops everything."""
        return self._store.clear()

    def rejoin(self, n_lost: int) -> Amount:
        """Goes on without batches that were lost."""
        return self._store.rejoin(n_lost)

    def state(self) -> State | None:
        """Of the store, if it has one."""
        return state_of(self._store)

    def restore(self, state: State) -> None:
        """Restores the store."""
        restore_to(self._store, state)


class TracedAlgorithm:
    """What a learner uses of an algorithm, with a row for every update."""

    def __init__(self, algorithm: Algorithm, track: Track, version: Callable[[], int]) -> None:
        self._algorithm = algorithm
        self._track = track
        self._version = version  # of the weights that are updated
        self.weights = algorithm.weights
        self.load = algorithm.load
        self.parameters = algorithm.parameters
        self.shift = algorithm.shift
        self.state = algorithm.state
        self.restore = algorithm.restore
        self.scalars = algorithm.scalars

    def learn(self, batch: Arrays) -> dict[str, float]:
        """One update."""
        began = time.monotonic()
        scalars = self._algorithm.learn(batch)
        self._track.add(Doing.UPDATE, began, 0, self._version())
        return scalars

    def updates(self, batch: Arrays) -> Generator[Weights, None, dict[str, float]]:
        """One update with others: a row for each piece of it between two exchanges."""
        update = self._algorithm.updates(batch)
        try:
            while True:
                began = time.monotonic()
                try:
                    vector = next(update)
                except StopIteration as end:
                    return dict(end.value)
                finally:
                    self._track.add(Doing.UPDATE, began, 0, self._version())
                yield vector
        finally:
            update.close()
