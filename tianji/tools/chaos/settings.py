"""What a chaos test is made of: the run, what is changed about it, and what must hold of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tianji.config import Config, load
from tianji.core.errors import TianJiError
from tianji.engines.supervise import replaced_kinds
from tianji.engines.worker_processes import refuse_platform
from tianji.job.job import Job
from tianji.job.preflight import try_out
from tianji.job.wiring import n_bytes_of
from tianji.roles.role_specs import roles_of
from tianji.tools.chaos.invariants import Bounds
from tianji.tools.chaos.schedule import Fault, Strike, schedule
from tianji.tools.child_run import opened

SAVE_SECONDS = 5.0  # from one checkpoint to the next, at most: a lost learner goes on from there
STEP_SECONDS = 5.0  # after which a step counts as hanging, at most: longer than anybody is stopped
RESTARTS = 1_000  # times an hour that a process may be lost: they are lost on purpose
ENDLESS = {
    "exp.stop_return": "1e9",
    "exp.stop_win_ratio": "None",
    "exp.train_steps": "1_000_000_000_000",
    "exp.episodes": "None",
    "exp.max_seconds": "None",
    "exp.track": "[]",  # nobody wants to see such a run among others
}
UNEVEN = 2.0  # times that samples get older where some actors make that much less than others


@dataclass(frozen=True)
class ChaosSettings:
    """Everything that a chaos test is told, and what follows from it."""

    config: str
    overrides: tuple[str, ...]  # the user's, and behind them those of the test
    seed: int
    seconds: float
    faults: tuple[Fault, ...]
    homes: tuple[str, ...]  # the processes, without the launcher
    strikes: tuple[Strike, ...]
    bounds: Bounds


def settle(
    config: str,
    overrides: Sequence[str],
    seed: int,
    seconds: float,
    faults: Sequence[Fault],
    every: float,
) -> ChaosSettings:
    """Checks all that can be checked before anything is started."""
    refuse_platform("process")
    if seconds <= 0 or every <= 0:
        raise TianJiError("chaos: --seconds and --every want a number above 0")
    words = [*overrides, *changes(load(config, overrides))]
    job = try_out(load(config, words))
    homes = tuple(dict.fromkeys(role.home for role in roles_of(job.config)))
    strikes = tuple(schedule(seed, seconds, faults, homes, every, replaced_kinds(job.config)))
    if not strikes:
        raise TianJiError(
            f"chaos: no fault comes within {seconds:g} s, with one about every {every:g} s: "
            "raise --seconds, or lower --every"
        )
    bounds = bounds_of(job)
    return ChaosSettings(config, tuple(words), seed, seconds, tuple(faults), homes, strikes, bounds)


def changes(config: Config) -> list[str]:
    """What is overridden: the run has no end of its own, and everybody can be seen at work."""
    save = min(config.exp.save_seconds or SAVE_SECONDS, SAVE_SECONDS)
    said = ENDLESS | {
        "exp.save_seconds": f"{save:g}",
        "environment.step_seconds": f"{min(config.environment.step_seconds, STEP_SECONDS):g}",
        "global_cfg.restarts": str(RESTARTS),
        "global_cfg.rebalance": "False",
    }
    return [f"{key}={value}" for key, value in said.items()]


def bounds_of(job: Job) -> Bounds:
    """What follows from a configuration."""
    sampling = job.sampling
    return Bounds(
        staleness=_staleness_of(job),
        ratio=job.ratio,
        batch=sampling.batch_units,
        once=sampling.once,
        kept_bytes=sum(n_bytes_of(job).values()),
        trajectory=job.length * job.task.env.n_envs,
    )


def _staleness_of(job: Job) -> float | None:
    """Updates that a sample may be old, by docs/staleness.md; None where nothing bounds it.

    On-policy it is that of `core/balance.py`: what is older is dropped. Of a replay store, beside
    the time in it there is that in flight, and the age of the weights that acted.
    """
    sampling, learner_cfg = job.sampling, job.config.parallel.learner_cfg
    if sampling.per_version is not None:  # synchronous
        return 0
    if sampling.once:
        return sampling.max_lag
    under_way = 2 + job.batches_ahead + learner_cfg.send_interval
    arriving = job.task.n_actors * job.length * job.task.env.n_envs
    in_flight = (job.depth + 1) * arriving + max(job.slack, job.ahead)
    kept = sampling.batch_units / sampling.freshness * (UNEVEN if job.task.n_actors > 1 else 1.0)
    return (kept + in_flight) * job.ratio / sampling.batch_units + under_way


def make_folder(folder: Path) -> Path:
    """A new folder."""
    if opened(folder):
        raise TianJiError(f"--out {folder}: there is something in it: name a new folder")
    return folder
