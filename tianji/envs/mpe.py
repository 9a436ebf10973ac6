"""The multi-agent particle environments: mpe2's, or JaxMARL's, which are 30 to 80 times faster."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import Any, Literal

from tianji.core.env import Env, Rendering
from tianji.core.errors import TianJiError
from tianji.core.imports import did_you_mean
from tianji.envs.agents import Sharing, Teams, Wanted, library
from tianji.envs.pettingzoo import make_pettingzoo

VERSIONS = {
    "simple": "simple_v3",
    "simple_adversary": "simple_adversary_v3",
    "simple_crypto": "simple_crypto_v3",
    "simple_push": "simple_push_v3",
    "simple_reference": "simple_reference_v3",
    "simple_speaker_listener": "simple_speaker_listener_v4",
    "simple_spread": "simple_spread_v3",
    "simple_tag": "simple_tag_v3",
    "simple_world_comm": "simple_world_comm_v3",
    "collect_treasure": "collect_treasure_v1",
    "simple_formation": "simple_formation_v1",
    "simple_line": "simple_line_v1",
}
"""The names of the paper's release, and those of mpe2."""

ONLY_MPE2 = ("collect_treasure_v1", "simple_formation_v1", "simple_line_v1")
NEVER_RELEASED = ("predator", "air_fight", "airfight")
OPPONENTS = ("adversary", "leadadversary", "eve")  # how the first team's agents are called
WEIGHED = ("simple_spread_v3", "simple_reference_v3")  # reward each agent for its own part too
LOCAL_RATIO = 0.5  # the share of an agent's own part, in mpe2 and in what is published since


def make_mpe(
    wanted: Wanted,
    scenario_name: str,
    backend: Literal["mpe2", "jax"] = "mpe2",
    max_cycles: int = 25,
    continuous_actions: bool = False,
    teams: Teams | None = None,
    reward: Sharing = "agent",
    time_limit_terminal: bool = False,
    **kwargs: Any,
) -> Env:
    """`scenario_name` is one of `VERSIONS`, with or without its version.

    Episodes last `max_cycles` steps with either backend. Adversaries are a team of their own, the
    first, unless `teams` says otherwise. What is shown is mpe2's, whatever the backend. All other
    keys go to the scenario.
    """
    scenario, name = scenario_of(scenario_name), f"MPE {scenario_name}"
    if scenario in WEIGHED:
        kwargs.setdefault("local_ratio", LOCAL_RATIO)
    if backend == "jax" and wanted.rendering is not Rendering.NONE:
        print(f"note: {name}: JaxMARL draws nothing, so mpe2 plays what is shown", file=sys.stderr)
        backend = "mpe2"
    if backend == "jax":
        from tianji.envs.jax_mpe import make_jax_mpe

        if scenario in ONLY_MPE2:
            raise TianJiError(f"{name} exists in mpe2 only: leave backend out")
        return make_jax_mpe(
            wanted,
            scenario,
            max_cycles=max_cycles,
            continuous_actions=continuous_actions,
            teams=opponents if teams is None else teams,
            reward=reward,
            time_limit_terminal=time_limit_terminal,
            kwargs=kwargs,
        )
    if backend != "mpe2":
        raise TianJiError(f"{name}: backend {backend!r} is neither 'mpe2' nor 'jax'")
    library("mpe2", name, "mpe")
    module = f"mpe2.{scenario}"
    if importlib.util.find_spec(module) is None:
        raise TianJiError(f"{name}: the installed mpe2 has no {scenario}: install a newer one")
    kwargs = {**kwargs, "max_cycles": max_cycles, "continuous_actions": continuous_actions}
    return make_pettingzoo(
        wanted,
        module,
        teams=opponents if teams is None else teams,
        reward=reward,
        time_limit_terminal=time_limit_terminal,
        **kwargs,
    )


def scenario_of(name: str) -> str:
    """The scenario's name in mpe2."""
    if name in VERSIONS.values():
        return name
    if name in VERSIONS:
        return VERSIONS[name]
    if any(name.startswith(each) for each in NEVER_RELEASED):
        raise TianJiError(
            f"scenario {name!r} belongs to the paper, but was never released: write your own as a "
            "parallel environment of PettingZoo, environment = dict(type='PettingZooEnv', ...)"
        )
    near = did_you_mean(name, [*VERSIONS, *VERSIONS.values()], n=3)
    raise TianJiError(f"MPE has no scenario {name!r}{near or f': it has {sorted(VERSIONS)}'}")


def opponents(agents: Sequence[str]) -> dict[str, list[str]]:
    """Adversaries against the others, or all in one team."""
    against = [agent for agent in agents if agent.rpartition("_")[0] in OPPONENTS]
    others = [agent for agent in agents if agent not in against]
    return {"adversaries": against, "others": others} if against and others else {"all": [*agents]}
