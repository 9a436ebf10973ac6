"""JaxMARL's multi-agent particle environments, with the names and lengths of mpe2's."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from tianji.core.env import EnvSpec
from tianji.core.schema import Field
from tianji.envs.agents import Sharing, Teams, Wanted, agents_spec, made, padded, teams_of
from tianji.envs.jax_games import JaxEnv, load_jax


def make_jax_mpe(
    wanted: Wanted,
    scenario: str,
    *,
    max_cycles: int,
    continuous_actions: bool,
    teams: Teams | None,
    reward: Sharing,
    time_limit_terminal: bool,
    kwargs: dict[str, Any],
) -> JaxEnv:
    """The environments of `scenario`, as mpe2 calls it; `kwargs` go to JaxMARL's class."""
    name = f"MPE {scenario} (JaxMARL)"
    jaxmarl = load_jax(name, "smax")
    action_type = "Continuous" if continuous_actions else "Discrete"
    # JaxMARL ends an episode one step after `max_steps`.
    world = made(
        name,
        lambda: jaxmarl.make(
            f"MPE_{scenario}", action_type=action_type, max_steps=max_cycles - 1, **kwargs
        ),
    )
    return JaxEnv(
        name,
        ParticleGame(name, world, teams, max_cycles),
        wanted.n_envs,
        max_step=wanted.max_step,
        time_limit_terminal=time_limit_terminal,
        sharing=reward,
    )


class ParticleGame:
    """A `JaxGame` over one scenario; agents that see or do less than others are padded."""

    def __init__(self, name: str, world: Any, teams: Teams | None, max_cycles: int) -> None:
        numbers: Any = importlib.import_module("jax.numpy")
        self._world, self._numbers = world, numbers
        self._agents = agents = list(world.agents)
        self._sizes = [int(world.observation_spaces[agent].shape[0]) for agent in agents]
        spaces = [world.action_spaces[agent] for agent in agents]
        self._discrete = hasattr(spaces[0], "n")
        self._own = [int(s.n if self._discrete else s.shape[0]) for s in spaces]
        n, shape = max(self._own), (len(agents), max(self._own))
        self._mask = np.arange(n) < np.array(self._own)[:, None]  # [A, n] what is not padding
        bounds = None
        if not self._discrete:  # from 0 to 1; what is padded from -1 to 1
            bounds = np.where(self._mask, 0.0, -1.0), np.ones(shape)
        self.spec: EnvSpec = agents_spec(
            agents,
            Field("obs", "float32", (max(self._sizes),)),
            sum(self._sizes),
            n_actions=n,
            bounds=bounds,
            teams=teams_of(name, agents, teams),
            own_inputs=padded(self._sizes),
            own_actions=padded(self._own),
            max_episode_steps=max_cycles,
        )

    def reset(self, key: Any) -> tuple[Any, Any]:
        """Starts an episode."""
        obs, state = self._world.reset(key)
        return self._seen(obs), state

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, dict[str, Any]]:
        """One step of the world, which never begins another by itself."""
        moves = {agent: self._move(a, action[a]) for a, agent in enumerate(self._agents)}
        obs, state, rewards, dones, _ = self._world.step_env(key, state, moves)
        numbers, over = self._numbers, dones["__all__"]
        never = numbers.zeros_like(over)
        reward = numbers.stack([rewards[agent] for agent in self._agents])
        outcome = {
            "reward": reward.astype(numbers.float32),
            "over": never,
            "cut": over,
            "won": never,
        }
        return self._seen(obs), state, outcome

    def _move(self, a: int, action: Any) -> Any:
        if self._discrete:
            return action
        return self._numbers.clip(action[: self._own[a]], 0.0, 1.0)

    def _seen(self, obs: Any) -> Any:
        numbers, n = self._numbers, max(self._sizes)
        own = [obs[agent] for agent in self._agents]
        seen = {
            "obs": numbers.stack(
                [
                    numbers.pad(each, (0, n - size))
                    for each, size in zip(own, self._sizes, strict=True)
                ]
            ),
            "state": numbers.concatenate(own),
            "alive": numbers.ones(len(own), bool),
        }
        return {**seen, "mask": numbers.asarray(self._mask)} if self._discrete else seen
