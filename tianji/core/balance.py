"""The balance of production and consumption: how often a sample is learned from, and how old.

All that decides what is let in, and so how old samples become, is here:

    a batch is handed out while     c + batch <= (r - warmup) * ratio
    a trajectory is taken while     (r - warmup) * ratio - settled < batch + room * ratio

of `r` samples received and `c` consumed, of which `settled` were learned from; `room` is the slack,
and while the buffer works beside its learner what it may have `ahead` besides. So there are never
more than

    r < warmup + (settled + batch) / ratio + room + one trajectory

whoever is slow, rests, is lost or comes back; except where a resumed learner was saved before its
buffer: then `settled` is less than it was, and nothing is let in until that is made up. Only what
there is no batch without is taken whatever is owed: where actors send in turns, the first
trajectory of each, and the first sample in an empty store.

The age of on-policy samples, in updates, follows from what is under way. It is two numbers: the
`usual_lag` when all actors work at the same pace, and the `bound_of_lag` for one that does not:
what is older is dropped when a batch is drawn.
"""

from __future__ import annotations

import math

from tianji.core.errors import TianJiError
from tianji.core.state import State
from tianji.core.wording import count_of

LEAST_DEPTH, MOST_DEPTH = 2, 16  # trajectories


def depth_for(batch: int, ratio: float, arriving: int, on_policy: bool) -> int:
    """Trajectories that each actor may have under way, the one it writes among them.

    While the learner is at a batch, the actors make what the next one needs, which is
    `batch / ratio` steps; `arriving` are those of one trajectory from each of them. With less room
    actors and learner would wait for each other in turns, however fast they are. On-policy samples
    would be older for it, and it is as little as lets both sides work at the same time.
    """
    needed = LEAST_DEPTH if on_policy else 1 + math.ceil(batch / (ratio * arriving))
    return max(LEAST_DEPTH, min(needed, MOST_DEPTH))


def slack_for(batch: int, ratio: float, arriving: int, on_policy: bool) -> int:
    """Steps that a buffer which works beside its learner may receive ahead.

    A trajectory of everybody, and what the next batch needs: it is made while the learner is at the
    last. On-policy samples would be older for it.
    """
    return arriving if on_policy else max(arriving, math.ceil(batch / ratio))


def usual_lag(n_actors: int, batch: int) -> int:
    """Updates that pass while the trajectories under way, one of each actor, are learned from."""
    return math.ceil(n_actors / batch) + 1


def bound_of_lag(max_lag: int | None, n_actors: int, batch: int) -> int:
    """Updates that a rollout may be behind: the usual ones, unless more are allowed."""
    usual = usual_lag(n_actors, batch)
    if max_lag is None:
        return usual
    if max_lag < usual:
        raise TianJiError(
            f"hyp.max_lag: {count_of(n_actors, 'actor')} with {count_of(batch, 'rollout')} per "
            f"update may be {usual} updates behind, and {max_lag} would drop what is older: "
            "raise max_lag or batch_size"
        )
    return max_lag


class Balance:
    """Keeps consumption at `ratio` samples per sample received, without waiting.

    It answers by the two formulas above. The second limit is never below the first, so one of the
    two questions is always answered with yes and nothing can lock up. Reverb's limiter blocks the
    caller; this one answers, and the caller does something else with its time. The buffer asks
    both questions: it hands out a batch only if it may consume, and it empties its inboxes only if
    more may be produced. A full inbox has no free slot, and so the answer reaches the actors.
    """

    def __init__(
        self, ratio: float, batch: int, warmup: int = 0, slack: int = 0, ahead: int = 0
    ) -> None:
        if ratio <= 0:
            raise TianJiError(f"replay_ratio: want a number above 0, got {ratio}")
        self.ratio = ratio
        self.batch = batch
        self.warmup = warmup
        self.slack = slack
        self.ahead = ahead
        self.received = 0
        self.consumed = 0

    @property
    def earned(self) -> float:
        """Samples that may have been consumed by now in all."""
        return (self.received - self.warmup) * self.ratio

    def receive(self, n: int) -> None:
        """Counts `n` samples that have come."""
        self.received += n

    def forget(self, n: int) -> None:
        """Takes `n` samples back that came and were refused for their age."""
        self.received -= n

    def consume(self) -> None:
        """Counts one batch that was handed out."""
        self.consumed += self.batch

    def may_consume(self) -> bool:
        """Whether one more batch keeps the ratio."""
        return self.consumed + self.batch <= self.earned

    def room(self, beside: bool) -> int:
        """Steps that may be received before those already received were learned from."""
        return self.slack + self.ahead * beside

    def may_produce(self, unsettled: int = 0, beside: bool = False) -> bool:
        """Whether more may be received, by a buffer in turns with its learner or `beside` it.

        `unsettled` samples were handed out and are not learned from yet: they count as still owed,
        so that with no slack an actor goes on only after the learner has published what it
        learned.
        """
        owed = self.earned - (self.consumed - unsettled)
        return owed < self.batch + self.room(beside) * self.ratio

    def state(self) -> State:
        """Both counts; the rest follows from the configuration."""
        return {"received": self.received, "consumed": self.consumed}

    def restore(self, state: State) -> None:
        """Owes what the other owed."""
        self.received, self.consumed = state["received"], state["consumed"]
