"""SMAX, JaxMARL's battles in the manner of StarCraft; its win rates are not those of SMAC."""

from __future__ import annotations

import importlib
from typing import Any

from tianji.core.env import EnvSpec, Rendering
from tianji.core.errors import TianJiError
from tianji.core.imports import did_you_mean
from tianji.core.schema import Field
from tianji.envs.agents import Wanted, agents_spec, made
from tianji.envs.jax_games import JaxEnv, load_jax


def make_smax(
    wanted: Wanted, map_name: str, time_limit_terminal: bool = True, **kwargs: Any
) -> JaxEnv:
    """Battles on `map_name` against JaxMARL's scripted enemy.

    All other keys go to `HeuristicEnemySMAX`: see_enemy_actions, walls_cause_death, attack_mode,
    enemy_shoots, max_steps (an episode has one more), and so on.
    """
    name = f"SMAX {map_name}"
    if wanted.rendering is not Rendering.NONE:
        raise TianJiError(f"{name} cannot be shown: it draws no pictures while it runs")
    jaxmarl = load_jax(name, "smax")
    maps = importlib.import_module("jaxmarl.environments.smax.smax_env").MAP_NAME_TO_SCENARIO
    if map_name not in maps:
        near = did_you_mean(map_name, maps, n=3)
        raise TianJiError(f"SMAX has no map {map_name!r}{near or f': it has {[*maps]}'}")
    if kwargs.get("action_type", "discrete") != "discrete":
        raise TianJiError(
            f"{name}: its continuous actions are not supported: leave action_type out"
        )
    scenario = maps[map_name]
    battle = made(name, lambda: jaxmarl.make("HeuristicEnemySMAX", scenario=scenario, **kwargs))
    return JaxEnv(
        name,
        SmaxGame(battle),
        wanted.n_envs,
        max_step=wanted.max_step,
        time_limit_terminal=time_limit_terminal,
        can_win=True,
    )


class SmaxGame:
    """A `JaxGame`: the allies, who share one reward, against the scripted enemy."""

    def __init__(self, battle: Any) -> None:
        numbers: Any = importlib.import_module("jax.numpy")
        self._battle, self._numbers = battle, numbers
        self.spec: EnvSpec = agents_spec(
            battle.agents,
            Field("obs", "float32", (int(battle.obs_size),)),
            int(battle.state_size),
            n_actions=int(battle.num_ally_actions),
            max_episode_steps=int(battle.max_steps) + 1,
        )

    def reset(self, key: Any) -> tuple[Any, Any]:
        """Starts a battle."""
        obs, state = self._battle.reset(key)
        return self._seen(obs, state), state

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, dict[str, Any]]:
        """One step of the battle, which never begins another by itself."""
        agents = self._battle.agents
        orders = {agent: action[a] for a, agent in enumerate(agents)}
        obs, state, rewards, dones, _ = self._battle.step_env(key, state, orders)
        alive, n_allies = state.state.unit_alive, len(agents)
        left, enemies = alive[:n_allies].any(), alive[n_allies:].any()
        decided = ~left | ~enemies
        outcome = {
            "reward": rewards[agents[0]].astype(self._numbers.float32),
            "over": dones["__all__"] & decided,
            "cut": dones["__all__"] & ~decided,
            "won": left & ~enemies,
        }
        return self._seen(obs, state), state, outcome

    def _seen(self, obs: Any, state: Any) -> Any:
        agents, numbers = self._battle.agents, self._numbers
        options = self._battle.get_avail_actions(state)
        return {
            "obs": numbers.stack([obs[agent] for agent in agents]),
            "mask": numbers.stack([options[agent] for agent in agents]).astype(bool),
            "state": obs["world_state"],
            "alive": state.state.unit_alive[: len(agents)],
        }
