"""The section `parallel_parameters`: who runs how often, and on what."""

# ruff: noqa: RUF009 - `key` makes a dataclasses.field, which is what a default may be

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tianji.config.binder import Names, key
from tianji.config.builtin_algorithms import using

EVALUATION = "exp.eval_step and exp.eval_times say when and how to evaluate"
OWN_CLASS = Names(own=True)


@dataclass(frozen=True)
class FusionExitConfig:
    """When the groups end together."""

    fusion_step: int | None = key(
        None, "fusions of all groups after which training ends", at_least=1
    )
    win_ratio: float | None = key(None, "the same as exp.stop_win_ratio", above=0, at_most=1)


@dataclass(frozen=True)
class GlobalConfig:
    """The run as a whole."""

    use_comm_parallel: bool = key(
        True, "run the roles in processes of their own; False: all in one process"
    )
    group_num: int = key(
        1,
        "groups, each of learner_cfg.num learners, a buffer and actor_cfg.num actors",
        at_least=1,
        at_most=1024,
    )
    replay_ratio: float | Literal["serial", "balanced"] = key(
        "serial",
        "samples consumed per sample produced: `serial` (what serial training would do), "
        "`balanced` (1) or a number",
        above=0,
    )
    transport: str | None = key(
        None,
        "class that carries the messages of engine process; default: shared memory. Engine mpi has "
        "its own",
        names=OWN_CLASS,
    )
    link_seconds: float = key(
        20.0,
        "engine mpi: seconds without a sign of life after which a rank, its machine or the link to "
        "it counts as lost",
        at_least=2,
    )
    restarts: int = key(
        10,
        "times an hour that an actor may be mended, by a new process (engines process and mpi) and "
        "as often by new environments and by discarded episodes, and that a learner or a buffer "
        "may be replaced (engine process); one more ends the run as failed, or in engine mpi "
        "leaves an actor out",
        at_least=0,
    )
    rebalance: bool = key(
        True,
        "while the run goes on, pause actors that the learner has no use for, wake them when it "
        "has, and where cores are free try a thread for the buffer and more of them for the "
        "learner; not for synchronous training, where every actor owes its share",
    )
    use_group_parallel: bool = key(
        True,
        "average the parameters of all groups now and then; False: each group learns by itself",
    )
    save_freq: int | None = key(
        None, "the same as exp.save_freq", aliases=("save_iter",), at_least=1
    )
    exit_val: FusionExitConfig = key(FusionExitConfig(), "when the groups end together")


@dataclass(frozen=True)
class ExitConfig:
    """When a learner ends the run."""

    learn_step: int | None = key(
        None, "updates after which training ends, of each group", at_least=1
    )
    reward: float | None = key(None, "the same as exp.stop_return")
    win_ratio: float | None = key(None, "the same as exp.stop_win_ratio", above=0, at_most=1)


@dataclass(frozen=True)
class LearnerConfig:
    """The learner."""

    num: int = key(
        1,
        "learners in a group; each gets an equal part of every batch, and their gradients are "
        "averaged",
        at_least=1,
        at_most=64,
    )
    cores: int | None = key(None, "CPU cores of each learner; default: what is left", at_least=1)
    send_interval: int = key(1, "updates between two publications of the weights", at_least=1)
    finish_reward: float | None = key(None, "the same as exp.stop_return")
    exit_val: ExitConfig = key(ExitConfig(), "when the learner ends the run")
    device: Literal["cpu", "cuda", "auto"] = key("cpu", "where updates are computed")
    trigger: str | None = key(
        None,
        "class that says when to publish the weights; default: every send_interval",
        names=OWN_CLASS,
    )
    send_root_interval: int = key(
        10, "updates of a group from one fusion with the others to the next", at_least=1
    )
    eval: Any = key(None, "evaluate while training", no_effect=EVALUATION)
    eval_val: Any = key(None, "how to evaluate", no_effect=EVALUATION)


@dataclass(frozen=True)
class ActorConfig:
    """The actors."""

    num: int = key(1, "actors in a group", at_least=1, at_most=4096)
    send_size: int = key(
        16,
        "steps per trajectory, unless the algorithm has its own",
        at_least=1,
        needs={"agent.type": using("send_size")},
    )
    cores: int | None = key(
        None,
        "CPU cores of each actor, and of who acts for them; default: one, shared if need be",
        at_least=1,
    )
    envs: int = key(1, "environments per actor, stepped at once", at_least=1, at_most=65536)
    halves: bool = key(
        True,
        "where environments can be left alone while they move, as Atari games: half of them move "
        "while the policy acts in the others; off: all at once, where a learner needs the cores",
    )
    device: Literal["auto", "cpu", "cuda"] = key(
        "auto",
        "where policies compute; auto: an MLP in numpy, and what needs torch, as a CNN, on the GPU "
        "if there is one",
    )
    inference: bool = key(
        False,
        "actors have environments only, and one inference role of their group acts for them all",
    )
    trigger: str | None = key(
        None, "class that says when to push; default: when a trajectory is full", names=OWN_CLASS
    )


@dataclass(frozen=True)
class GlobalBufferConfig:
    """The store as the paper's release describes it."""

    type: Literal["StepBuffer", "MultiStepBuffer", "EpisodeBuffer"] | None = key(
        None, "kind of store", no_effect="the algorithm says how batches are made of trajectories"
    )
    max_size: Any = key(
        None, "samples kept", no_effect="hyp.buffer_size is the number of samples kept"
    )
    step_limit: Any = key(
        None, "steps per sample", no_effect="the algorithm says how long samples are"
    )
    episode_limit: Any = key(None, "steps per episode", no_effect="exp.max_step limits episodes")


@dataclass(frozen=True)
class BufferConfig:
    """The buffer."""

    cores: int | None = key(
        None,
        "CPU cores of the buffer, then a process of its own; default: it rides with the learner",
        at_least=1,
    )
    slack: int | None = key(
        None,
        "environment steps that production may run ahead of consumption; 0: strictly in turns, one "
        "actor after the other, as serial training; default: none beyond the rings, or one "
        "trajectory per actor, and what the next batch needs, where the buffer has a process or a "
        "thread of its own",
        at_least=0,
    )
    device: Literal["cpu", "cuda"] = key(
        "cpu",
        "where a replay keeps what `obs` shows; cuda: on the GPU of its learner, with whom it must "
        "ride, and in no checkpoint",
    )
    send_size: Any = key(
        None, "batches per message", no_effect="the buffer hands batches over one by one"
    )
    global_buffer: GlobalBufferConfig = key(
        GlobalBufferConfig(), "the store, as the release describes it"
    )


@dataclass(frozen=True)
class ParallelConfig:
    """Who runs how often, and on what."""

    global_cfg: GlobalConfig = key(GlobalConfig(), "the run as a whole")
    learner_cfg: LearnerConfig = key(LearnerConfig(), "the learner")
    actor_cfg: ActorConfig = key(ActorConfig(), "the actors")
    buffer_cfg: BufferConfig = key(BufferConfig(), "the buffer")
