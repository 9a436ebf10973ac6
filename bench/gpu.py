"""Every check and figure that needs a GPU, as one command and one table.

exact      updates on the GPU are those on the CPU, with a CUDA graph those without; a replay there
           draws what one here draws; the tests that need a GPU pass
speeds     samples per second of updates and of acting with the network of Mnih et al.
pong       PPO (configs/atari/pong_gpu.py): seconds to a mean of 18, steps per second while learning
inference  the same with one role that acts for all actors (actor_cfg.inference=True)
cores      the same without the GPU: the other half of Figure 11
plain      the same recipe in one loop (plain_pong.py)
dqn        DQN with its replay on the GPU (configs/atari/fast_dqn_pong.py)
plain_dqn  the same recipe in one loop (plain_dqn.py), without a CUDA graph
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from curves import Training, has_atari, read_training
from measures import Spread, shown
from options import BENCH, CONFIGS, OUT, ROOT, Options, at_least, count, positive
from tables import markdown, values, where
from trainings import command, environment, peer_line

Row = dict[str, Any]

CHECKS = {"exact": 75, "speeds": 65}  # seconds of each part, by default
OURS = {"pong": 140, "inference": 140, "cores": 140, "dqn": 100}  # of each seed
LOOPS = {"plain": 125, "plain_dqn": 125}
RUNS = OURS | LOOPS
SHARES = CHECKS | RUNS
SOLVED, PRODUCTION = "from all roles ready to a mean of 18", "production while learning"
ASKED_SECONDS, ASKED_STEPS = 60, 27_000  # of pong, on 16 cores with a GPU
ASIDE = 25.0  # seconds of a part's time for a run to begin and to end
COLUMNS = ("part", "seed", "what", "value", "unit", "ok")


def run(words: list[str], seconds: float, **variables: str) -> tuple[str, str]:
    """Output and the end of what was complained of; a run that takes too long is ended."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        about = {"start_new_session": True, "env": environment(**variables)}
        child = subprocess.Popen(words, stdout=out, stderr=errors, **about)
        said = ""
        for number in (signal.SIGTERM, signal.SIGKILL, None):
            try:
                child.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                said, seconds = "out of time; ", 5.0
                if number is not None:
                    os.killpg(child.pid, number)
        out.seek(0), errors.seek(0)
        status = f"exit status {child.returncode}: " if child.returncode else ""
        return out.read(), said + status + errors.read().strip()[-600:]


def checks(name: str, o: argparse.Namespace, seconds: float) -> Iterator[Row]:
    """A part that answers with rows, in a process of its own; those that came before its end."""
    words = [sys.executable, str(BENCH / "gpu.py"), "--only", name, *["--cpu"] * o.cpu]
    out, errors = run(words, seconds, **({"OMP_NUM_THREADS": "1"} if o.cpu else {}))
    told = (json.loads(line) for line in out.splitlines() if line.startswith("{"))
    yield from ({"seed": "", **each} for each in told)
    if errors:
        yield said(errors)
    if name == "exact":
        yield tested(o)


def tested(o: argparse.Namespace) -> Row:
    """The tests that only a GPU can pass; where there is none they are left out."""
    words = [sys.executable, "-m", "pytest", "-o", "addopts=", "-q"]
    out, errors = run([*words, str(ROOT / "tests" / "unit" / "test_cuda_graph.py")], 120.0)
    counted = {word: int(n) for n, word in re.findall(r"(\d+) (passed|skipped|failed)", out)}
    if not counted.get("passed"):
        return said(f"tests/unit/test_cuda_graph.py: {(out + errors).strip()[-300:]}")
    missed = counted.get("failed", 0) + counted.get("skipped", 0)
    what = "tests/unit/test_cuda_graph.py: failed or left out"
    return row(what, missed, "tests") | {"ok": None if o.cpu else not missed}


def trained(o: argparse.Namespace, seconds: float) -> float:
    """How long a run may train."""
    return 4.0 if o.cpu else max(1.0, seconds - ASIDE)


