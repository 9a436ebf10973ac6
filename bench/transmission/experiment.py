"""The virtual communication experiment of the paper: actors that send, one receiver that collects.

Every transport and every peer runs this same experiment, described by an `Experiment` and answered
by a `Collected`; both travel to child processes as JSON.
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from typing import Any

from tianji.core.channel import ChannelSpec, Delivery
from tianji.core.schema import Field, Schema

RECEIVER = "receiver"
N_REPORTED = 3  # numbers in an actor's report: messages, seconds of sampling, seconds of sending


class Use(enum.Enum):
    """What the receiver does with a message."""

    VIEWS = "views"  # reads a byte of every page where the message lies
    STORE = "store"  # copies it into a store of its own


@dataclass(frozen=True)
class Experiment:
    """What is sent, by how many, and what the receiver does with it."""

    message_bytes: int
    n_messages: int  # that the receiver counts; the first ones, which warm the memory, are extra
    n_actors: int = 1
    sample_seconds: float | None = None  # asleep before each message; None: a stream without clocks
    use: Use = Use.STORE
    depth: int = 8  # messages of one actor in flight

    @property
    def n_bytes(self) -> int:
        """That are sent at least, with the messages that warm the memory."""
        return (self.n_messages + self.n_actors * self.depth) * self.message_bytes

    def to_json(self) -> dict[str, Any]:
        """What a child process is told of it; `from_json` reads it there."""
        return dataclasses.asdict(self) | {"use": self.use.value}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Experiment:
        """The inverse of `to_json`."""
        return cls(**said | {"use": Use(said["use"])})


@dataclass(frozen=True)
class Collected:
    """What one run of an experiment took."""

    seconds: float  # from the word to go until the last message was used
    sample_seconds: float | None = None  # means over all messages of all actors, where measured
    send_seconds: float | None = None
    receive_seconds: float | None = None
    n_wrong: int = 0  # messages that were lost, doubled or out of order

    def to_json(self) -> dict[str, Any]:
        """What the receiver's process leaves in a file for the one that started it."""
        return dataclasses.asdict(self)


def actor(i: int) -> str:
    """The name of an actor and of its process."""
    return f"actor-{i}"


def channels(experiment: Experiment) -> tuple[list[ChannelSpec], dict[str, str]]:
    """Samples and a report from every actor, and a word to all of them; and everybody's process."""
    actors = [actor(i) for i in range(experiment.n_actors)]
    sample = Schema((Field("data", "uint8", (experiment.message_bytes,)),))
    report = Schema((Field("data", "float64", (N_REPORTED,)),))
    word = Schema((Field("data", "uint8", (1,)),))
    specs = [ChannelSpec("go", RECEIVER, tuple(actors), word, Delivery.LATEST)]
    for name in actors:
        to = (RECEIVER,)
        specs.append(ChannelSpec(f"samples {name}", name, to, sample, depth=experiment.depth))
        specs.append(ChannelSpec(f"report {name}", name, to, report, depth=1))
    return specs, {name: name for name in (RECEIVER, *actors)}
