"""StarCraft II through SMAC, or SMACv2, with the game that the user has installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tianji.core.env import Rendering
from tianji.core.errors import TianJiError
from tianji.core.imports import did_you_mean
from tianji.core.schema import Arrays, Field
from tianji.envs.agents import AgentsLoop, GameOutcome, Wanted, agents_spec, made

INSTALL = """\
To install it (Linux):
  1. the game: download SC2.4.10.zip from https://github.com/Blizzard/s2client-proto#downloads,
     unpack it, and set SC2PATH to its folder StarCraftII
  2. the maps: unpack SMAC_Maps.zip from https://github.com/oxwhirl/smac/releases into
     $SC2PATH/Maps
  3. pip install git+https://github.com/oxwhirl/smac.git   (smac on PyPI is another program)
     pip install git+https://github.com/oxwhirl/smacv2.git (for maps of SMACv2)
Without StarCraft II, environment = dict(type='SMAXEnv', map_name='3m') plays a similar game."""

OURS = {
    "continuing_episode": "write time_limit_terminal, which says what a time limit means",
    "seed": "it follows from the seed of the environments",
}
NO_OP = 0  # all that the dead can do, and only they


def make_smac(
    wanted: Wanted,
    map_name: str,
    difficulty: str | int = "7",
    capability_config: Mapping[str, Any] | None = None,
    time_limit_terminal: bool = True,
    **kwargs: Any,
) -> AgentsLoop:
    """StarCraft II on `map_name`; with a `capability_config` through SMACv2.

    All other keys go to SMAC's `StarCraft2Env`, as `step_mul=8` or `reward_scale_rate=20`.
    """
    name = f"StarCraft2Env {map_name}"
    for key, instead in OURS.items():
        if key in kwargs:
            raise TianJiError(f"{name}: leave {key} out: {instead}")
    if wanted.rendering is not Rendering.NONE:
        raise TianJiError(f"{name} has no picture: replays are kept with replay_dir='...'")
    kwargs |= {"map_name": map_name, "difficulty": str(difficulty), "continuing_episode": True}
    v2 = capability_config is not None
    if capability_config is not None:
        kwargs["capability_config"] = dict(capability_config)
    cls = _game_class(name, v2)
    return AgentsLoop(
        name,
        [
            SmacGame(name, map_name, lambda seed: cls(seed=seed, **kwargs))
            for _ in range(wanted.n_envs)
        ],
        max_step=wanted.max_step,
        time_limit_terminal=time_limit_terminal,
        can_win=True,
    )


class SmacGame:
    """A `Game` over SMAC's own interface.

    A seed can only be given where the game is made, so `reset` with a seed makes it anew. The
    program itself starts with the first episode.
    """

    def __init__(self, name: str, map_name: str, make: Callable[[int | None], Any]) -> None:
        self._name, self._map, self._make = name, map_name, make
        self._env = self._made(None)
        info = self._env.get_env_info()
        self.spec = agents_spec(
            [f"ally_{i}" for i in range(info["n_agents"])],
            Field("obs", "float32", (int(info["obs_shape"]),)),
            int(info["state_shape"]),
            n_actions=int(info["n_actions"]),
            max_episode_steps=int(info["episode_limit"]),
        )

    def reset(self, rows: Arrays, seed: int | None = None) -> None:
        """Starts an episode, and the game if need be."""
        if seed is not None:
            self._env.close()
            self._env = self._made(seed)
        try:
            self._env.reset()  # SMACv2's returns nothing
        except Exception as error:
            if type(error).__name__ in ("SC2LaunchError", "FileNotFoundError"):
                raise TianJiError(
                    f"{self._name}: StarCraft II did not start: {error}\n{INSTALL}"
                ) from error
            raise
        self._show(rows)

    def step(self, action: npt.NDArray[Any], rows: Arrays) -> GameOutcome:
        """Applies one order for each ally."""
        reward, over, info = self._env.step(action.tolist())
        if over and "battle_won" not in info:  # a protocol error: the game was started again
            return GameOutcome(0.0, False, False, lost=True)
        self._show(rows)
        cut = bool(over and info.get("episode_limit", False))
        return GameOutcome(float(reward), bool(over) and not cut, cut, won=bool(info["battle_won"]))

    def render(self) -> Any:
        """None: the game writes replays instead."""
        return None

    def close(self) -> None:
        """Ends the game."""
        self._env.close()

    def _show(self, rows: Arrays) -> None:
        rows["obs"][...] = self._env.get_obs()
        rows["state"][...] = self._env.get_state()
        rows["mask"][...] = np.asarray(self._env.get_avail_actions(), np.bool_)
        rows["alive"][...] = ~rows["mask"][:, NO_OP]

    def _made(self, seed: int | None) -> Any:
        try:
            return made(self._name, lambda: self._make(seed))
        except KeyError as error:
            near = did_you_mean(self._map, _maps(), n=3)
            raise TianJiError(
                f"SMAC has no map {self._map!r}{near or f' (it looked for {error})'}"
            ) from error


def _game_class(name: str, v2: bool) -> Any:
    module, cls = ("smac.env", "StarCraft2Env")
    if v2:
        module, cls = "smacv2.env.starcraft2.wrapper", "StarCraftCapabilityEnvWrapper"
    try:
        found = vars(importlib.import_module(module)).get(cls)
    except ImportError as error:
        raise TianJiError(
            f"{name} needs SMAC, which is not installed: {error}\n{INSTALL}"
        ) from error
    if found is None:
        raise TianJiError(f"{name}: {module} is another program than SMAC\n{INSTALL}")
    return found


def _maps() -> list[str]:
    """All maps that are known, of either version."""
    names: list[str] = []
    for package in ("smac", "smacv2"):
        try:
            maps = importlib.import_module(f"{package}.env.starcraft2.maps.smac_maps")
            names += maps.get_smac_map_registry()
        except ImportError:
            continue
    return names
