"""Frames are kept once: which of them make up a stack, and how a trajectory knows those before it.

A policy may see the `stack` newest frames of `obs` at once; an environment shows one at a time. At
an episode's first frame the stack is filled by repeating that frame. So a trajectory has two more
fields where `stack` > 1:

    first   bool [T+1, E]           obs[t, e] begins an episode
    before  [stack - 1, E, ...]     the older frames of the stack of row 0, oldest first

No frame of another episode is ever in `before`, for that stack was filled in the same way. It means
nothing where `first[0]` is set.

A policy that remembers returns `memory`, which a trajectory keeps once: [E, ...] as it was before
row 0, and zeros where `first[0]` is set. Then `first` is there as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tianji.core.schema import Arrays, Field

STACKED = "obs"  # the field that is stacked
FIRST, BEFORE, MEMORY = "first", "before", "memory"
TICKET = "ticket"  # in a batch: stands for frames that lie on a GPU


def stacked_shape(stack: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """What a network sees of frames of this shape: [k, H, W], or [k * C, H, W] of [C, H, W]."""
    if stack == 1:
        return shape
    return (stack * shape[0], *shape[1:]) if len(shape) > 2 else (stack, *shape)


def shape_seen(field: Field, stack: int) -> tuple[int, ...]:
    """The shape of an observed field as a network sees it."""
    return stacked_shape(stack, field.shape) if field.name == STACKED else field.shape


def places_of(first: npt.NDArray[np.bool_], stack: int) -> npt.NDArray[np.int64]:
    """Where the frames of every stack lie, oldest first: [..., T+1, E, stack] of [..., T+1, E].

    Place p is frame p of `before` and, from `stack` - 1 on, row p - stack + 1 of `obs`.
    """
    rows = np.arange(first.shape[-2])[:, None] + stack - 1
    begins = np.maximum.accumulate(np.where(first, rows, 0), axis=-2)  # 0: before this trajectory
    places: npt.NDArray[np.int64] = np.maximum(
        rows[..., None] - np.arange(stack - 1, -1, -1), begins[..., None]
    )
    return places


def older(rows: Arrays, t: int) -> npt.NDArray[Any]:
    """The older frames of the stack of row `t`: `before` of a trajectory that begins there."""
    before, obs = rows[BEFORE], rows[STACKED]
    n, n_envs = before.shape[:2]
    place = places_of(rows[FIRST][: t + 1], n + 1)[t, :, :-1].T
    e = np.broadcast_to(np.arange(n_envs), place.shape)
    frames: npt.NDArray[Any] = obs[np.maximum(place - n, 0), e]
    outside = place < n
    frames[outside] = before[place[outside], e[outside]]
    return frames
