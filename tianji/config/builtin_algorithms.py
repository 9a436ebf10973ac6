"""The built-in algorithms, and the keys outside `hyp` that only some of them use.

A further one needs a line here and a file in `algorithms/`. Its name stands in this room because a
configuration is checked before any algorithm is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping

USES: Mapping[str, tuple[str, ...]] = {
    "ApeX": ("send_size", "dueling", "norm"),
    "DQN": ("send_size", "dueling", "norm"),
    "IMPALA": ("shared", "norm"),
    "IPPO": (),
    "IQL": (),
    "MADDPG": ("send_size",),
    "MAPPO": (),
    "PPO": ("shared", "norm"),
    "PQN": ("dueling", "norm"),
    "QMIX": (),
    "SAC": ("send_size", "norm"),
    "TD3": ("send_size", "norm"),
    "VDN": (),
}
ALGORITHMS = tuple(USES)


def using(key: str) -> tuple[str, ...]:
    """The algorithms that use this key; those of one's own may."""
    return tuple(name for name, keys in USES.items() if key in keys)
