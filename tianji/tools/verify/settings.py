"""What a comparison is asked to do, checked before anything trains."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from tianji.config import Section, bind, load
from tianji.config.section import Place
from tianji.core.errors import TianJiError
from tianji.core.json_file import load_json
from tianji.job.job import Job
from tianji.job.preflight import try_out
from tianji.tools.child_run import opened
from tianji.tools.verify import MARGIN, QUICK_SEEDS, QUICK_STEPS, SEEDS, STEPS, STEPS_MARGIN

MOST_SEEDS = 1_000

NO_TARGET = 1e300  # a return that ends no run
FOR_BOTH = (  # every run makes all of its steps, and leaves behind no more than is needed
    f"exp.stop_return={NO_TARGET}",
    "exp.stop_win_ratio=None",
    "learner_cfg.exit_val.win_ratio=None",
    "global_cfg.exit_val.win_ratio=None",
    "exp.episodes=None",
    "exp.max_seconds=None",
    "exp.eval_step=None",
    "exp.save_seconds=None",
    "exp.save_freq=None",
    "exp.save_replay='never'",
    "exp.track=()",
    "exp.keep_episodes=True",
)


@dataclass(frozen=True)
class Settings:
    """Which runs are made, and how they are judged."""

    config: str
    overrides: tuple[str, ...]
    engine: str
    seeds: tuple[int, ...]
    steps: int
    target: float | None  # mean return of 100 episodes
    ratio: float  # samples consumed per sample received that is asked for
    content: str  # a digest of the configuration, whose file may change under its name
    margin: float
    steps_margin: float

    def overrides_of(self, seed: int) -> list[str]:
        """What a run of this seed is told besides its configuration file."""
        own = (f"exp.train_steps={self.steps}", f"exp.seed={seed}")
        return [*self.overrides, *FOR_BOTH, *own]

    def job(self, seed: int) -> Job:
        """The job of a run of this seed."""
        return try_out(load(self.config, self.overrides_of(seed)))


def settle(
    config: str,
    overrides: list[str],
    engine: str,
    n_seeds: int | None = None,
    steps: int | None = None,
    quick: bool = False,
    margin: float = MARGIN,
    steps_margin: float = STEPS_MARGIN,
) -> Settings:
    """Fills in what was not said, and refuses what cannot be compared."""
    job = try_out(load(config, overrides))
    _refuse_other_ends(config, job)
    n = n_seeds if n_seeds is not None else QUICK_SEEDS if quick else SEEDS
    if not 1 <= n <= MOST_SEEDS:
        raise TianJiError(f"--seeds: want 1 to {MOST_SEEDS:,}, got {n}")
    usual = min(job.config.exp.train_steps, QUICK_STEPS if quick else STEPS)
    n_steps = usual if steps is None else steps
    least = job.length * job.task.env.n_envs
    if n_steps < least:
        raise TianJiError(f"--steps: want {least:,} at least, one trajectory, got {n_steps:,}")
    for name, value in (("--margin", margin), ("--steps-margin", steps_margin)):
        if not 0 < value <= 1:
            raise TianJiError(f"{name}: want a share above 0, up to 1, got {value:g}")
    first = job.config.exp.seed
    seeds = tuple(range(first, first + n))
    text = json.dumps(job.config.to_json(), sort_keys=True)
    return Settings(
        config,
        tuple(overrides),
        engine,
        seeds,
        n_steps,
        job.stop_return,
        job.ratio,
        hashlib.sha256(text.encode()).hexdigest()[:16],
        margin,
        steps_margin,
    )


def _refuse_other_ends(config: str, job: Job) -> None:
    """Only a number of environment steps can be the same for both."""
    ends = {
        "learner_cfg.exit_val.learn_step": job.config.max_updates,
        "global_cfg.exit_val.fusion_step": job.config.max_fusions,
    }
    for name, value in ends.items():
        if value is not None:
            raise TianJiError(
                f"{config}: {name}={value} would end runs before they have made the same steps: "
                f"add --set {name}=None"
            )


def make_folder(folder: Path, settings: Settings) -> Path:
    """The folder of the comparison: a new one, or one of the same settings to go on with.

    More seeds and other margins are welcome there; other runs are not.
    """
    file = folder / "verify.json"
    if not (found := opened(folder)):
        return folder
    if file.name not in found:
        raise TianJiError(f"--out {folder}: there is something else in it: name a new folder")
    said = {"settings": load_json(file, "what `tianji verify` wrote").get("settings")}
    before = bind(Settings, Section.of(said, Place(str(file))).get_section("settings"), "settings")
    for name in ("config", "overrides", "engine", "steps", "target", "ratio", "content"):
        if (old := getattr(before, name)) != (new := getattr(settings, name)):
            raise TianJiError(
                f"--out {folder} holds runs with {name} {old!r}, not {new!r}: name another folder"
            )
    return folder
