"""Samples of Pong learned from per second on two cores, beside Sample Factory.

`python bench/peers.py --peers sf` installs it. Both have the network of Mnih et al. and the same
epochs (4), minibatches (256), frame skip (4), wrappers and frames of 84 x 84. A sample counts once,
however many epochs it is learned from in. Asked: 2.5 times Sample Factory's rate with bfloat16, 1.8
times with float32.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from beside import add_cores_each, conduct_trials
from curves import has_atari, training_of
from experiment import Sheet, Trial, seeds_of
from figures import Panel, Series
from measures import Spread, ratio_interval
from options import BENCH, CONFIGS, OUT, Options, positive
from peers import SF_VENV, installed, python_of
from pong import spent
from tables import cells, markdown, values, where
from trainings import START_SECONDS, Row, busy_share, execute

ASKED = {"ours bfloat16": 2.5, "ours float32": 1.8}
PEERS = ("sf", "sf overlapped")
COLUMNS = {"samples_per_second": 0, "cpu_ms_per_sample": 2}  # with their digits
HEADS = ("samples/s", "CPU-ms per sample")
OURS = (
    "model.norm=False",
    "model.hidden=[512]",
    "environment.wrappers=['noop','skip','life','fire','warp','clip','stack']",
    "actor_cfg.envs=32",
    "hyp.step_len=64",
    "hyp.minibatch=256",
    "hyp.update_step=4",
    "hyp.mode=async",
    "learner_cfg.device=cpu",
    "exp.stop_return=None",
)


def ours(system: str, seed: int, o: argparse.Namespace) -> Row:
    """fast_pong.py without its LayerNorm, sampling beside learning."""
    settings = [*OURS, f"model.precision={system.split()[-1]}", *o.set]
    summary = training_of(CONFIGS / "atari" / "fast_pong.py", settings, o.seconds, seed).summary
    return {"samples": summary["consumed"], "samples_per_second": summary["consumption_per_second"]}


def peer(system: str, seed: int, o: argparse.Namespace) -> Row:
    """Theirs, with the settings that it has for Atari, in turns or overlapped."""
    words = [str(python_of(SF_VENV)), str(BENCH / "sf_ppo.py"), "--seed", str(seed)]
    words += ["--max-seconds", str(o.seconds), *["--overlap"] * ("overlapped" in system)]
    lines = execute(words, o.seconds + 2 * START_SECONDS)[0].splitlines()
    line = json.loads(lines[-1])
    return {name: line[name] for name in ("samples", "samples_per_second")}


def measured(system: str, seed: int, o: argparse.Namespace) -> Row:
    """A run, the CPU time of one of its samples, and how quiet it was before."""
    foreign, before = busy_share(), spent()
    row = (peer if system in PEERS else ours)(system, seed, o)
    took = 1000 * (spent() - before) / max(1, row["samples"])
    return row | {"cpu_ms_per_sample": took, "foreign_load": foreign}


def table(rows: list[Row]) -> str:
    """Medians and ranges, and the ratios that are asked for."""
    lines = [
        [name, str(len(found)), *cells(found, COLUMNS)]
        for name in values(rows, "system")
        if (found := where(rows, system=name))
    ]
    return "\n\n".join([markdown(("system", "runs", *HEADS), lines), *verdicts(rows)])


def verdicts(rows: list[Row]) -> list[str]:
    """Ours over the faster of theirs, with intervals."""
    rates = {
        name: [row["samples_per_second"] for row in where(rows, system=name)]
        for name in (*PEERS, *ASKED)
    }
    theirs = max((rates[name] for name in PEERS), key=lambda found: Spread.of(found or [0]).middle)
    if not theirs:
        return ["Sample Factory was not measured: no ratio."]
    said = []
    for name, asked in ASKED.items():
        if rates[name]:
            found = ratio_interval(rates[name], theirs)
            word = "reached" if found.middle >= asked else "missed"
            said.append(f"{name}: {found.text(2)} times Sample Factory, asked {asked}: {word}.")
    return said


def panels(rows: list[Row]) -> list[Panel]:
    """Samples per second of each system."""
    points = [
        (name, Spread.of(row["samples_per_second"] for row in where(rows, system=name)))
        for name in values(rows, "system")
    ]
    return [Panel("Pong, 84 x 84", "", "samples/s", [Series("samples/s", points)], is_bars=True)]


def trials(o: argparse.Namespace) -> Iterator[Trial]:
    """Every system with every seed."""
    for seed in seeds_of(o):
        for system in o.systems:
            yield {"system": system, "seed": seed}, measured, (system, seed, o)


def main() -> int:
    parser = Options(__doc__)
    systems = (*PEERS, *ASKED)
    parser.add_argument("--systems", nargs="+", choices=systems, default=list(systems))
    parser.add_seeds()
    parser.add_argument("--seconds", type=positive, default=60.0, help="that one run trains")
    add_cores_each(parser)
    parser.add_argument("--set", action="append", default=[], help="key=value, for ours alone")
    parser.add_out(OUT / "sf")
    o = parser.parse_args()
    if not has_atari():
        return 2
    if set(o.systems) & set(PEERS) and not installed(SF_VENV):
        parser.error("Sample Factory is not installed: python bench/peers.py --peers sf")
    sheet = Sheet(o.out, "sf", ("system", "seed", *COLUMNS, "samples", "foreign_load"))
    with sheet:
        conduct_trials(sheet, trials(o), o.cores_each)
    return sheet.finish(table, panels)


if __name__ == "__main__":
    sys.exit(main())
