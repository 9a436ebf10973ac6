"""Environments of several agents as specs, and trajectories of them that tell where they are."""

from tianji.config.keys import ModelConfig
from tianji.core.algorithm import Task
from tianji.core.env import EnvSpec
from tianji.core.schema import Field

__all__ = ["Field", "agents_env", "seen", "task_of"]


def agents_env(n_agents=3, n_inputs=6, n_actions=5, n_envs=4, n_state=7, **facts):
    """A spec as those of `envs/agents.py`."""
    observations = (
        Field("obs", "float32", (n_agents, n_inputs)),
        Field("mask", "bool", (n_agents, n_actions)),
        Field("state", "float32", (n_state,)),
        Field("alive", "bool", (n_agents,)),
    )
    facts = {"teams": (0,) * n_agents, **facts}
    names = tuple(f"agent_{i}" for i in range(n_agents))
    action = Field("action", "int64", (n_agents,))
    return EnvSpec(observations, action, (n_actions,), n_envs, agents=names, **facts)


def task_of(env, hyp=None, n_actors=1, **model):
    """A task with a small network."""
    return Task(env, ModelConfig(**{"hidden": (8,), **model}), hyp, n_actors)


def seen(env, random, *lead):
    """Observations at random; every agent has one option at least."""
    shown = {}
    for field in env.observations:
        shape = (*lead, *field.shape)
        if field.dtype == "bool":
            shown[field.name] = random.random(shape) < 0.6
        else:
            shown[field.name] = random.standard_normal(shape).astype(field.dtype)
    shown["mask"][..., 0] |= ~shown["mask"].any(-1)
    return shown
