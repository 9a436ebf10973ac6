"""The trained policy on disk: a safetensors file, which holds data and never code."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tianji.algorithms.base import Weights


def save_final(folder: Path, weights: Weights, version: int, algorithm: str) -> Path:
    """Writes what actors would act with to `checkpoints/final.safetensors`."""
    from safetensors.numpy import save

    path = folder / "checkpoints" / "final.safetensors"
    path.parent.mkdir(exist_ok=True)
    metadata = {"version": str(version), "algorithm": algorithm}
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(save({"weights": weights.copy()}, metadata))
    os.replace(temporary, path)
    return path


def load_final(folder: Path) -> tuple[Weights, int]:
    """The weights that `save_final` wrote, and their version."""
    from safetensors.numpy import load

    data = (folder / "checkpoints" / "final.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return load(data)["weights"], int(header["__metadata__"]["version"])
