"""The configuration as frozen dataclasses: every key with its type, default, unit and meaning."""

# ruff: noqa: RUF009 - `key` makes a dataclasses.field, which is what a default may be

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tianji.config.binder import OWN, Names, bind, facts_of, key
from tianji.config.builtin_algorithms import ALGORITHMS, using
from tianji.config.environment import EnvironmentConfig
from tianji.config.parallel import ParallelConfig
from tianji.config.release import PRIORITISED, UNRELEASED_AGENTS, UNRELEASED_HEADS
from tianji.config.section import Place, Section, nearest

AGENT_NAMES = Names(ALGORITHMS, lost=UNRELEASED_AGENTS, own=True)
HEADS = {name: f"{name}Head" for name in ALGORITHMS} | {"QMIX": "MixerHead"}
HEAD_NAMES = Names((*HEADS.values(), PRIORITISED), lost=UNRELEASED_HEADS, own=True)
"""The embryo that belongs to each agent."""

NETWORKS = ("MLP", "CNN", "GRU")


@dataclass(frozen=True)
class ExpConfig:
    """When the run ends, what it saves, how it is evaluated, and its seed."""

    train_steps: int = key(
        500_000, "environment steps after which training ends, of all groups together", at_least=1
    )
    episodes: int | None = key(None, "finished episodes after which training ends", at_least=1)
    max_step: int | None = key(
        None, "longest episode, in steps; default: the environment's own limit", at_least=1
    )
    stop_return: float | None = key(
        None,
        "mean return of the last 100 episodes at which training ends; default: the environment's "
        "own threshold, where it names one",
    )
    stop_return_of: Literal["game", "life"] = key(
        "game",
        "whose return that is: `game` (its true points, over all lives) or `life` (what is learned "
        "from, clipped, until a life is lost); both are the same where nothing is clipped",
    )
    stop_win_ratio: float | None = key(
        None,
        "share of the last 100 episodes that are won at which training ends, in games that can be "
        "won; what is reached first ends it, this or the return",
        above=0,
        at_most=1,
    )
    max_seconds: float | None = key(None, "wall-clock seconds after which training ends", above=0)
    seed: int = key(0, "seed of everything random", at_least=0)
    track: tuple[Literal["wandb", "trackio"], ...] = key(
        (), "trackers that get every row of metrics besides the files in the run folder"
    )
    trace_seconds: float | None = key(
        None,
        "how many of the last seconds of a run are recorded for `tianji trace`; None: nothing is",
        above=0,
        at_most=60,
    )
    record: bool = key(
        False, "write down who took what and when, a few bytes a trajectory, for `tianji replay`"
    )
    save_seconds: float | None = key(
        60.0, "seconds from one checkpoint to the next; None: only one at the end", above=0
    )
    save_freq: int | None = key(
        None, "updates from one checkpoint to the next, instead of save_seconds", at_least=1
    )
    save_keep: int = key(3, "checkpoints kept besides the one with the best return", at_least=1)
    save_replay: Literal["auto", "always", "never"] = key(
        "auto",
        "whether checkpoints hold the samples; `auto`: up to 256 MB while training, and at the end "
        "whatever can be written within five seconds",
    )
    keep_episodes: bool = key(
        False, "write every finished episode into `episodes.csv`, as `tianji verify` needs it"
    )
    eval_step: int | None = key(
        None, "environment steps from one evaluation to the next; None: no evaluation", at_least=1
    )
    eval_times: int = key(
        10, "episodes per evaluation", at_least=1, at_most=10_000, needs={"eval_step": ...}
    )


@dataclass(frozen=True)
class ModelConfig:
    """The network."""

    type: str = key(
        "MLP",
        "kind of network: MLP, CNN, GRU (agents that remember: QMIX, VDN, IQL, MAPPO, IPPO), or a "
        "class of your own as `module:Class`",
        names=Names(NETWORKS, own=True),
    )
    c1: int | None = key(
        None,
        "observation size; checked against the environment",
        aliases=("state_dim",),
        at_least=1,
    )
    c2: int | None = key(
        None, "number of actions; checked against the environment", aliases=("act_dim",), at_least=1
    )
    hidden: tuple[int, ...] | None = key(
        None,
        "units of each dense layer; default: (64, 64), of a CNN (512,), of a GRU (64,)",
        at_least=1,
        needs={"type": NETWORKS},
    )
    convs: tuple[tuple[int, ...], ...] | None = key(
        None,
        "(channels, kernel, stride) of each convolution; default: ((32, 8, 4), (64, 4, 2), "
        "(64, 3, 1))",
        needs={"type": ("CNN",)},
    )
    norm: bool | Literal["all"] | None = key(
        None,
        "LayerNorm behind every dense layer but the last; 'all': behind convolutions too; default: "
        "with PQN, all",
        needs={"agent.type": using("norm"), "type": ("MLP", "CNN")},
    )
    dueling: bool | None = key(
        None,
        "separate value and advantage streams (DQN, ApeX, PQN); default: with ApeX",
        needs={"agent.type": using("dueling"), "type": ("MLP", "CNN")},
    )
    shared: bool | None = key(
        None,
        "one network for policy and value; default: of a CNN, not of an MLP",
        needs={"agent.type": using("shared")},
    )
    gru: int = key(
        64, "units of a GRU, behind the dense layers", at_least=1, needs={"type": ("GRU",)}
    )
    act: Literal["relu", "tanh"] = key(
        "relu", "activation between the layers", needs={"type": NETWORKS}
    )
    precision: Literal["auto", "float32", "bfloat16"] = key(
        "auto",
        "what convolutions learn and act in; auto: what is faster here, measured for learning",
        needs={"type": ("CNN",)},
    )
    kwargs: Mapping[str, Any] = key(
        {}, "keys of a class of your own", rest="own", needs={"type": (OWN,)}
    )

    @property
    def shares(self) -> bool:
        """Whether policy and value are one network."""
        return self.type == "CNN" if self.shared is None else self.shared


