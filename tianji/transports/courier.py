"""Carries messages between the rings of two hosts, beside the roles and without their help.

What is carried, and how far it has come, the routes know (`routes.py`); a courier gives them their
turns and knows which of its peers are there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from tianji.core.errors import TianJiError
from tianji.transports.routes import Route
from tianji.transports.wire import Event, Happening, Note, Wire, Word

BEAT_SECONDS = 1.0  # from one sign of life to the next, where nothing else is sent


class Courier:
    """Gives every route its turns, and keeps the peers informed that this process lives.

    `routes` are found by the number of their channel and a peer; a route may stand there more than
    once. Of a peer that is `replaceable` the channels stay open when it is lost. Words about a
    process that comes go to `on_newcomer`.
    """

    def __init__(
        self,
        wire: Wire,
        routes: Mapping[tuple[int, int], Route],
        peers: Iterable[int],
        beside: Iterable[Route] = (),
        clock: Callable[[], float] = time.monotonic,
        replaceable: Iterable[int] = (),
        on_newcomer: Callable[[Note], None] = lambda _: None,
    ) -> None:
        self._wire = wire
        self._routes = routes
        self._moving = list(dict.fromkeys(routes.values()))
        self._all = [*self._moving, *beside]
        self._clock = clock
        self._replaceable = set(replaceable)
        self._on_newcomer = on_newcomer
        now = clock()
        self.heard_at = dict.fromkeys(peers, now)  # when each peer was last heard of
        self.left: dict[int, int] = {}  # peers that have said that they go, with their status
        self.lost: set[int] = set()  # peers that have gone without a word
        self._noticed: dict[int, float] = {}  # peers that are silent, and since when that is known
        self._hearers: set[int] = set()  # peers that have heard that this process goes
        self._errands: deque[Callable[[], None]] = deque()  # for the thread that gives the turns
        self._beat_at = now

    def has_sent(self, patience_seconds: float) -> bool:
        """Whether all was sent to those who were heard of lately."""
        owed = {peer for route in self._moving if (peer := route.owes) is not None}
        return all(self.silence(peer) > patience_seconds for peer in owed)

    def was_heard(self, patience_seconds: float) -> bool:
        """Whether all who were heard of lately have heard that this process goes."""
        others = self.heard_at.keys() - self._hearers - self.lost - self.left.keys()
        return all(self.silence(peer) > patience_seconds for peer in others)

    def turn(self) -> bool:
        """Moves what can be moved; False if there was nothing."""
        moved = False
        while self._errands:
            self._errands.popleft()()
        for event in self._wire.poll():
            moved = True
            self._happened(event)
        for route in self._moving:
            moved |= route.look(self._wire)
        self._beat()
        return moved

    def leave(self, status: int) -> None:
        """Tells every peer that this process goes; go on with the turns until it `was_heard`."""
        for peer in self.heard_at.keys() - self.lost - self.left.keys():
            self._wire.send(peer, Note(Word.LEFT, number=status))

    def give_up(self, peer: int) -> None:
        """Treats a peer that does not answer any more as lost; any thread may call this."""
        self.lost.add(peer)
        self.run(lambda: self._wire.forget(peer))

    def run(self, errand: Callable[[], None]) -> None:
        """Has this done before the next turn, between two of them; any thread may call this."""
        self._errands.append(errand)

    def say(self, peer: int, note: Note) -> None:
        """Sends a word that is about no channel; any thread may call this."""
        self.run(lambda: self._wire.send(peer, note))

    def welcome(
        self, peer: int, routes: Mapping[tuple[int, int], Route], beside: Iterable[Route]
    ) -> None:
        """A new peer has come in the place of one that was lost; an errand may call this."""
        self._routes = routes
        self._moving = list(dict.fromkeys(routes.values()))
        self._all = [*self._moving, *beside]
        self._replaceable.add(peer)
        self.heard_at[peer] = self._clock()

    def silence(self, peer: int) -> float:
        """Seconds since a peer was last heard of."""
        return self._clock() - self.heard_at[peer]

    def is_silent(self, peer: int, seconds: float) -> bool:
        """Whether a peer was not heard of for so long, and for two beats after that was noticed.

        A process that was stopped itself finds all others silent when it goes on.
        """
        if self.silence(peer) <= seconds:
            self._noticed.pop(peer, None)
            return False
        now = self._clock()
        return now - self._noticed.setdefault(peer, now) > 2 * BEAT_SECONDS

    def close_for_good(self, peer: int) -> None:
        """Nobody comes in the place of a peer that is lost, or will be."""
        self._replaceable.discard(peer)
        if peer in self.lost or self.left.get(peer):
            self._close(peer)

    def _happened(self, event: Event) -> None:
        if event.what is Happening.LOST:
            if event.peer not in self.left:
                self.lost.add(event.peer)
            self._close(event.peer)
            return
        if event.what is not Happening.SENT:
            self.heard_at[event.peer] = self._clock()
        match event.note.word:
            case Word.LEFT:
                self._part(event.peer, event.note.number)
            case Word.HEARD:
                self._hearers.add(event.peer)
            case Word.BEAT:
                pass
            case Word.GONE:
                self.close_for_good(event.note.number)
            case Word.JOIN | Word.GUEST:
                self._on_newcomer(event.note)
            case _:
                end = self._routes.get((event.note.channel, event.peer))
                if end is None:
                    raise TianJiError(
                        f"rank {event.peer} tells of channel {event.note.channel}, which it has "
                        "no end of: start the same version with the same files on every machine"
                    )
                end.happened(self._wire, event)

    def _part(self, peer: int, status: int) -> None:
        """A peer goes, and does so when it hears that this was heard.

        One that has failed has closed nothing before, no more than one that was killed.
        """
        self.left[peer] = status
        self._wire.send(peer, Note(Word.HEARD))
        if status:
            self._close(peer)
        else:
            for route in self._all:
                route.left(peer)

    def _close(self, peer: int) -> None:
        """Closes what a lost peer had open, for as long as nobody has come in its place."""
        for route in self._all:
            if peer in self._replaceable:
                route.away(peer)
            else:
                route.lost(peer)

    def _beat(self) -> None:
        now = self._clock()
        if now - self._beat_at < BEAT_SECONDS:
            return
        self._beat_at = now
        for peer in self.heard_at:
            if peer not in self.lost and peer not in self.left:
                self._wire.send(peer, Note(Word.BEAT))
