"""Creates `.venv-sb3`, `.venv-rllib` and `.venv-sf`, the environments in which peers are measured.

Peers live apart from the package's own environment, so that neither can change what the other
imports. torch is pinned first: a peer's looser requirement then finds it present and pulls nothing.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from options import ROOT, Options

SB3_VENV = ROOT / ".venv-sb3"
RLLIB_VENV = ROOT / ".venv-rllib"
SF_VENV = ROOT / ".venv-sf"
STEPS = {
    SB3_VENV: (["torch==2.13.0"], ["stable-baselines3==2.9.2", "torch==2.13.0"]),
    RLLIB_VENV: (["torch==2.13.0"], ["ray[rllib]==2.60.0", "torch==2.13.0"]),
    SF_VENV: (["torch==2.13.0"], ["sample-factory==2.1.1", "ale-py==0.12.1", "torch==2.13.0"]),
}
MODULES = {SB3_VENV: "stable_baselines3", RLLIB_VENV: "ray.rllib", SF_VENV: "sample_factory"}


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def create(folder: Path, steps: tuple[list[str], ...]) -> None:
    """Leaves `folder` with the peer, or raises CalledProcessError from pip."""
    if not python_of(folder).exists():
        venv.create(folder, with_pip=True)
    for requirements in steps:
        command = [str(python_of(folder)), "-m", "pip", "install", "--quiet", *requirements]
        subprocess.run(command, check=True)


def installed(folder: Path = SB3_VENV) -> bool:
    """True if the environment can import the peer; says nothing about its version."""
    if not python_of(folder).exists():
        return False
    module = MODULES.get(folder, MODULES[SB3_VENV])
    probe = f"""
import importlib.util, sys
try:
    sys.exit(importlib.util.find_spec({module!r}) is None)
except ModuleNotFoundError:
    sys.exit(1)
"""
    return subprocess.run([str(python_of(folder)), "-c", probe], check=False).returncode == 0


def main() -> int:
    parser = Options(__doc__)
    names = {"sb3": SB3_VENV, "rllib": RLLIB_VENV, "sf": SF_VENV}
    parser.add_argument("--peers", nargs="+", choices=names, default=["sb3"])
    for name in parser.parse_args().peers:
        folder = names[name]
        create(folder, STEPS[folder])
        frozen = [str(python_of(folder)), "-m", "pip", "freeze"]
        print(subprocess.run(frozen, check=True, capture_output=True, text=True).stdout)
        if not installed(folder):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