@dataclass(frozen=True)
class AgentConfig:
    """The algorithm."""

    type: str = key(
        "PPO",
        f"algorithm: {', '.join(ALGORITHMS)}, or a class of your own as `module:Class`; default: "
        "what the embryo says",
        names=AGENT_NAMES,
    )
    embryo: str | None = key(
        None,
        "`dict(type='PPOHead', model=model, hyp=hyp)`: the agent's type and `Head`; its model and "
        "hyp are used",
        names=HEAD_NAMES,
    )
    alg_type: Any = key(None, "name of the algorithm", no_effect="agent.type names the algorithm")
    agent_num: Any = key(
        None, "number of agents", no_effect="the environment says how many there are"
    )

    def check(self) -> str | None:
        """What is wrong, if anything."""
        head = HEADS.get(self.type)
        if head is None or self.embryo is None or self.embryo == head:
            return None
        return f"embryo {self.embryo!r} does not fit agent type {self.type!r}, which wants {head!r}"


@dataclass(frozen=True)
class Config:
    """One experiment. The algorithm's own `Hyp` types `hyp` later: `bind(Hyp, config.hyp)`."""

    name: str  # the file's name without its ending
    folder: str  # the absolute folder of the file; classes of one's own are found there
    environment: EnvironmentConfig
    exp: ExpConfig
    agent: AgentConfig
    model: ModelConfig
    hyp: Section
    parallel: ParallelConfig
    notices: tuple[str, ...] = ()  # one line for each key that was written and has no effect

    @property
    def stop_return(self) -> float | None:
        """The mean return at which training ends, under any of its three names."""
        learner = self.parallel.learner_cfg
        for value in (self.exp.stop_return, learner.finish_reward, learner.exit_val.reward):
            if value is not None:
                return value
        return None

    @property
    def stop_win_ratio(self) -> float | None:
        """The share of won games at which training ends, under any of its three names."""
        exits = self.parallel.learner_cfg.exit_val, self.parallel.global_cfg.exit_val
        for value in (self.exp.stop_win_ratio, *(each.win_ratio for each in exits)):
            if value is not None:
                return value
        return None

    @property
    def save_freq(self) -> int | None:
        """Updates between two checkpoints, under either of its names."""
        own = self.exp.save_freq
        return self.parallel.global_cfg.save_freq if own is None else own

    @property
    def max_updates(self) -> int | None:
        """The number of updates of a group after which training ends, if one was given."""
        return self.parallel.learner_cfg.exit_val.learn_step

    @property
    def n_groups(self) -> int:
        """Groups of learners, a buffer and actors."""
        return self.parallel.global_cfg.group_num

    @property
    def n_learners(self) -> int:
        """Learners in each group."""
        return self.parallel.learner_cfg.num

    @property
    def fuses(self) -> bool:
        """Whether the parameters of several groups are averaged."""
        return self.n_groups > 1 and self.parallel.global_cfg.use_group_parallel

    @property
    def max_fusions(self) -> int | None:
        """The number of fusions after which training ends, if there are any and one was given."""
        return self.parallel.global_cfg.exit_val.fusion_step if self.fuses else None

    def to_json(self) -> dict[str, Any]:
        """The resolved configuration as plain data; `from_json` turns it back."""
        data: dict[str, Any] = _jsonable(self)
        return data


SECTIONS: dict[str, type[Any]] = {
    "environment": EnvironmentConfig,
    "exp": ExpConfig,
    "agent": AgentConfig,
    "model": ModelConfig,
    "parallel": ParallelConfig,
}


def from_json(data: Mapping[str, Any], file: str = "config.json") -> Config:
    """The configuration that `to_json` wrote; `file` is the name that errors give it."""
    place = Place(file)
    return from_section(Section.of(data, place), place)


def from_section(section: Section, place: Place) -> Config:
    """The configuration that one section holds as `to_json` lays it out."""
    known = [field.name for field in dataclasses.fields(Config)]
    for name in section:
        if name not in known:
            raise place.error(f"there is no section {name!r}. {nearest(name, known)}".rstrip())
    for name in ("name", "folder"):
        if not isinstance(section.get(name), str):
            raise place.error(f"{name} must be a string")
    notices = section.get("notices", ())
    if not isinstance(notices, tuple) or not all(isinstance(line, str) for line in notices):
        raise place.error("notices must be a list of strings")
    bound = {name: bind(kind, section.get_section(name), name) for name, kind in SECTIONS.items()}
    return Config(
        name=section["name"],
        folder=section["folder"],
        hyp=section.get_section("hyp"),
        notices=notices,
        **bound,
    )


def _jsonable(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = [field for field in dataclasses.fields(value) if not facts_of(field).no_effect]
        return {field.name: _jsonable(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {name: _jsonable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    return value
