"""TianJi: distributed reinforcement-learning training in which no role waits for another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from tianji.runs.outcome import Report
    from tianji.runs.trained import Trained

__version__ = "0.2.0"


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
    return launch.train(
        loaded,
        engine,
        folder,
        quiet,
        started_at,
        dashboard=dashboard,
        plan=chosen,
        planning_seconds=seconds,
    )


def resume(
    run: str | Path,
    *overrides: str,
    engine: str | None = None,
    quiet: bool = True,
    dashboard: int | None = None,
    started_at: float | None = None,
    **settings: Any,
) -> Report:
    """Goes on with a run where its newest checkpoint was taken, as `tianji resume` does.

    It may be told anew when it ends: `tianji.resume("runs/...", max_seconds=600)`. Its `engine` is
    the one it was trained with, unless given.
    """
    from pathlib import Path

    from tianji.config.keywords import as_overrides
    from tianji.runs import launch, resume

    folder = Path(run)
    changes = [*overrides, *as_overrides(settings, "resume")]
    config, before = resume.reopen(folder, changes)
    name = engine or before
    return launch.train(config, name, folder, quiet, started_at, dashboard=dashboard, extend=True)


def load(run: str | Path, which: Literal["final", "best"] = "final") -> Trained:
    """The policy that a run ended with: `tianji.load("runs/...").act(observation)`.

    `run` is a run's folder, one of its checkpoints or a file of weights; `which="best"` takes the
    policy that played best.
    """
    from tianji.runs import trained

    return trained.load(run, which)


__all__ = ["__version__", "load", "resume", "train"]
