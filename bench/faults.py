"""What faults cost, and what there is against them: actors that are killed with SIGKILL.

  a  CartPole to 300 by PPO and by DQN, with an actor killed every 3 s and without: times, and ratio
  b  one kill after the other: seconds until the launcher has seen it, and until a new actor reports
  c  random schedules of kills, of actors and now and then of the learner with its buffer, ten in a
     run: runs that hang, what is left behind, lost counts
  d  runs without faults, with supervision (the default) and without (global_cfg.restarts=0)
  e  as b, with ranks of MPI: seconds from a kill until it is told that a new actor reports

CartPole is solved in a second or two. In part a its steps are slept, and the preset's environments
are spread over four actors, so that several kills come before the target and three actors are there
meanwhile. The other parts have the presets as they are, with two actors, and no end of their own.
What belongs together is run in turns.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiment import Sheet, attempt, machine
from measures import Spread, ratio_interval
from options import CONFIGS, OUT, ROOT, Options, count, positive, some_of
from startup import descendants
from tables import markdown, values, where
from trainings import ENDLESS, Row, busy_share, command, environment, read_summary, summary_of

SLOW = {  # steps that are slept: the preset's environments, four actors, 10 to 20 s to the target
    "ppo": ("actor_cfg.num=4", "actor_cfg.envs=16", 0.007),
    "dqn": ("actor_cfg.num=4", "actor_cfg.envs=2", 0.003),
}
FREE = ("global_cfg.restarts=100000", "global_cfg.rebalance=False")
EVERY = 3.0  # seconds between kills, in part a
PER_RUN = 10  # schedules
VICTIMS = {"actor-0.0": 0.6, "actor-0.1": 0.6, "learner-0.0": 0.1}  # how often, in part c
MOST_PAUSE = 1.2  # seconds between two schedules of a run
PATIENCE = 90.0  # seconds for a run to go on after faults: a pause of 30 s may be among them
END_SECONDS = 10.0  # promised from SIGTERM to the end
COLUMNS = (
    "part", "task", "how", "seed", "kills", "restarts", "seconds", "seen", "back", "hang", "left",
    "missing", "production", "startup", "foreign_load",
)  # fmt: skip


class Run:
    """A run whose processes can be killed."""

    def __init__(
        self, folder: Path, task: str, settings: Sequence[str], seed: int, more: Sequence[str] = ()
    ) -> None:
        self.folder, self.ever = folder / "run", dict[int, str]()
        words = command(CONFIGS / f"cartpole_{task}.py", self.folder, settings, "--quiet")
        self._log = (folder / "log").open("w")
        self.process = subprocess.Popen(
            [*words, "--seed", str(seed), *more],
            cwd=ROOT, stdout=self._log, stderr=self._log, env=environment(),
        )  # fmt: skip
        self._wait(lambda: bool(self.rows()), "the first row")

    def crew(self) -> dict[str, int]:
        """The worker processes that are there, by their role."""
        found = {}
        for pid in sorted(descendants(self.process.pid)):
            if home := home_of(pid):
                found[home] = pid
        self.ever |= {pid: home for home, pid in found.items()}
        return found

    def rows(self) -> list[str]:
        """The lines of metrics that are whole."""
        path = self.folder / "metrics.jsonl"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    @property
    def updates(self) -> int:
        """So far, by the last row."""
        return int(json.loads(self.rows()[-1])["updates"])

    def learns(self) -> bool:
        """Whether more updates come, in time."""
        before = self.updates
        return self._until(lambda: self.updates > before, PATIENCE)

    def comes_back(self, n: int) -> bool:
        """Whether it tells in time that so many lost processes are back."""
        said = Path(self._log.name)
        return self._until(lambda: said.read_text().count(" is back after ") >= n, PATIENCE)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        if not self._until(condition, PATIENCE):
            said = Path(self._log.name).read_text()[-600:]
            raise RuntimeError(f"{what} did not come: {said}")

    def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or self.process.poll() is not None:
                return False
            time.sleep(0.01)
        return True

    def end(self) -> bool:
        """Tells it to end; whether it did so in time."""
        self.process.send_signal(signal.SIGTERM)
        return self._until(lambda: self.process.poll() is not None, END_SECONDS)

    def summary(self) -> dict[str, Any]:
        """What it wrote down at its end."""
        return read_summary(self.folder)

    def close(self) -> None:
        """Kills what is left of it; only its own launcher, with which the kernel ends the rest."""
        self.process.kill()
        self.process.wait()
        self._log.close()


@contextmanager
def running(task: str, settings: Sequence[str], seed: int, *more: str) -> Iterator[Run]:
    """A run that has begun to learn; nothing of it is there behind the block."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), task, settings, seed, more)
        try:
            yield run
        finally:
            run.close()


