"""A role beside Figure 2: plays whole games with the newest weights while the others train.

It owns its environments and only reads what the learner publishes anyway. Nobody waits for it, and
when training ends it leaves at once.
"""

from __future__ import annotations

import numpy as np

from tianji.core.algorithm import Policy, Weights
from tianji.core.channel import Inbox, Outbox
from tianji.core.counts import Count, Vector
from tianji.core.env import Env
from tianji.core.schema import Arrays, Field, Schema
from tianji.roles.evaluation import Games
from tianji.roles.role import Role

ORDER_SCHEMA = Schema((Field("number", "int64"),))
"""Asks for an evaluation; the number comes back with its result."""


def evaluation_schema(n_episodes: int, n_weights: int) -> Schema:
    """A finished evaluation on its way to the launcher, with the weights that it is about."""
    return Schema(
        (
            Field("number", "int64"),  # of the order
            Field("version", "int64"),  # updates behind the weights that played
            Field("returned", "float64", (n_episodes,)),
            Field("length", "int64", (n_episodes,)),
            Field("won", "float64", (n_episodes,)),  # nan: nobody can win
            Field("weights", "float32", (n_weights,)),
        )
    )


class Evaluator(Role):
    """Answers the newest order with the returns of whole games, without exploration.

    Every evaluation begins with the same seed, so that two of them differ in their weights and not
    in their luck. Orders that come in the meantime replace each other: there is no queue to be late
    with.
    """

    def __init__(
        self,
        name: str,
        env: Env,
        policy: Policy,
        weights: Inbox,
        orders: Inbox,
        results: Outbox,
        n_episodes: int,
        seed: int,
        counts: Vector | None = None,
    ) -> None:
        super().__init__(name, counts)
        self.env = env
        self.policy = policy
        self.weights = weights
        self.orders = orders
        self.results = results
        self.version = -1  # nothing received yet
        self._weights: Weights = np.zeros(0, np.float32)  # that the policy has loaded
        self._seed = seed
        self._games = Games(env, policy, n_episodes)
        self._number: int | None = None  # the order that waits or is being answered
        self._playing = False
        self._answer: Arrays | None = None  # finished, and not sent yet

    def step(self) -> bool:
        """Begins what was ordered, or plays one step of it, or sends what came of it."""
        if self.weights.closed:
            return self._finish()
        if self._answer is not None:
            return self._send()
        if not self._playing:
            return self._begin()
        if self._games.step():
            self._answer = self._result()
            self._send()
        return True

    def _begin(self) -> bool:
        """Takes the newest order and the newest weights; False while either is missing."""
        if (order := self.orders.take()) is not None:
            self._number = int(order.arrays["number"])
        if self._number is None:
            return False
        if (message := self.weights.take()) is not None:
            self._weights = message.arrays["weights"].copy()
            self.policy.load(self._weights, message.version)
            self.version = message.version
            self.counts[Count.VERSION] = message.version
            self.counts[Count.WEIGHTS_TAKEN] += 1
        if self.version < 0:
            return False
        self._games.reset(self._seed)
        self._playing = True
        return True

    def _result(self) -> Arrays:
        assert self._number is not None
        answer = {
            "number": np.asarray(self._number),
            "version": np.asarray(self.version),
            "returned": self._games.returns,
            "length": self._games.lengths,
            "won": self._games.won,
            "weights": self._weights,
        }
        self._number, self._playing = None, False
        return answer

    def _send(self) -> bool:
        """A full channel keeps the answer here, and nothing new begins."""
        assert self._answer is not None
        if not self.results.push(self._answer, self.version):
            self.counts[Count.REFUSED] = self.results.refused
            return False
        self._answer = None
        self.counts[Count.PUSHED] += 1
        return True

    def _finish(self) -> bool:
        """What was begun is given up; what was finished is sent if there is room."""
        if self._answer is not None:
            self._send()
        self.results.close()
        self.done = True
        return True

    def close(self) -> None:
        """Closes the environments."""
        self.env.close()
