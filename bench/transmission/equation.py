"""Equation 1: how long it takes to collect samples, and with how many actors it stops falling.

`Tc = Ns * max((Tsp + Tsd) / NA, Trv)`. Actors sample and send side by side, so each of `NA` brings
one message every `Tsp + Tsd`; one receiver takes `Trv` for each. Where the two are equal, more
actors bring nothing: the knee, `NA* = (Tsp + Tsd) / Trv`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """Seconds for one message."""

    sample: float  # Tsp: making it
    send: float  # Tsd: what its sender spends on sending it; waiting for room is not spending
    receive: float  # Trv: what the receiver spends on it, with the copy into its store

    def collection_seconds(self, n_messages: int, n_actors: int) -> float:
        """Equation 1."""
        return n_messages * max((self.sample + self.send) / n_actors, self.receive)

    @property
    def knee(self) -> float:
        """Actors beyond which the collection time stays the same."""
        return (self.sample + self.send) / self.receive


def error_percent(predicted: float, measured: float) -> float:
    """How far a prediction lies above (+) or below (-) what was measured."""
    return 100 * (predicted - measured) / measured
