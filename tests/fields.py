"""Environments and trajectories with one observed array, for tests that need no more."""

import numpy as np

from tianji.core.env import EnvSpec, Step
from tianji.core.store import trajectory_schema


def spec_of(obs, action, n_actions, *rest, **facts):
    """The spec of an environment that shows `obs` alone."""
    return EnvSpec((obs,), action, None if n_actions is None else (n_actions,), *rest, **facts)


def layout_of(obs, action, extra, length, n_envs, same_step=False):
    """The layout of its trajectories."""
    spec = EnvSpec((obs,), action, None, n_envs, same_step=same_step)
    return trajectory_schema(spec, extra, length)


def act(policy, obs, explore=True):
    """What a policy decides in the middle of episodes."""
    return policy.act({"obs": obs}, np.zeros(len(obs), bool), explore)


def step_of(obs, reward, terminated, truncated, valid, final_obs=None):
    """A step of an environment that shows `obs` alone."""
    first = ~valid if final_obs is None else terminated | truncated
    final = None if final_obs is None else {"obs": final_obs}
    return Step({"obs": obs}, reward, terminated, truncated, valid, first, final)


def learned(algorithm, batch):
    """The scalars of one update, as numbers; the batch goes the way that a learner sends it."""
    found = algorithm.learn(algorithm.stage(batch))
    return {name: value if name == "priorities" else float(value) for name, value in found.items()}
