"""TianJi: distributed reinforcement-learning training in which no role waits for another."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tianji.algorithms.dqn import DQN as DQN
    from tianji.algorithms.ppo import PPO as PPO
    from tianji.config import key as key
    from tianji.core.algorithm import Algorithm as Algorithm
    from tianji.core.algorithm import Policy as Policy
    from tianji.core.algorithm import PolicyGraph as PolicyGraph
    from tianji.core.algorithm import Task as Task
    from tianji.core.algorithm import Weights as Weights
    from tianji.core.channel import Inbox as Inbox
    from tianji.core.channel import Outbox as Outbox
    from tianji.core.env import BaseEnv as BaseEnv
    from tianji.core.env import Env as Env
    from tianji.core.env import EnvSpec as EnvSpec
    from tianji.core.env import Step as Step
    from tianji.core.errors import TianJiError as TianJiError
    from tianji.core.lazy import torch as torch
    from tianji.core.schema import Arrays as Arrays
    from tianji.core.schema import Field as Field
    from tianji.core.schema import Schema as Schema
    from tianji.core.state import State as State
    from tianji.core.state import random_state as random_state
    from tianji.core.state import restore_random as restore_random
    from tianji.core.store import Amount as Amount
    from tianji.core.store import Sampling as Sampling
    from tianji.core.store import Store as Store
    from tianji.core.store import trajectory_schema as trajectory_schema
    from tianji.models.export import exported as exported
    from tianji.models.export import traced as traced
    from tianji.models.flat import FlatParameters as FlatParameters
    from tianji.models.layout import Network as Network
    from tianji.models.layout import network_of as network_of
    from tianji.models.optimisers import Adam as Adam
    from tianji.roles.evaluation import Evaluation, Playable
    from tianji.runs.outcome import Report as Report
    from tianji.runs.trained import Trained as Trained
    from tianji.stores.prioritised import Prioritised as Prioritised
    from tianji.stores.replay import Replay as Replay
    from tianji.stores.rollouts import Rollouts as Rollouts
    from tianji.stores.sequences import Sequences as Sequences
    from tianji.strategy.plan.plan_file import Plan as Plan
    from tianji.tools.export import Exported
    from tianji.transports.shm import ShmTransport as ShmTransport

__version__ = "0.3.0"

HOMES = {
    "tianji.algorithms.dqn": ("DQN",),
    "tianji.algorithms.ppo": ("PPO",),
    "tianji.config": ("key",),
    "tianji.core.algorithm": ("Algorithm", "Policy", "PolicyGraph", "Task", "Weights"),
    "tianji.core.channel": ("Inbox", "Outbox"),
    "tianji.core.env": ("BaseEnv", "Env", "EnvSpec", "Step"),
    "tianji.core.errors": ("TianJiError",),
    "tianji.core.lazy": ("torch",),
    "tianji.core.schema": ("Arrays", "Field", "Schema"),
    "tianji.core.state": ("State", "random_state", "restore_random"),
    "tianji.core.store": ("Amount", "Sampling", "Store", "trajectory_schema"),
    "tianji.models.export": ("exported", "traced"),
    "tianji.models.flat": ("FlatParameters",),
    "tianji.models.layout": ("Network", "network_of"),
    "tianji.models.optimisers": ("Adam",),
    "tianji.runs.outcome": ("Report",),
    "tianji.runs.trained": ("Trained",),
    "tianji.stores.prioritised": ("Prioritised",),
    "tianji.stores.replay": ("Replay",),
    "tianji.stores.rollouts": ("Rollouts",),
    "tianji.stores.sequences": ("Sequences",),
    "tianji.strategy.plan.plan_file": ("Plan",),
    "tianji.transports.shm": ("ShmTransport",),
}
"""Where the names of the front door live; each is loaded when it is first used."""

_HOME_OF = {name: module for module, names in HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A name of the front door, at its first use."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tianji' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def train(
    config: str | Path,
    *overrides: str,
    engine: str | None = None,
    run_dir: str | Path | None = None,
    quiet: bool = True,
    dashboard: int | None = None,
    started_at: float | None = None,
    plan: str | Path | None = None,
    **settings: Any,
) -> Report:
    """Trains what a configuration file describes, as `tianji train` does; prints no summary.

    What the file says can be overridden in the words of the command line, of the file or of
    `--set`, and all of them are checked alike:

        tianji.train("my_job.py", seed=2, max_seconds=60)
        tianji.train("my_job.py", hyp=dict(lr=0.001), exp=dict(train_steps=10_000))
        tianji.train("my_job.py", "hyp.lr=0.001", **{"actor_cfg.num": 2})

    A `run_dir` that holds an unfinished run of the same configuration is gone on with. `plan` is a
    file that `tianji plan` wrote, or "auto" to make one first (at most 20 s). `dashboard` is the
    port of a live page on this machine. `started_at` is the moment of `time.monotonic` that
    times are counted from, now unless given.
    """
    import time
    from pathlib import Path

    from tianji.config import load as load_config
    from tianji.config.keywords import as_overrides
    from tianji.core import terminal
    from tianji.runs import launch

    given = [*overrides, *as_overrides(settings)]
    folder = None if run_dir is None else Path(run_dir)
    began = time.monotonic()
    started_at = began if started_at is None else started_at
    chosen, seconds = None, 0.0
    if plan is not None:
        from tianji.runs import start
        from tianji.strategy.probe import plan_for_run

        start.refuse(load_config(config, given), engine)  # before anything is measured
        measures = plan_for_run.is_made_now(plan, folder)
        chosen = plan_for_run.for_run(plan, config, given, folder, engine, quiet=quiet)
        seconds = time.monotonic() - began if measures else 0.0
        given += as_overrides(chosen.overrides)
    loaded = load_config(config, given)
    for notice in loaded.notices:
        terminal.say("note", notice)
    asked = launch.TrainRequest(
        engine, folder, quiet, started_at, dashboard, plan=chosen, planning_seconds=seconds
    )
    return launch.train(loaded, asked)


def resume(
    run: str | Path,
    *overrides: str,
    engine: str | None = None,
    quiet: bool = True,
    dashboard: int | None = None,
    started_at: float | None = None,
    trust: bool = False,
    **settings: Any,
) -> Report:
    """Goes on with a run where its newest checkpoint was taken, as `tianji resume` does.

    It may be told anew when it ends: `tianji.resume("runs/...", max_seconds=600)`. Its `engine` is
    the one it was trained with, unless given. `trust` is as of `load`.
    """
    from pathlib import Path

    from tianji.config.keywords import as_overrides
    from tianji.runs import launch, resume

    folder = Path(run)
    changes = [*overrides, *as_overrides(settings, "resume")]
    config, before = resume.reopen(folder, changes, trust)
    asked = launch.TrainRequest(engine or before, folder, quiet, started_at, dashboard, extend=True)
    return launch.train(config, asked)


def load(
    run: str | Path, which: Literal["final", "best"] = "final", trust: bool = False
) -> Trained:
    """The policy that a run ended with: `tianji.load("runs/...").act(observation)`.

    `run` is a run's folder, one of its checkpoints or a file of weights; `which="best"` takes the
    policy that played best. Classes of your own that its config.json names are imported if you
    recorded it here; those of a run that came from elsewhere only with `trust`.
    """
    from tianji.runs import trained

    return trained.load(run, which, trust)


def plan(
    config: str | Path,
    *overrides: str,
    cores: int | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Plan:
    """Measures a job's roles for at most 20 s and splits the cores among them: `tianji plan`.

    `out` is a file to write it to; `tianji.train(config, plan=out)` follows it.
    """
    from pathlib import Path

    from tianji.config.keywords import as_overrides
    from tianji.machine.resources import usable_here
    from tianji.strategy.plan import plan_file
    from tianji.strategy.plan.solver import PlanRequest
    from tianji.strategy.probe import planner

    n_cores = usable_here() if cores is None else cores
    given = [*overrides, *as_overrides(settings, "plan")]
    loaded, profile = planner.measure(config, given, n_cores)
    found = planner.make(loaded, profile, PlanRequest(cores=n_cores)).plan
    if out is not None:
        plan_file.write(found, Path(out))
    return found


def evaluate(run: str | Path | Playable, episodes: int = 20, seed: int = 0) -> Evaluation:
    """Plays whole games without exploration; the same seed gives the same games.

    `run` is what `load` takes, or the policy that it returned.
    """
    from pathlib import Path

    from tianji.roles import evaluation

    trained = load(run) if isinstance(run, str | Path) else run
    return evaluation.evaluate(trained, episodes, seed)


def report(runs: str | Path | Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Writes a page about one or more runs, as `tianji report` does; returns where it lies."""
    from pathlib import Path

    from tianji.observe.report import build

    return build([runs] if isinstance(runs, str | Path) else runs, out)


def export(run: str | Path, out: str | Path | None = None, trust: bool = False) -> Exported:
    """Writes a trained policy as an ONNX file, as `tianji export` does; `trust` is as of `load`."""
    from tianji.tools.export import onnx

    return onnx(run, out, trust)


__all__ = [
    "__version__",
    *("evaluate", "export", "load", "plan", "report", "resume", "train"),
    *_HOME_OF,
]
