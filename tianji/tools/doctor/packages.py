"""What is installed: the libraries that every run needs, and those that one feature wants."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata

from tianji.tools.doctor.finding import Finding, absent, ok, problem

NEEDED = ("torch", "numpy", "gymnasium", "safetensors", "rich")
EXTRAS = {  # the extra that brings a package, where there is one
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "trackio": "trackio",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "pillow": "video",
    "imageio-ffmpeg": "video",
}
OPTIONAL = {
    "tensorboard": "looking at a run's event files",
    "wandb": "Weights & Biases",
    "trackio": "metrics in trackio",
    "onnx": "tianji export",
    "onnxruntime": "tianji export",
    "onnxscript": "exporting torch modules of your own",
    "ale-py": "Atari environments",
    "pygame-ce": "gymnasium's windows",
    "pillow": "videos as .gif",
    "imageio-ffmpeg": "videos as .mp4",
}


def version_of(name: str) -> str | None:
    """The version of a package, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def minimums() -> dict[str, str]:
    """The oldest version that will do, of what this package declares to need."""
    try:
        declared = metadata.requires("tianji") or []
    except metadata.PackageNotFoundError:
        return {}
    found = (re.match(r"([\w.-]+)\s*>=\s*([\d.]+)$", each) for each in declared)
    return {match[1]: match[2] for match in found if match}


def check_needed(name: str, version: str | None, least: Mapping[str, str]) -> Finding:
    """Is a library there, and new enough?"""
    wanted = least.get(name)
    advice = f"pip install '{name}>={wanted}'" if wanted else f"pip install {name}"
    if version is None:
        return problem(name, "not installed", advice)
    if wanted and numbers(version) < numbers(wanted):
        return problem(name, f"{version}, older than {wanted}", advice)
    return ok(name, version)


def optional(name: str, version: str | None, purpose: str) -> Finding:
    """Whether a feature has what it wants; nothing is wrong if it has not."""
    if version is None:
        wanted = f"'tianji[{EXTRAS[name]}]'" if name in EXTRAS else name
        return absent(name, f"pip install {wanted} for {purpose}")
    return ok(name, f"{version}, for {purpose}")


def numbers(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` as (2, 13, 0), to be compared."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
