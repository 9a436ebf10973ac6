"""Inference roles: one acts for all actors of a group, who then have environments only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tianji.core.algorithm import Policy, Weights
from tianji.core.channel import Inbox, Outbox
from tianji.core.counts import Count, Vector
from tianji.core.env import BoolArray, Step
from tianji.core.schema import Arrays
from tianji.core.state import State, restore_to, state_of
from tianji.core.tracer import What
from tianji.roles.actor import LARGE
from tianji.roles.env_actor import NO_HALF
from tianji.roles.role import Role
from tianji.roles.split_actor import joined, joined_step
from tianji.roles.trajectory import TrajectoryWriter

Asked = tuple[Policy, Arrays, BoolArray]
"""A policy, and what it is to act on."""

SEEN = ("reward", "terminated", "truncated", "valid", "first")


class Inference(Role):
    """Acts in whatever environments have moved, and writes the trajectories of their actors.

    Every actor has a seat here, with a policy of its own: what that remembers, how it explores and
    the frames that it stacks are those of the actor. Trajectories and weights are as an `Actor`'s.
    """

    def __init__(
        self,
        name: str,
        seats: Sequence[Seat],
        weights: Inbox,
        counts: Vector | None = None,
        look_ahead: Callable[[list[Asked]], None] | None = None,  # one pass for several policies
    ) -> None:
        super().__init__(name, counts)
        self._look_ahead = look_ahead
        self.seats = seats
        self.weights = weights
        self.version = -1  # nothing received yet
        self._large = False  # weights that take longer to load than a step

    def step(self) -> bool:
        """Takes what has come, then acts once wherever somebody waits for it."""
        if self.weights.closed:
            return self._finish()
        self.tracer.begin()
        moved = [self._receive(seat) for seat in self.seats]
        if not self._large or not all(seat.trajectory.is_open for seat in self.seats):
            self.take_weights()
        begun = [seat for seat in self.seats if seat.begin(self.version)]
        if begun:  # room that was made after an update: its weights were published before
            self.take_weights()
            for seat in begun:
                seat.begin_with(self.version)
        self.tracer.begin()
        acted = [seat for seat in self.seats if seat.asked]
        if self._look_ahead is not None and acted:
            self._look_ahead([each for seat in acted for each in seat.asked])
        for seat in acted:
            seat.act(self.version)
        self._count()
        return any(moved) or bool(begun or acted)

    def waits_for(self) -> Count:
        """Weights or room, where that is what all seats wait for; else the environments."""
        if all(seat.lacks(self.version) for seat in self.seats):
            return Count.WAITED_WEIGHTS
        is_held = all(seat.is_between for seat in self.seats)
        return Count.WAITED_ROOM if is_held else Count.WAITED_STEPS

    def take_weights(self) -> None:
        """A newer model, if one has come; a large one only where a trajectory begins."""
        if (message := self.weights.take()) is not None:
            weights = message.arrays["weights"]
            self._large = weights.size > LARGE
            self.tracer.begin()
            for seat in self.seats:
                seat.load(weights, message.version)
            self.version = self.counts[Count.VERSION] = message.version
            self.counts[Count.WEIGHTS_TAKEN] += 1
            self.tracer.received(What.WEIGHTS, message)

    def _receive(self, seat: Seat) -> bool:
        """Takes all that has come, and sends what has become full; False where nothing came."""
        moved = seat.call()
        while seat.receive():
            moved = True
            if seat.is_full:
                # Counted first, as an `Actor` does: one may be killed before it counts.
                self.counts[Count.PRODUCED] += seat.trajectory.n_valid
                self.counts[Count.PUSHED] += 1
                seat.trajectory.send()
        return moved

    def _count(self) -> None:
        self.counts[Count.REFUSED] = sum(seat.trajectory.refused for seat in self.seats)

    def _finish(self) -> bool:
        for seat in self.seats:
            seat.close()
        self.done = True
        return True

    def state(self) -> State:
        """The policies' schedules and streams; trajectories that are begun are not kept."""
        return {"version": self.version, "seats": [seat.state() for seat in self.seats]}

    def restore(self, state: State) -> None:
        """Goes on with new trajectories: every actor says anew what it sees."""
        self.version = state["version"]
        for seat, saved in zip(self.seats, state["seats"], strict=True):
            seat.restore(saved)

    def rejoin(self, version: int) -> None:
        """As a synchronous actor, each owes all that this version has to come."""
        self.version = -1
        for seat in self.seats:
            seat.owe(version)

    def take_over(self, streams: Sequence[int]) -> None:
        """Goes on in the place of one that was lost, whose counts this one has.

        What each actor has said last was of these `streams`; -1 where it has said nothing.
        """
        for seat, stream in zip(self.seats, streams, strict=True):
            seat.take_over(stream)


