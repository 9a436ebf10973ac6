"""Measures what tracing or recording costs: the same training with and without, in turns.

    python bench/trace_cost.py --what record

In the local engine two engines, one of them traced, do the same work to the last bit: a block of
rounds of one, then of the other, and the CPU times of neighbouring blocks are compared. In the
process engine pairs of runs are compared by what they produce and consume; that needs quiet cores.
At the end stands what is added to one step of an actor, and what a turn of a loop without tracing
takes, which can be compared with that of another version.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import timeit
from pathlib import Path
from typing import Any

from options import CONFIGS, Options, at_least, count, number_from
from trainings import ENDLESS, summary_of

CASES = {  # name: configuration, what is set, and rounds of a block
    "DQN, limited by its actor": ("cartpole_dqn.py", ["global_cfg.replay_ratio=0.25"], 400),
    "DQN, limited by its learner": ("cartpole_dqn.py", [], 200),
    "PPO, in turns": ("cartpole_ppo.py", [], 256),
}
ENGINES = ("local", "process")
TRACED = {"trace": "exp.trace_seconds=2", "record": "exp.record=True"}
N_STEPS = 500


def blocks(case: str, n_blocks: int, what: str) -> dict[str, list[float]]:
    """CPU time of blocks of rounds, traced / not traced; a block is as long as a report."""
    from tianji.config import load
    from tianji.engines.local import LocalEngine
    from tianji.job.preflight import try_out
    from tianji.observe.replay_record import ReplayRecording

    file, settings, n_rounds = CASES[case]
    recording: ReplayRecording | None = None

    def block(engine: LocalEngine) -> float:
        began = time.thread_time()
        for _ in range(n_rounds):
            engine._round()
        if engine is traced and recording is not None:
            recording.flush()
        spent = time.thread_time() - began
        engine.watch.poll()
        return spent

    with tempfile.TemporaryDirectory() as parent:
        engines = []
        for i, more in enumerate(([TRACED[what]], [])):
            folder = Path(parent) / str(i)
            folder.mkdir()
            config = load(str(CONFIGS / file), [*ENDLESS, *settings, *more])
            engines.append(LocalEngine(try_out(config), folder))
        traced, plain = engines
        if what == "record":  # the engine itself sees no use in it
            recording = ReplayRecording(traced.roles, traced._config, Path(parent) / "0")
        ratios = []
        for i in range(n_blocks):
            pair = {}
            for engine in (traced, plain) if i % 2 else (plain, traced):
                pair[engine is traced] = block(engine)
            ratios.append(pair[True] / pair[False])
    return {"CPU time": ratios[2:]}  # after the first batches


def rates(case: str, seconds: float, repeats: int, what: str) -> dict[str, list[float]]:
    """Production and consumption of pairs of runs, traced / not traced."""
    file, settings, _ = CASES[case]
    ratios: dict[str, list[float]] = {"production": [], "consumption": []}
    for i in range(repeats):
        pair = {}
        for how in (TRACED[what], "") if i % 2 else ("", TRACED[what]):
            words = [*ENDLESS, *settings, *filter(None, [how])]
            pair[how] = summary_of(CONFIGS / file, words, seconds)
        for name, found in ratios.items():
            key = f"{name}_per_second"
            found.append(pair[TRACED[what]][key] / pair[""][key])
    return ratios


def step_seconds() -> tuple[float, float]:
    """What is added to an actor's step: three calls, recording a row or nothing at all."""
    from tianji.core.tracer import NULL, Tracer
    from tianji.observe.trace.format import Heading, Wait
    from tianji.observe.trace.recorder import Recorder, Track

    class Holder:
        tracer: Tracer

    holder = Holder()

    def told() -> None:
        holder.tracer.begin()
        holder.tracer.decided()
        holder.tracer.acted()

    def untold() -> None:
        pass

    with tempfile.TemporaryDirectory() as folder:
        heading = Heading("a", ("a",), "here", 0, 1.0, 100_000, 0.0, "now")
        recorder = Recorder(Path(folder) / "trace" / "a.trace", heading)
        found = []
        for holder.tracer in (Track(recorder, 0, lambda: Wait.BALANCE), NULL):
            found.append(best(told) - best(untold))
    return found[0], found[1]


def turn_seconds() -> float:
    """Of a turn of a loop, untraced, of three roles that have nothing to do."""
    from tianji.core.channel import ChannelSpec
    from tianji.core.counts import report_schema
    from tianji.engines.worker_loop import Loop
    from tianji.roles.role import Role
    from tianji.transports.local import LocalTransport

    class Lazy(Role):
        def step(self) -> bool:
            return False

    names = [f"role-0.{i}" for i in range(3)]
    specs = [ChannelSpec(f"report {name}", name, (), report_schema()) for name in names]
    ports: Any = LocalTransport(specs)
    return best(Loop([Lazy(name) for name in names], ports)._turn)


def best(call: Any) -> float:
    """Seconds of one call, the fastest of many short measurements: load does not matter."""
    return min(timeit.repeat(call, number=N_STEPS, repeat=2_000)) / N_STEPS


def line(case: str, engine: str, what: str, ratios: list[float]) -> str:
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return (
        f"| {case} | {engine} | {what} | {middle:.3f} ({low:.3f} to {high:.3f}) | {len(ratios)} |"
    )


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("--what", choices=TRACED, default="trace", help="what is switched on")
    parser.add_argument("--engines", nargs="*", choices=ENGINES, default=ENGINES)
    parser.add_argument("--blocks", type=at_least(4), default=60, help="pairs in the local engine")
    parser.add_argument("--repeats", type=count, default=7, help="pairs of runs in processes")
    parser.add_argument("--seconds", type=number_from(2), default=5.0, help="of a run in processes")
    options = parser.parse_args()
    if options.engines:
        print("| training | engine | what | with / without, median (quartiles) | pairs |")
        print("|---|---|---|---|---|")
    for engine in options.engines:
        for case in CASES:
            found = (
                blocks(case, options.blocks, options.what)
                if engine == "local"
                else rates(case, options.seconds, options.repeats, options.what)
            )
            for what, ratios in found.items():
                print(line(case, engine, what, ratios), flush=True)
    if options.what == "record":
        return
    traced, plain = step_seconds()
    print(f"\na step of an actor is longer by {traced * 1e6:.2f} us, untraced {plain * 1e6:.3f} us")
    print(f"a turn of three idle roles, untraced: {turn_seconds() * 1e6:.2f} us")


if __name__ == "__main__":
    main()
