"""Level-based foraging: agents that must stand around food together to collect it."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from tianji.core.env import Rendering
from tianji.core.errors import TianJiError
from tianji.core.imports import did_you_mean
from tianji.core.schema import Arrays, Field
from tianji.envs.agents import AgentsLoop, GameOutcome, Sharing, Wanted, agents_spec, library, made


def make_lbf(
    wanted: Wanted,
    name: str,
    reward: Sharing = "agent",
    time_limit_terminal: bool = True,
    **kwargs: Any,
) -> AgentsLoop:
    """`name` is a registered task, such as "Foraging-8x8-2p-1f-v3".

    All other keys go to the task, as `max_episode_steps=50` or `max_num_food=5`. The sum of all
    agents' rewards of a perfect episode is 1.
    """
    library("lbforaging", name, "lbf")
    if name not in gymnasium.registry:
        known = [each for each in gymnasium.registry if each.startswith("Foraging")]
        raise TianJiError(
            f"lbforaging has no task {name!r}{did_you_mean(name, known, n=3) or '.'}\n"
            "Registered are fields of 5x5 to 19x19, 2p to 9p and 1f to 4f, as "
            "'Foraging-8x8-2p-1f-v3', '-coop' after the food, '-2s' for a short sight in front."
        )
    games = []
    for shown in wanted.shown():
        mode = {} if shown is Rendering.NONE else {"render_mode": shown.value}
        games.append(made(name, lambda mode=mode: ForagingGame(name, {**kwargs, **mode})))  # type: ignore[misc]
    return AgentsLoop(
        name,
        games,
        max_step=wanted.max_step,
        time_limit_terminal=time_limit_terminal,
        sharing=reward,
    )


class ForagingGame:
    """A `Game` over one task; its own end tells a collected field and a time limit apart."""

    def __init__(self, name: str, kwargs: dict[str, Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # render modes that it has and does not declare
            env: Any = gymnasium.make(name, disable_env_checker=True, **kwargs)
        self._env = env.unwrapped
        self.metadata = self._env.metadata
        n_agents = len(self._env.action_space)
        agents = [f"player_{i}" for i in range(n_agents)]
        shape = self._env.observation_space[0].shape
        n = int(np.prod(shape))
        self.spec = agents_spec(
            agents,
            Field("obs", "float32", tuple(map(int, shape))),
            n * n_agents,
            n_actions=int(self._env.action_space[0].n),
            max_episode_steps=int(self._env._max_episode_steps),
        )

    def reset(self, rows: Arrays, seed: int | None = None) -> None:
        """Starts an episode."""
        self._show(rows, self._env.reset(seed=seed)[0])

    def step(self, action: npt.NDArray[Any], rows: Arrays) -> GameOutcome:
        """Applies one action for each player; impossible ones do nothing."""
        obs, rewards, over, _, _ = self._env.step(action.tolist())
        self._show(rows, obs)
        collected = not self._env.field.any()
        return GameOutcome(rewards, bool(over and collected), bool(over and not collected))

    def render(self) -> Any:
        """A picture, where it was made with a render mode that gives one."""
        return self._env.render(mode=self._env.render_mode or "human")  # it forgets its own

    def close(self) -> None:
        """Closes the window, if there is one."""
        self._env.close()

    def _show(self, rows: Arrays, obs: Any) -> None:
        rows["obs"][...] = obs
        rows["state"][...] = rows["obs"].ravel()
        rows["mask"][...] = True
        rows["alive"][...] = True