class Seat:
    """One actor as an inference role sees it: its policies, and the trajectory that they fill."""

    def __init__(
        self,
        steps: Inbox,
        actions: Outbox,
        trajectories: Outbox,
        policies: Sequence[Policy],  # one for each half of its environments
        length: int,
        per_version: int | None = None,  # synchronous: as many trajectories per version, no more
    ) -> None:
        self.trajectory = TrajectoryWriter(trajectories)
        self._steps, self._actions = steps, actions
        self._halves = [_Half(policy) for policy in policies]
        self._stream = -1
        self._calls = False  # the actor is to begin anew, and was not told yet
        self._length, self._per_version = length, per_version

    @property
    def policies(self) -> list[Policy]:
        """One for each half of the actor's environments."""
        return [half.policy for half in self._halves]

    def load(self, weights: Weights, version: int) -> None:
        """Copies the weights that a learner published."""
        for half in self._halves:
            half.policy.load(weights, version)

    def receive(self) -> bool:
        """Keeps the next step that has come; False where none has."""
        if (message := self._steps.take()) is None:
            return False
        arrays = {name: np.array(array) for name, array in message.arrays.items()}
        self._steps.free()
        self._keep(arrays)
        return True

    def _keep(self, arrays: Arrays) -> None:
        if (stream := int(arrays["stream"])) != self._stream:
            self._stream, self._calls = stream, False
            self.trajectory.give_up()
            for each in self._halves:
                each.begin()
        half, step = self._halves[int(arrays["half"])], _step_of(arrays)
        if half.decision is not None:
            assert half.made is None, "halves move in turns"
            half.made, half.decision = (half.decision, step), None
        elif not half.is_new:
            return  # what came of actions before a resume, or of another's that was lost
        half.seen, half.is_new = (step.obs, step.first), False
        made = [each.made for each in self._halves if each.made is not None]
        if len(made) == len(self._halves):
            self._add(joined([decision for decision, _ in made]), joined_step([s for _, s in made]))

    def _add(self, decision: Arrays, step: Step) -> None:
        """A row that every half has made."""
        for half in self._halves:
            half.made = None
        self.trajectory.add(decision, step)

    @property
    def is_full(self) -> bool:
        """Whether its trajectory is to be sent."""
        return self.trajectory.is_open and self.trajectory.length == self._length

    @property
    def is_between(self) -> bool:
        """Whether it could begin a trajectory, and has not."""
        return not self.trajectory.is_open and all(half.seen is not None for half in self._halves)

    def lacks(self, version: int) -> bool:
        """Whether its next trajectory is to be made with newer weights than these."""
        due = 0 if self._per_version is None else self.trajectory.sent // self._per_version
        return version < due

    def begin(self, version: int) -> bool:
        """Opens the next trajectory, if it may be begun and the channel has room for it."""
        if not self.is_between or self.lacks(version):
            return False
        seen = [half.seen for half in self._halves if half.seen is not None]
        for half in self._halves:
            half.n_decided = 0
        first = np.concatenate([first for _, first in seen])
        return self.trajectory.begin(joined([obs for obs, _ in seen]), first, version)

    def begin_with(self, version: int) -> None:
        """The trajectory that begins is of this version; nothing is owed for earlier ones.

        While an actor was away others stood in for it, or what it sent was given up.
        """
        self.trajectory.version = version
        owed = 0 if self._per_version is None else version * self._per_version
        self.trajectory.sent = max(self.trajectory.sent, owed)

    @property
    def asked(self) -> list[Asked]:
        """What there is to decide, for every half that waits for it."""
        return [(half.policy, *half.seen) for _, half in self._waiting() if half.seen is not None]

    def _waiting(self) -> list[tuple[int, _Half]]:
        """Who is behind comes first: a half is never two rows before the other."""
        if not self.trajectory.is_open:
            return []
        halves = sorted(enumerate(self._halves), key=lambda each: each[1].n_decided)
        return [(i, h) for i, h in halves if h.seen is not None and h.n_decided < self._length]

    def act(self, version: int) -> None:
        """Sends actions for every half that waits for them."""
        for i, half in self._waiting():
            slot = self._actions.slot()
            assert slot is not None, "an actor takes its actions before it sends another step"
            decision = half.decide()
            slot["action"][...] = decision["action"]
            slot["half"][...], slot["stream"][...] = i, self._stream
            self._actions.commit(version)

    def owe(self, version: int) -> None:
        """A synchronous actor has sent what earlier versions had to come, and no more."""
        if self._per_version is not None:
            self.trajectory.sent = version * self._per_version
        self._stream = -1  # nothing of an earlier one is on its way: whatever comes is new
        for half in self._halves:
            half.begin()

    def take_over(self, stream: int) -> None:
        """Waits for a stream after this one, which was another's to act for."""
        if stream < 0:
            return  # the actor has not begun yet
        self._stream, self._calls = stream, True
        for half in self._halves:
            half.is_new = False

    def call(self) -> bool:
        """Has the actor begin anew, where that is due and there is room to say it."""
        if not self._calls or self._actions.in_flight > len(self._halves):
            return False
        slot = self._actions.slot()
        assert slot is not None, "there is room for more"
        slot["half"][...], slot["stream"][...] = NO_HALF, self._stream + 1
        self._actions.commit(-1)
        self._calls = False
        return True

    def close(self) -> None:
        """Ends both streams; what was begun is given up."""
        self.trajectory.close()
        self._actions.close()

    def state(self) -> State:
        """What its policies remember, and how much was sent."""
        policies = [state_of(policy) for policy in self.policies]
        return {"stream": self._stream, "sent": self.trajectory.sent, "policies": policies}

    def restore(self, state: State) -> None:
        """Waits for the actor to say where it begins."""
        self._stream, self.trajectory.sent = state["stream"], state["sent"]
        for half, saved in zip(self._halves, state["policies"], strict=True):
            half.is_new = False
            restore_to(half.policy, saved)


class _Half:
    """The policy of one half of an actor's environments, and what is known of these."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.begin()

    def begin(self) -> None:
        """Nothing is known, nor asked."""
        self.is_new = True
        self.seen: tuple[Arrays, BoolArray] | None = None  # what is to be acted on
        self.decision: Arrays | None = None  # of which nothing has come yet
        self.made: tuple[Arrays, Step] | None = None  # a row, until the other half has made it
        self.n_decided = 0  # in the open trajectory

    def decide(self) -> Arrays:
        """What to do; nothing more is seen until it has been done."""
        assert self.seen is not None
        self.decision = self.policy.act(*self.seen)
        self.seen, self.n_decided = None, self.n_decided + 1
        return self.decision


def _step_of(arrays: Arrays) -> Step:
    """What came over the channel, as an environment returned it, but for games' own points."""
    about = {name: arrays[name] for name in SEEN}
    others = {name: a for name, a in arrays.items() if name not in (*SEEN, "half", "stream")}
    final = {n.removeprefix("final_"): a for n, a in others.items() if n.startswith("final_")}
    obs = {name: array for name, array in others.items() if not name.startswith("final_")}
    return Step(obs=obs, final=final or None, **about)
