"""Rollouts with ends anywhere, for the targets that algorithms make of them."""

import numpy as np
from hypothesis import strategies as st


def random_batch(seed, n, length, n_envs, with_final=False):
    """Rollouts with ends anywhere; unless the environment resets at once, a reset follows each."""
    random = np.random.default_rng(seed)
    shape = (n, length, n_envs)
    terminated, truncated = random.random(shape) < 0.2, random.random(shape) < 0.2
    valid = np.ones(shape, bool)
    if not with_final:
        for t in range(1, length):
            valid[:, t] = ~((terminated | truncated)[:, t - 1] & valid[:, t - 1])
    batch = {
        "reward": random.standard_normal(shape).astype(np.float32) * valid,
        "terminated": terminated & valid,
        "truncated": truncated & valid,
        "valid": valid,
    }
    value = random.standard_normal((n, length + 1, n_envs)).astype(np.float32)
    final = random.standard_normal(shape).astype(np.float32) if with_final else None
    return batch, value, final, np.exp(random.standard_normal(shape)).astype(np.float32)


BATCHES = st.builds(
    random_batch,
    st.integers(0, 2**32),
    st.integers(1, 3),
    st.integers(1, 8),
    st.integers(1, 3),
    st.booleans(),
)