def train(name: str, seed: int, o: argparse.Namespace, seconds: float) -> Iterator[Row]:
    """A training run of ours, until it has solved the game or the time is over."""
    ppo = "fast_pong.py" if o.cpu else "pong_gpu.py"
    config, device = "fast_dqn_pong.py" if name == "dqn" else ppo, o.device
    settings = ["exp.save_seconds=None", "exp.save_replay='never'"]
    settings.append(f"exp.max_seconds={trained(o, seconds)}")
    if name == "dqn" or o.cpu:  # pong_gpu.py says for itself who acts where
        each = max(2, (o.envs // 2 if name == "dqn" else o.envs) // o.actors)
        settings += [f"actor_cfg.num={o.actors}", f"actor_cfg.envs={each}"]
        settings += [f"learner_cfg.device='{o.device}'", f"actor_cfg.device='{o.actor_device}'"]
    if name == "dqn":
        settings.append(f"buffer_cfg.device='{o.device}'")
        settings += ["hyp.buffer_size=4000", "hyp.warmup_size=100"] if o.cpu else []
    if name == "inference":
        settings.append("actor_cfg.inference=True")
    if name == "cores":
        device = "cpu"
        settings += ["learner_cfg.device='cpu'", "actor_cfg.device='cpu'"]
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        words = command(CONFIGS / "atari" / config, run_dir, [*settings, *o.set])
        _, errors = run([*words, "--quiet", "--seed", str(seed)], seconds)
        if not (run_dir / "summary.json").exists():
            yield said(errors or "the run left no summary")
            return
        yield from figures(read_training(run_dir), device)
        shutil.copy(run_dir / "metrics.jsonl", o.out / f"{name}-{seed}.jsonl")


def figures(done: Training, device: str) -> Iterator[Row]:
    """What a training run came to."""
    summary = done.summary
    yield row(SOLVED, done.final_seconds, "s")
    yield row("highest mean of the last 100 games", done.best(), "points")
    yield row("trained", summary["training_seconds"], "s")
    yield row("environment steps", summary["env_steps"], "steps")
    yield row(PRODUCTION, summary["production_per_second"], "steps/s")
    yield row("consumption", summary["consumption_per_second"], "samples/s")
    yield row("from process start to all roles ready", summary["startup_seconds"], "s")
    for kind in ("actor", "buffer", "learner"):
        idle = [each["idle"] for name, each in summary["roles"].items() if name.startswith(kind)]
        if idle:
            yield row(f"{kind} idle, learner on {device}", sum(idle) / len(idle), "share")


def plain(name: str, seed: int, o: argparse.Namespace, seconds: float) -> Iterator[Row]:
    """A loop in one process, on the same device."""
    limit, cores = trained(o, seconds), len(os.sched_getaffinity(0))
    words = {
        "plain": ["plain_pong.py", "--recipe", "gpu", "--envs", str(o.envs)],
        "plain_dqn": ["plain_dqn.py", "--envs", str(max(2, o.envs // 2)), *["--small"] * o.cpu],
    }[name]
    words = [
        sys.executable, str(BENCH / words[0]), *words[1:], "--device", o.device, "--threads",
        str(cores), "--seed", str(seed), "--max-seconds", str(limit),
    ]  # fmt: skip
    out, errors = run(words, seconds)
    if not out.strip():
        yield said(errors)
        return
    line = peer_line(out)
    yield row("from the first step to a mean of 18", line["seconds_from_training_start"], "s")
    yield row("mean of the last 100 games", line["mean_return"], "points")
    yield row("environment steps", line["env_steps"], "steps")
    yield row("steps made and learned from", line["steps_per_second"], "steps/s")


def row(what: str, value: float, unit: str) -> Row:
    return {"seed": "", "what": what, "value": value, "unit": unit, "ok": None}


def said(problem: str) -> Row:
    """A part that broke."""
    words = problem.replace("\n", " ").replace("|", "/")
    return {"seed": "", "what": words, "value": math.nan, "unit": "failed", "ok": False}


def rows_of(name: str, o: argparse.Namespace, seconds: float) -> Iterator[Row]:
    """All rows of one part; with several seeds their medians are at its end, and are judged."""
    if name in CHECKS:
        yield from checks(name, o, seconds)
        return
    if not has_atari():
        yield said("left out: ale-py is not installed")
        return
    found: list[Row] = []
    part, ends = (train if name in OURS else plain), time.monotonic() + seconds
    for i, seed in enumerate(o.seeds):
        each = (ends - time.monotonic()) / (len(o.seeds) - i)
        told = [row | {"seed": seed} for row in part(name, seed, o, max(1.0, each))]
        found += told
        if len(o.seeds) > 1:
            yield from told
    yield from medians(found, is_judged=name == "pong" and not o.cpu)


def medians(rows: list[Row], is_judged: bool) -> Iterator[Row]:
    """Over the seeds, and whether they are what is asked for; of one seed, its own rows."""
    seeds = values(rows, "seed")
    for what in values(rows, "what"):
        same = where(rows, what=what)
        if len(seeds) == 1:
            found = same[0]
        elif same[0]["unit"] == "failed":
            continue  # it was told
        else:
            middle = Spread.of(each["value"] for each in same).middle
            found = same[0] | {"seed": "median", "value": middle}
        asked = {SOLVED: found["value"] <= ASKED_SECONDS, PRODUCTION: found["value"] >= ASKED_STEPS}
        yield found | ({"ok": asked[what]} if is_judged and what in asked else {})


def table(rows: list[Row]) -> str:
    """All rows in Markdown."""
    words = {True: "yes", False: "NO", None: ""}
    lines = [
        (
            each["part"],
            str(each["seed"]),
            each["what"],
            digits(each["value"]),
            each["unit"],
            words[each["ok"]],
        )
        for each in rows
    ]
    return markdown(("part", "seed", "what", "value", "unit", "as asked"), lines)


def digits(value: float) -> str:
    """Four digits or so of a number."""
    if not math.isfinite(value):
        return shown(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def machine(o: argparse.Namespace) -> str:
    """What stands over the table."""
    import torch

    name = torch.cuda.get_device_name() if o.device == "cuda" else "CPU, small scale"
    return f"{name}, {len(os.sched_getaffinity(0))} cores, torch {torch.__version__}"


def options() -> Options:
    parser = Options(__doc__)
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--parts", nargs="+", choices=SHARES, default=list(SHARES))
    parser.add_argument("--seconds", type=positive, help="for all parts; default: as they need")
    parser.add_argument("--actors", type=count, default=cores, help="of dqn; default: one per core")
    parser.add_argument(
        "--envs", type=at_least(2), default=128, help="games of plain; those of DQN have half"
    )
    parser.add_argument("--actor-device", choices=("cpu", "cuda"), default="cpu")
    parser.add_seeds(default=[1])
    parser.add_argument("--set", action="append", default=[], help="key=value, of pong and dqn")
    parser.add_argument("--cpu", action="store_true", help="the same on the CPU, on a small scale")
    parser.add_argument("--only", choices=("exact", "speeds"), help="print rows of this part")
    parser.add_out(OUT / "gpu")
    return parser


def main() -> int:
    parser = options()
    o = parser.parse_args()
    o.device = "cpu" if o.cpu else "cuda"
    if not o.cpu:
        import torch

        if not torch.cuda.is_available():
            parser.error("torch sees no GPU here: --cpu runs the same on the CPU at a small scale")
    if o.only:
        from gpu_parts import part

        for each in part(o.only, o.device, o.cpu):
            print(json.dumps(each), flush=True)
        return 0
    o.out.mkdir(parents=True, exist_ok=True)
    print(machine(o), flush=True)
    rows: list[Row] = []
    shares = CHECKS | {name: n * len(o.seeds) for name, n in RUNS.items()}
    left = sum(shares[name] for name in o.parts)
    ends = time.monotonic() + (o.seconds or left)
    for name in o.parts:
        seconds = (ends - time.monotonic()) * shares[name] / left
        left -= shares[name]
        for each in rows_of(name, o, max(1.0, seconds)):
            rows.append({"part": name, **each})
            print("  " + "  ".join(f"{k}={rows[-1][k]}" for k in COLUMNS), flush=True)
        write(rows, machine(o), o.out)
    print(f"\n{table(rows)}\n\nwritten to {o.out}")
    return int(any(each["ok"] is False for each in rows))


def write(rows: list[Row], about: str, out: Path) -> None:
    """Whatever is known so far: a part that hangs takes nothing with it."""
    (out / "gpu.md").write_text(f"{about}\n\n{table(rows)}\n")
    with (out / "gpu.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