def home_of(pid: int) -> str:
    """The role of a worker process or a rank; empty for any other process, and for a dead one."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        said = Path(os.readlink(f"/proc/{pid}/fd/1"))
    except OSError:
        return ""
    if "tianji.engines.worker" in words:
        return words[words.index("tianji.engines.worker") + 1]
    return said.stem if said.suffix == ".log" and said.parent.name == "logs" else ""


def memory_of(pid: int) -> set[int]:
    """The shared memory that a process holds, by the kernel's numbers."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            if os.readlink(link).startswith("/memfd:tianji"):
                found.add(link.stat().st_ino)
        except OSError:
            continue
    return found


def holders(memory: set[int]) -> list[int]:
    """The processes that still hold some of this shared memory."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if memory & memory_of(pid)]


def kill(pid: int) -> bool:
    """Kills a worker; False if it has gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def to_target(task: str, how: str, seed: int, given: argparse.Namespace) -> Row:
    """Part a: one run to a return of 300."""
    num, envs, seconds = SLOW[task]
    settings = [*FREE, num, envs, f"exp.stop_return={given.target:g}", "exp.train_steps=10_000_000"]
    settings += ["environment.gym_name='sleepy:SleepyCartPole-v1'"]
    settings += [f"environment.kwargs=dict(step_seconds={seconds})"]
    began, kills = time.monotonic(), 0
    with running(task, settings, seed) as run:
        while run.process.poll() is None and time.monotonic() < began + given.seconds:
            time.sleep(EVERY if how == "faults" else 0.1)
            victim = run.crew().get(f"actor-0.{kills % 4}") if how == "faults" else None
            kills += victim is not None and run.process.poll() is None and kill(victim)
        run.end()
        summary = run.summary()
    final = summary["final_time_seconds"]
    found = {"kills": kills, "restarts": summary["restarts"], "production": rate(summary)}
    return found | {"seconds": math.inf if final is None else final}


def rate(summary: dict[str, Any]) -> float:
    """Steps per second."""
    return float(summary["production_per_second"])


def kills_of(task: str, n: int, seed: int, sheet: Sheet) -> None:
    """Part b: kills actors one after the other; a row for each that came back."""
    seen = []
    with running(task, [*ENDLESS, *FREE, "actor_cfg.num=2"], seed) as run:
        for i in range(n):
            home = f"actor-0.{i % 2}"
            pid = run.crew()[home]
            began = time.monotonic()
            kill(pid)
            while Path(f"/proc/{pid}").exists():  # until its launcher asks how it ended
                time.sleep(0.001)
            seen.append(time.monotonic() - began)
            while run.crew().get(home, pid) == pid and time.monotonic() < began + PATIENCE:
                time.sleep(0.01)
            time.sleep(2.0)
        run.end()
        faults = run.summary()["faults"][-n:]
    for seconds, fault in zip(seen[-len(faults) :], faults, strict=True):
        if fault["away_seconds"] is not None:
            row = {"part": "b", "task": task, "seed": seed, "kills": 1, "seen": round(seconds, 4)}
            sheet.add(row | {"back": round(seconds + fault["away_seconds"], 3)})


