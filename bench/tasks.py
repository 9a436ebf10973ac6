"""The comparison's three tasks: who runs what, which clock counts and which ratio is asked."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from options import BENCH, ROOT
from peers import SB3_VENV, installed, python_of
from trainings import command, peer_line, read_summary


class Clock(Enum):
    """From when a task's time counts; the value is the field of `Measured` that holds it."""

    PROCESS = "process_seconds"
    TRAINING = "training_seconds"


@dataclass(frozen=True)
class Asked:
    """Ours may take at most `ratio` of the time of `system`."""

    system: str
    ratio: float


@dataclass(frozen=True)
class Task:
    """One thing to learn, the same for every system that takes part."""

    title: str
    clock: Clock
    config: str
    peers: dict[str, list[str]]  # system -> script in bench/ and its options
    asked: tuple[Asked, ...]
    consumption: float = 0.0  # samples per second that ours has to consume


@dataclass(frozen=True)
class Measured:
    """One run of one system; times are infinite where the target was not reached."""

    task: str
    system: str
    seed: int
    process_seconds: float
    training_seconds: float
    wall_seconds: float
    env_steps: int
    steps_per_second: float
    consumption_per_second: float | None = None
    replay_ratio: float | None = None
    foreign_load: float = 0.0  # share of the machine that others used just before the run

    def row(self) -> dict[str, Any]:
        """The fields as JSON takes them: null for a time that never came."""
        return {k: None if v == math.inf else v for k, v in asdict(self).items()}


TABLE_2 = "--hidden 256 --lr 1e-4 --steps 512 --envs 2 --epochs 10 --minibatch 256 --adam-eps 1e-5"
TASKS = {
    "ppo": Task(
        title="PPO, our preset (SB3: rl-zoo's), process start to 300",
        clock=Clock.PROCESS,
        config="configs/cartpole_ppo.py",
        peers={"plain": ["plain_ppo.py"], "sb3": ["sb3_ppo.py", "--settings", "zoo"]},
        asked=(Asked("plain", 1.0), Asked("sb3", 0.25)),
    ),
    "ppo_table2": Task(
        title="PPO, Table 2's values, all roles ready to 300",
        clock=Clock.TRAINING,
        config="configs/paper_ppo_cartpole.py",
        peers={
            "plain": ["plain_ppo.py", *TABLE_2.split()],
            "sb3": ["sb3_ppo.py", "--settings", "table2"],
        },
        asked=(Asked("plain", 0.8),),
    ),
    "dqn_table2": Task(
        title="DQN, Table 2's values, process start to 300",
        clock=Clock.PROCESS,
        config="configs/paper_dqn_cartpole.py",
        peers={"sb3": ["sb3_dqn.py"]},
        asked=(Asked("sb3", 0.2),),
        consumption=20_000.0,
    ),
}
SYSTEMS = ("plain", "sb3", "ours")


def missing(task: Task, system: str) -> str | None:
    """Why `system` cannot take part in `task`, or None if it can."""
    if system == "ours":
        needed = [ROOT / "tianji" / "cli" / "main.py", ROOT / task.config]
        absent = [str(path.relative_to(ROOT)) for path in needed if not path.exists()]
        return f"{', '.join(absent)} does not exist" if absent else None
    if system not in task.peers:
        return "has no script for this task"
    if system == "sb3" and not installed():
        return f"{SB3_VENV.name} does not exist: run python bench/peers.py"
    return None


def ours(task: Task, seed: int, run_dir: Path, settings: list[str]) -> list[str]:
    """The command line of our run, which leaves its figures in `run_dir`."""
    return command(task.config, run_dir, settings, "--stop-return", "300", "--seed", str(seed))


def peer(task: Task, system: str, seed: int, threads: int) -> list[str]:
    """The command line of a peer, which prints its figures."""
    python = str(python_of(SB3_VENV)) if system == "sb3" else sys.executable
    script, *options = task.peers[system]
    return [python, str(BENCH / script), *options, "--seed", str(seed), "--threads", str(threads)]


def read_ours(run_dir: Path) -> dict[str, Any]:
    """What `summary.json` says, in the fields of `Measured`."""
    summary = read_summary(run_dir)
    final = summary["final_time_seconds"]
    training = math.inf if final is None else float(final)
    seconds = summary["wall_seconds"] - summary["startup_seconds"] if final is None else final
    return {
        "process_seconds": summary["startup_seconds"] + training,
        "training_seconds": training,
        "env_steps": summary["env_steps"],
        "steps_per_second": summary["env_steps"] / max(seconds, 1e-9),
        "consumption_per_second": summary["consumption_per_second"],
        "replay_ratio": summary["replay_ratio"]["measured"],
    }


def read_peer(stdout: str) -> dict[str, Any]:
    """What a peer's JSON line says, in the fields of `Measured`."""
    line = peer_line(stdout)
    return {
        "process_seconds": line["seconds_from_process_start"],
        "training_seconds": line["seconds_from_training_start"],
        "env_steps": line["env_steps"],
        "steps_per_second": line["steps_per_second"],
        "replay_ratio": line.get("replay_ratio"),
    }
