"""Creates `.venv-sb3`, the virtual environment in which Stable-Baselines3 is measured.

Peers live apart from the package's own environment, so that neither can change what the other
imports. torch is pinned first: a peer's looser requirement then finds it present and pulls nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SB3_VENV = ROOT / ".venv-sb3"
STEPS = (["torch==2.13.0"], ["stable-baselines3==2.9.2", "torch==2.13.0"])


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def create(folder: Path) -> None:
    """Leaves `folder` with the pinned peers, or raises CalledProcessError from pip."""
    if not python_of(folder).exists():
        venv.create(folder, with_pip=True)
    for requirements in STEPS:
        command = [str(python_of(folder)), "-m", "pip", "install", "--quiet", *requirements]
        subprocess.run(command, check=True)


def installed(folder: Path = SB3_VENV) -> bool:
    """True if the environment can import the peer; says nothing about its version."""
    if not python_of(folder).exists():
        return False
    probe = (
        "import importlib.util, sys; sys.exit(not importlib.util.find_spec('stable_baselines3'))"
    )
    return subprocess.run([str(python_of(folder)), "-c", probe], check=False).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=SB3_VENV)
    folder = parser.parse_args().folder
    create(folder)
    frozen = [str(python_of(folder)), "-m", "pip", "freeze"]
    print(subprocess.run(frozen, check=True, capture_output=True, text=True).stdout)
    return 0 if installed(folder) else 1


if __name__ == "__main__":
    sys.exit(main())
