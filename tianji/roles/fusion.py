"""A learner's side of the fusion of groups: when to send, and what to make of the mean."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tianji.core.algorithm import Algorithm, Weights
from tianji.core.channel import Inbox, Message, Outbox
from tianji.core.schema import Arrays, Field, Schema
from tianji.core.state import State
from tianji.core.tracer import NULL, Tracer, What

MOST = 20.0  # log of the largest ratio of probabilities that is told apart


def parameters_schema(n_parameters: int) -> Schema:
    """What a learner sends to the reducer, and gets back."""
    return Schema((Field("parameters", "float32", (n_parameters,)),))


class Fusion:
    """Sends a group's parameters every `interval` updates, and says what to add for the mean."""

    def __init__(self, parameters: Outbox, mean: Inbox, n_parameters: int, interval: int) -> None:
        self._parameters = parameters
        self._mean = mean
        self._sent = np.zeros(n_parameters, np.float32)
        self._interval = interval
        self._due = interval  # the version at which it sends next
        self._waiting = False  # for the mean of what was sent
        self.tracer: Tracer = NULL  # of its learner
        self.n_fusions = 0  # that this group has taken part in
        self.refused = 0  # times that it was due and could not send

    def correction(self) -> Weights | None:
        """What to add to the parameters, if the mean has come of what was sent."""
        self.tracer.begin()
        if (message := self._mean.take()) is None:
            return None
        self.tracer.received(What.PARAMETERS, message)
        if not self._waiting:
            return None
        self._waiting = False
        self.n_fusions += 1
        delta: Weights = message.arrays["parameters"] - self._sent
        return delta

    def offer(self, parameters: Callable[[], Weights], version: int) -> None:
        """Sends the parameters if it is time; if it cannot, it tries again at the next update."""
        if version < self._due or self._mean.closed:
            return
        if self._waiting or (slot := self._parameters.slot()) is None:
            self.refused += 1
            return
        self.tracer.begin()
        np.copyto(self._sent, parameters())
        np.copyto(slot["parameters"], self._sent)
        self._parameters.commit(version)
        self.tracer.sent(What.PARAMETERS, version)
        self._waiting, self._due = True, version + self._interval

    def close(self) -> None:
        """Leaves the fusions to the other groups."""
        self._parameters.close()

    def state(self) -> State:
        """What was sent, and when the next is due."""
        return {
            "sent": self._sent,
            "due": self._due,
            "waiting": self._waiting,
            "n_fusions": self.n_fusions,
            "refused": self.refused,
        }

    def restore(self, state: State) -> None:
        """Waits for the mean that another waited for."""
        np.copyto(self._sent, state["sent"])
        self._due, self._waiting = state["due"], state["waiting"]
        self.n_fusions, self.refused = state["n_fusions"], state["refused"]

    def take_over(self, last: Message | None, n_fusions: int) -> None:
        """Goes on for a learner that was lost, which sent `last`: the mean of that may yet come.

        One that has come is left: who knows whether the lost one took it.
        """
        mean = self._mean.take()
        self.n_fusions = n_fusions
        if last is not None:
            np.copyto(self._sent, last.arrays["parameters"])
            self._due = last.version + self._interval
            self._waiting = last.sequence > (-1 if mean is None else mean.sequence)

    def rejoin(self, version: int) -> None:
        """What was in flight is lost: nothing is waited for, and the next is due at its time."""
        self._waiting = False
        self._due = min(self._due, version + self._interval)


def adopt(algorithm: Algorithm, correction: Weights, batch: Arrays) -> float:
    """Adds the correction, before anybody acts with these weights.

    Returns the KL divergence of the policy that comes of it from the one before, on this batch;
    0 where actions have no probabilities.
    """
    before = algorithm.log_probabilities(batch)
    algorithm.shift(correction)
    if before is None or not before.size:
        return 0.0
    after = algorithm.log_probabilities(batch)
    assert after is not None
    change = np.minimum(after - before, MOST)
    return float(np.mean(np.exp(change) - 1.0 - change))
