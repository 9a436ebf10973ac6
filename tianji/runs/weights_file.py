"""Trained policies on disk: safetensors files, which hold data and never code."""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path

from tianji.core import atomic_file, tensorfile
from tianji.core.algorithm import Saved, Weights
from tianji.core.errors import TianJiError
from tianji.observe.evaluation_file import rewind_rows

FINAL = "final.safetensors"  # what a run ended with
OF_0_1 = {"version", "algorithm"}  # all that files of version 0.1 say; they have no checksum
BEST = "best.safetensors"  # what played best in an evaluation
BEFORE = "best.before.safetensors"  # the same, of work that was lost


def save_final(
    folder: Path, weights: Weights, version: int, algorithm: str, env_steps: int | None = None
) -> Path:
    """Writes what actors would act with to `checkpoints/final.safetensors`."""
    about = {} if env_steps is None else {"env_steps": str(env_steps)}
    return _save(folder / "checkpoints" / FINAL, weights, version, algorithm, about)


def save_best(
    folder: Path,
    weights: Weights,
    version: int,
    algorithm: str,
    score: float,
    env_steps: int,
    win_ratio: float | None = None,
) -> Path:
    """Writes what has played best so far to `checkpoints/best.safetensors`."""
    about = {"score": repr(score), "env_steps": str(env_steps)}
    if win_ratio is not None:
        about["win_ratio"] = repr(win_ratio)
    return _save(folder / "checkpoints" / BEST, weights, version, algorithm, about)


def merit_of(win_ratio: float | None, mean: float) -> tuple[float, float]:
    """What is compared to find the best: won games where anybody can win, then the mean return."""
    return (0.0 if win_ratio is None else win_ratio, mean)


def best_merit(folder: Path) -> tuple[float, float] | None:
    """What `best.safetensors` was kept for, if there is one."""
    best = _best_of(folder)
    if best is None or best.score is None or not math.isfinite(best.score):
        return None
    return merit_of(best.win_ratio, best.score)


def rewind_evaluations(folder: Path, env_steps: int) -> None:
    """Sets aside what was evaluated after `env_steps`: that work was lost with the process.

    Rows go to `evaluations.lost.jsonl`, the best weights to `best.before.safetensors`; what
    `tianji eval` wrote stays. To do it twice changes nothing.
    """
    rewind_rows(folder, env_steps)
    best, saved = _best_of(folder), folder / "checkpoints"
    if best is not None and best.env_steps is not None and best.env_steps > env_steps:
        os.replace(saved / BEST, saved / BEFORE)


def _best_of(folder: Path) -> Saved | None:
    try:
        return read(folder / "checkpoints" / BEST)
    except TianJiError:
        return None


def read(path: Path) -> Saved:
    """What a file of weights holds."""
    try:
        arrays, about = tensorfile.read_arrays(path)
        weights, about = arrays["weights"], dict(about)
        if about.keys() != OF_0_1 and about.pop("sha256") != _checksum(weights, about):
            raise ValueError("its checksum differs")
        score, steps, won = (about.get(name) for name in ("score", "env_steps", "win_ratio"))
        return Saved(
            weights,
            int(about["version"]),
            None if steps is None else int(steps),
            None if score is None else float(score),
            None if won is None else float(won),
        )
    except (tensorfile.Corrupt, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TianJiError(f"{path} is damaged: it holds no weights of a policy") from error


def _checksum(weights: Weights, about: dict[str, str]) -> str:
    """Of everything that such a file says."""
    said = [str(weights.dtype), weights.shape, sorted(about.items())]
    digest = hashlib.sha256(json.dumps(said).encode())
    digest.update(weights.tobytes())
    return digest.hexdigest()


def _save(
    path: Path, weights: Weights, version: int, algorithm: str, about: dict[str, str]
) -> Path:
    from safetensors.numpy import save

    path.parent.mkdir(exist_ok=True)
    metadata = {"version": str(version), "algorithm": algorithm} | about
    metadata["sha256"] = _checksum(weights, metadata)
    with atomic_file.writing(path) as file:
        file.write(save({"weights": weights.copy()}, metadata))
        file.flush()
        os.fsync(file.fileno())
    return path