def kills_of_ranks(task: str, n: int, seed: int, sheet: Sheet) -> None:
    """Part e: kills actors' ranks one after the other; a row for each."""
    settings = [*ENDLESS, *FREE, "actor_cfg.num=2"]
    with running(task, settings, seed, "--engine", "mpi") as run:
        for i in range(n):
            began = time.monotonic()
            row = {
                "part": "e",
                "task": task,
                "seed": seed,
                "kills": int(kill(run.crew()[f"actor-0.{i % 2}"])),
            }
            if not run.comes_back(i + 1):
                raise RuntimeError("nobody came in the place of a rank")
            sheet.add(row | {"back": round(time.monotonic() - began, 3)})
            time.sleep(2.0)
        run.end()


def schedules(task: str, n: int, seed: int) -> Row:
    """Part c: so many random schedules of kills in one run, and what is wrong after them."""
    draw, killed = random.Random(seed), set[int]()
    settings = [*ENDLESS, *FREE, "actor_cfg.num=2", "exp.save_seconds=1"]
    with running(task, settings, seed) as run:
        memory = memory_of(run.process.pid)
        for _ in range(n):
            time.sleep(draw.uniform(0, MOST_PAUSE))
            crew = run.crew()
            victims = [home for home, share in VICTIMS.items() if draw.random() < share]
            killed |= {crew[home] for home in victims if home in crew and kill(crew[home])}
        goes_on = run.learns()
        run.crew()
        ended = run.end()
        time.sleep(0.1)
        left = [pid for pid in run.ever if home_of(pid)]
        summary = run.summary() if ended else {}
        found = {
            "kills": len(killed),
            "restarts": summary.get("restarts"),
            "hang": int(not (goes_on and ended and run.process.returncode == 143)),
            "left": len(left) + len(holders(memory)),
            "missing": summary.get("missing_steps"),
        }
    return found


def without_faults(how: str, seed: int, seconds: float) -> Row:
    """Part d: steps per second and start-up, with supervision and without."""
    settings = [*ENDLESS, "actor_cfg.num=2", "global_cfg.rebalance=False"]
    settings += ["global_cfg.restarts=0"] * (how == "restarts=0")
    summary = summary_of(CONFIGS / "cartpole_ppo.py", settings, seconds, "--seed", str(seed))
    return {"production": rate(summary), "startup": summary["startup_seconds"]}


def measure(given: argparse.Namespace, sheet: Sheet) -> None:
    """All parts that were asked for."""
    if "a" in given.parts:
        for seed in given.seeds:
            for task in SLOW:
                for how in ("none", "faults"):
                    row = {"part": "a", "task": task, "how": how, "seed": seed}
                    row["foreign_load"] = busy_share()
                    attempt(sheet, row, to_target, task, how, seed, given)
    if "b" in given.parts:
        kills_of("dqn", given.kills, given.seeds[0], sheet)
    if "e" in given.parts:
        kills_of_ranks("dqn", given.kills, given.seeds[0], sheet)
    if "c" in given.parts:
        for seed in range(math.ceil(given.schedules / PER_RUN)):
            task, n = ("ppo", "dqn")[seed % 2], min(PER_RUN, given.schedules - seed * PER_RUN)
            row = {"part": "c", "task": task, "how": f"{n} schedules", "seed": seed}
            attempt(sheet, row, schedules, task, n, seed)
    if "d" in given.parts:
        for seed in range(given.pairs):
            for how in ("default", "restarts=0")[:: 1 if seed % 2 else -1]:
                row = {"part": "d", "task": "ppo", "how": how, "seed": seed}
                row["foreign_load"] = busy_share()
                attempt(sheet, row, without_faults, how, seed, given.short)


def column(rows: Sequence[Row], name: str) -> list[float]:
    return [float(row[name]) for row in rows if row.get(name) is not None]


