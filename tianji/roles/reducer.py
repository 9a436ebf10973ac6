"""The fusion of groups: now and then the mean of their parameters, off everybody's path.

    Learner   every `send_root_interval` updates it pushes its parameters, and learns on
    Reducer   when those of all groups have come it publishes their mean
    Learner   when the mean comes it adds `mean - what it sent`: what it has learned meanwhile stays

Nobody waits. If nothing was learned meanwhile, this is plain averaging. Optimisers keep their
moments. A group that has ended is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tianji.core.channel import Inbox, Outbox
from tianji.core.counts import Count
from tianji.core.tracer import What
from tianji.roles.role import Role


class Reducer(Role):
    """Averages the parameters of the groups."""

    def __init__(
        self,
        name: str,
        parameters: Sequence[Inbox],
        mean: Outbox,
        n_parameters: int,
        max_fusions: int | None = None,
    ) -> None:
        super().__init__(name)
        self.parameters = parameters
        self.mean = mean
        self.gathered = np.zeros((len(parameters), n_parameters), np.float32)
        self.came = np.zeros(len(parameters), bool)  # whose parameters are in `gathered`
        self._max_fusions = max_fusions
        self._closed = False

    @property
    def fusions(self) -> int:
        """Means that were published."""
        return int(self.counts[Count.FUSIONS])

    def step(self) -> bool:
        """Takes what has come, and publishes the mean once it has something of every open group."""
        is_open = [not inbox.closed for inbox in self.parameters]
        if not any(is_open):
            return self._finish()
        if self._closed:
            return self._ignore()
        moved = self._gather()
        if (self.came | ~np.array(is_open)).all() and self.came.sum() > 1:
            self._fuse()
            moved = True
        if sum(is_open) < 2 or self.fusions == self._max_fusions:  # nobody to be averaged with
            self.mean.close()
            self._closed = moved = True
        return moved

    def _gather(self) -> bool:
        moved = False
        for i in np.flatnonzero(~self.came).tolist():
            self.tracer.begin()
            if (message := self.parameters[i].take()) is not None:
                self.gathered[i] = message.arrays["parameters"]
                self.came[i] = moved = True
                self.counts[Count.RECEIVED] += 1
                self.tracer.received(What.PARAMETERS, message, i)
        return moved

    def _ignore(self) -> bool:
        """Takes what a group sent that had not heard of the end; or its channel never ends."""
        return any([inbox.take() is not None for inbox in self.parameters])

    def _fuse(self) -> None:
        self.tracer.begin()
        rows = self.gathered[self.came]
        slot = self.mean.slot()
        assert slot is not None, "a LATEST channel always has room"
        mean = np.mean(rows, axis=0, out=slot["parameters"])
        apart = np.linalg.norm((rows - mean).astype(np.float64), axis=1)
        self.counts[Count.DISTANCE] = np.sqrt(np.mean(apart**2))
        self.counts[Count.FUSIONS] += 1
        self.counts[Count.PUSHED] += 1
        self.mean.commit(self.fusions)
        self.tracer.sent(What.PARAMETERS, self.fusions)
        self.came[:] = False

    def waits_for(self) -> Count:
        """The parameters of the groups."""
        return Count.WAITED_PARAMETERS

    def _finish(self) -> bool:
        self.mean.close()
        self.done = True
        return True
