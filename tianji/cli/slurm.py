"""`tianji slurm CONFIG --nodes N`: writes a job for Slurm that trains over several nodes."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tianji.cli.common import add_overrides


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `slurm`."""
    parser.add_argument("config", metavar="CONFIG", help="configuration file of the run")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="machines (default: 1)")
    _add_sizes(parser)
    parser.add_argument("--time", default="04:00:00", help="of the job (default: 04:00:00)")
    parser.add_argument("--partition", metavar="NAME", help="queue to use")
    parser.add_argument("--account", metavar="NAME", help="whom to charge")
    parser.add_argument(
        "--setup",
        action="append",
        default=[],
        metavar="LINE",
        help="a line of shell before the run, as in 'module load cuda'; may be repeated",
    )
    add_overrides(parser, "override a key of the configuration, as in actor_cfg.num=12")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="file to write (default: CONFIG's name.sbatch)"
    )


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    for option, purpose in (
        ("--tasks-per-node", "processes on each node (default: enough)"),
        ("--cpus-per-task", "cores for each process (default: as the configuration has it)"),
        ("--gpus", "GPUs of each node"),
    ):
        parser.add_argument(option, type=int, metavar="N", help=purpose)
    parser.add_argument("--mem", metavar="SIZE", help="memory of each node, as in 16G")


def run(options: argparse.Namespace) -> int:
    """Writes the file and says how to submit it."""
    from tianji.config import load
    from tianji.job.job import load_algorithm
    from tianji.machine.slurm import SlurmRequest, script

    config = load(options.config, options.overrides)
    load_algorithm(config)  # what `train` would refuse had better not wait in a queue
    wish = SlurmRequest(
        nodes=options.nodes,
        tasks_per_node=options.tasks_per_node,
        cpus_per_task=options.cpus_per_task,
        time=options.time,
        memory=options.mem,
        gpus=options.gpus,
        partition=options.partition,
        account=options.account,
        setup=options.setup,
    )
    name = Path(options.config).stem
    words = [options.config, *(f"--set={each}" for each in options.overrides)]
    text = script(config, wish, words, os.path.dirname(sys.executable), name, os.getcwd())
    out = options.out or Path(f"{name}.sbatch")
    _refuse_to_lose(out, Path(options.config))
    _write(out, text)
    print(f"{out} is written: sbatch {out}")
    return 0


def _refuse_to_lose(out: Path, config: Path) -> None:
    """Only a file that `tianji slurm` has written is written anew."""
    from tianji.core import atomic_file
    from tianji.core.errors import TianJiError
    from tianji.core.json_file import read_bytes
    from tianji.machine.slurm import MARKER

    if out.is_file() and config.is_file() and out.samefile(config):
        raise TianJiError(f"--out: {out} is the configuration itself: name another file")
    atomic_file.refuse_to_lose(
        out, "--out", lambda path: MARKER.encode() in read_bytes(path), "tianji slurm"
    )


def _write(out: Path, text: str) -> None:
    from tianji.core import atomic_file

    with atomic_file.explained("name another file with --out"):
        atomic_file.write(out, text)
        if out.is_file():  # not /dev/stdout
            out.chmod(0o755)