def table(rows: list[Row]) -> str:
    """A line for each figure, beside what was asked."""
    lines = []
    for task in values(where(rows, part="a"), "task"):
        lines += _ratio(where(rows, part="a", task=task), task)
    if found := where(rows, part="b"):
        for name, asked, what in (("seen", 2, "seen"), ("back", 5, "back in place")):
            said = f"{Spread.of(column(found, name)).text(3)} s"
            lines.append(
                (f"an actor's loss is {what} after, {len(found)} kills", said, f"<= {asked} s")
            )
    if found := where(rows, part="e"):
        said = f"{Spread.of(column(found, 'back')).text(2)} s"
        lines.append((f"a rank of MPI is back in place after, {len(found)} kills", said, "<= 5 s"))
    if found := where(rows, part="c"):
        lines += _schedules(found)
    lines += _supervision(where(rows, part="d"))
    heading = f"CartPole, {machine('real')}; medians and ranges"
    return f"{heading}\n\n{markdown(('what', 'measured', 'asked'), lines)}"


def _ratio(rows: list[Row], task: str) -> list[tuple[str, str, str]]:
    plain, faulty = (where(rows, how=how) for how in ("none", "faults"))
    if not plain or not faulty:
        return []
    times = [f"{Spread.of(column(some, 'seconds')).text()} s" for some in (plain, faulty)]
    ratio = ratio_interval(column(faulty, "seconds"), column(plain, "seconds"))
    n = Spread.of(column(faulty, "kills")).text(0)
    return [
        (f"{task} to the target without faults", times[0], "-"),
        (f"the same, an actor killed every {EVERY:g} s, {n} kills", times[1], "-"),
        ("ratio, 95 % interval", ratio.text(2), "<= 1.5"),
    ]


def _schedules(rows: list[Row]) -> list[tuple[str, str, str]]:
    n = sum(int(row["how"].split()[0]) for row in rows)
    kills, hangs, left = (sum(column(rows, name)) for name in ("kills", "hang", "left"))
    missing = sum(map(abs, column(rows, "missing")))
    return [
        (f"{n} random schedules, {kills:,.0f} kills: runs that hang", f"{hangs:.0f}", "0"),
        ("processes and shared memory left behind", f"{left:.0f}", "0"),
        ("steps that were sent and counted by nobody", f"{missing:,.0f}", "0"),
    ]


def _supervision(rows: list[Row]) -> list[tuple[str, str, str]]:
    with_it, without = (where(rows, how=how) for how in ("default", "restarts=0"))
    if not with_it or not without:
        return []
    lines = []
    for name, what in (("production", "steps/s"), ("startup", "start-up")):
        ratio = ratio_interval(column(with_it, name), column(without, name))
        said = f"{what} with supervision / without it, {len(with_it)} pairs, 95 % interval"
        lines.append((said, ratio.text(3), "within noise of 1"))
    return lines


def main() -> int:
    parser = Options(__doc__)
    parser.add_argument("--parts", type=some_of("abcde"), default="abcd")
    parser.add_seeds()
    parser.add_argument("--target", type=positive, default=300.0, help="mean return of part a")
    parser.add_argument("--seconds", type=positive, default=90.0, help="most of a run of part a")
    parser.add_argument("--kills", type=count, default=24, help="of part b")
    parser.add_argument("--schedules", type=count, default=200, help="of part c")
    parser.add_argument("--pairs", type=count, default=6, help="of part d")
    parser.add_argument("--short", type=positive, default=4.0, help="seconds of a run of part d")
    parser.add_out(OUT / "faults")
    given = parser.parse_args()
    sheet = Sheet(given.out, "faults", COLUMNS)
    with sheet:
        measure(given, sheet)
    if not sheet.rows:
        print("nothing was measured")
        return 1
    text = table(sheet.rows)
    (given.out / "faults.md").write_text(text + "\n")
    print(f"\n{text}\n\nwritten to {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
