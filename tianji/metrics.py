"""Every metric of a run, named once with its unit and meaning, and how each is computed."""

from __future__ import annotations

import math
import platform
import struct
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tianji.counts import Count, Vector
from tianji.roster import Kind, roles_of
from tianji.topology import Job
from tianji.watch import Progress


@dataclass(frozen=True)
class Metric:
    """A number that is written down once a second; `<...>` in a name stands for any word."""

    name: str
    unit: str
    meaning: str

    def covers(self, key: str) -> bool:
        """Whether a key of a row is this metric."""
        parts, given = self.name.split("/"), key.split("/")
        same = (p == g or p.startswith("<") for p, g in zip(parts, given, strict=False))
        return len(parts) == len(given) and all(same)


METRICS = (
    Metric("wall_s", "seconds", "since the command was started; first in every row"),
    Metric("env_steps", "steps", "environment steps that actors have pushed; the x axis"),
    Metric("updates", "updates", "calls of the algorithm's `learn`"),
    Metric("rollout/ep_rew_mean", "reward", "mean return of the last 100 finished episodes"),
    Metric("rollout/ep_len_mean", "steps", "mean length of the last 100 finished episodes"),
    Metric("rollout/episodes", "episodes", "finished episodes so far"),
    Metric("time/fps", "steps/s", "environment steps pushed per second"),
    Metric("time/total_timesteps", "steps", "the same as `env_steps`"),
    Metric("time/time_elapsed", "seconds", "since all roles were ready: training time"),
    Metric("train/n_updates", "updates", "the same as `updates`"),
    Metric("train/<scalar>", "", "what `learn` returned last, such as `train/loss`"),
    Metric("balance/production", "steps/s", "environment steps that actors push"),
    Metric("balance/receiving", "steps/s", "environment steps that the buffer takes"),
    Metric("balance/consumption", "samples/s", "samples that the learner learns from"),
    Metric("balance/ratio", "", "samples consumed per sample received beyond the warm-up, so far"),
    Metric("balance/target", "", "the ratio that the balance holds (`global_cfg.replay_ratio`)"),
    Metric("staleness/mean", "updates", "learner's version minus the version that acted, mean"),
    Metric("staleness/p50", "updates", "the same, median over all samples consumed so far"),
    Metric("staleness/p95", "updates", "the same, 95th percentile"),
    Metric("staleness/max", "updates", "the same, largest"),
    Metric("staleness/dropped", "samples", "refused for their age so far"),
    Metric("staleness/age_p50", "steps", "received since the sample was, median"),
    Metric("staleness/freshness", "share", "batch size over samples in the store (equation 2)"),
    Metric("staleness/new", "share", "consumed samples that had never been consumed before"),
    Metric("comm/refused", "times", "a full channel said no so far: pacing, not an error"),
    Metric("comm/in_queue", "messages", "trajectories and batches that wait to be taken"),
    Metric("roles/<role>/busy", "share", "of its process's time that the role worked"),
    Metric(
        "roles/<role>/idle", "share", "of its process's time that nobody there had anything to do"
    ),
    Metric(
        "roles/<role>/rate", "1/s", "steps pushed (actor), steps taken (buffer), updates (learner)"
    ),
)

WORK = {"actor": Count.PRODUCED, "buffer": Count.RECEIVED, "learner": Count.VERSION}
"""The counter by which the rate of each kind of role is measured."""

Counts = Mapping[str, Vector]  # by role


def kind_of(role: str) -> str:
    """`actor` of `actor-0.3`."""
    return role.partition("-")[0]


class TimeShare(NamedTuple):
    """Where the time of a role went; the rest is that of roles in the same process."""

    busy: float  # in steps that did something
    idle: float  # its process had nothing to do


NOTHING = TimeShare(0.0, 0.0)


@dataclass(frozen=True)
class Rates:
    """How fast things went over an interval."""

    production: float = 0.0  # steps per second
    receiving: float = 0.0  # steps per second
    consumption: float = 0.0  # samples per second
    roles: dict[str, float] = field(default_factory=dict)  # work per second, as in `WORK`
    shares: dict[str, TimeShare] = field(default_factory=dict)


class Meter:
    """Turns counters into rates over the last `window` readings.

    A reading that comes right after another replaces it: a rate over next to no time says nothing.
    """

    def __init__(
        self, homes: Mapping[str, str], window: int = 1, soonest_seconds: float = 0.0
    ) -> None:
        self._homes = homes
        self._soonest = soonest_seconds
        self._readings: deque[tuple[float, Counts]] = deque(maxlen=window + 1)

    def read(self, progress: Progress, now: float) -> Rates:
        """The rates from the oldest reading in the window, at first from the start, until now."""
        if progress.started_at is None:
            return Rates()
        if not self._readings:
            self._readings.append((progress.started_at, at_start(progress)))
        if len(self._readings) > 1 and now - self._readings[-1][0] < self._soonest:
            self._readings.pop()
        self._readings.append((now, dict(progress.counts)))
        (began, before), after = self._readings[0], progress.counts
        return _rates(before, after, max(now - began, 1e-3), self._homes)


def _rates(before: Counts, after: Counts, seconds: float, homes: Mapping[str, str]) -> Rates:
    per_role = {
        name: float(counts[WORK[kind_of(name)]] - before[name][WORK[kind_of(name)]]) / seconds
        for name, counts in after.items()
    }
    totals = dict.fromkeys(WORK, 0.0)
    for name, rate in per_role.items():
        totals[kind_of(name)] += rate
    learned = sum(float(c[Count.CONSUMED] - before[n][Count.CONSUMED]) for n, c in after.items())
    spent = shares(before, after, homes)
    return Rates(totals["actor"], totals["buffer"], learned / seconds, per_role, spent)


def at_start(progress: Progress) -> Counts:
    """The counters when all roles were ready: nothing but waiting for the last of them."""
    counts = {}
    for name, now in progress.counts.items():
        ready, counts[name] = now[Count.READY_AT], np.zeros(len(Count))
        if progress.started_at is not None and ready:
            waited = min(progress.started_at - ready, now[Count.IDLE_SECONDS])
            counts[name][Count.IDLE_SECONDS] = waited
    return counts


def homes_in(job: Job, engine: str) -> dict[str, str]:
    """Which process each role lives in; the local engine has only one."""
    return {role.name: "here" if engine == "local" else role.home for role in roles_of(job.config)}


def shares(before: Counts, after: Counts, homes: Mapping[str, str]) -> dict[str, TimeShare]:
    """Where the time of every role went; roles that live together share one time."""
    spent = {n: (c - before[n])[[Count.BUSY_SECONDS, Count.IDLE_SECONDS]] for n, c in after.items()}
    together: dict[str, list[Vector]] = {}
    for name, times in spent.items():
        together.setdefault(homes[name], []).append(times)
    whole = {h: sum(t[0] for t in all_) + max(t[1] for t in all_) for h, all_ in together.items()}
    return {
        name: TimeShare(*(times / whole[homes[name]]).tolist())
        if whole[homes[name]] > 0
        else NOTHING
        for name, times in spent.items()
    }


def ratio_of(progress: Progress, job: Job) -> float | None:
    """Samples consumed per sample received, as the balance counts: without warm-up and drops."""
    beyond = progress.total(Count.UNITS_RECEIVED, Kind.BUFFER) - job.sampling.warmup
    return progress.total(Count.UNITS_CONSUMED, Kind.BUFFER) / beyond if beyond > 0 else None


def row(progress: Progress, job: Job, rates: Rates, wall: float, elapsed: float) -> dict[str, Any]:
    """One line of `metrics.jsonl`: plain numbers, None where there is none.

    `wall` counts seconds from the start of the command, `elapsed` from the moment all were ready.
    """
    steps, updates, lengths = progress.produced, progress.updates, progress.lengths
    counts = progress.counts.values()
    stale = progress.staleness.summary()
    values: dict[str, Any] = {
        "wall_s": wall,
        "env_steps": steps,
        "updates": updates,
        "rollout/ep_rew_mean": progress.mean_return,
        "rollout/ep_len_mean": sum(lengths) / len(lengths) if lengths else None,
        "rollout/episodes": progress.n_episodes,
        "time/fps": rates.production,
        "time/total_timesteps": steps,
        "time/time_elapsed": elapsed,
        "train/n_updates": updates,
        **{f"train/{name}": value for name, value in progress.scalars.items()},
        "balance/production": rates.production,
        "balance/receiving": rates.receiving,
        "balance/consumption": rates.consumption,
        "balance/ratio": ratio_of(progress, job),
        "balance/target": job.ratio,
        **{f"staleness/{name}": value for name, value in stale.items()},
        "staleness/dropped": progress.dropped,
        "staleness/age_p50": progress.age.percentile(0.5),
        "staleness/freshness": progress.freshness if progress.consumed else None,
        "staleness/new": progress.new if progress.consumed else None,
        "comm/refused": sum(int(c[Count.REFUSED]) for c in counts),
        "comm/in_queue": sum(int(c[Count.QUEUE]) for c in counts),
    }
    for name, share in rates.shares.items():
        values |= {f"roles/{name}/busy": share.busy, f"roles/{name}/idle": share.idle}
        values[f"roles/{name}/rate"] = rates.roles[name]
    return {name: finite(value) for name, value in values.items()}


def finite(value: Any) -> Any:
    """`value` as JSON can hold it: floats rounded to six digits, None for NaN and infinities."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def takes_turns(job: Job, engine: str) -> bool:
    """Whether acting and learning alternate by design, so that idle time is no fault of either."""
    return engine == "local" or getattr(job.sampling, "per_version", None) is not None


ENOUGH_IDLE = 0.15  # share of idle time from which a role counts as waiting for another


def bottleneck(progress: Progress, job: Job, engine: str = "process") -> str:
    """One sentence on what limits the run, from the shares of time that the roles were idle."""
    if not progress.updates:
        return _before_learning(progress, job)
    spent = shares(at_start(progress), progress.counts, homes_in(job, engine))
    learner, buffer, actors = (_mean(spent, kind) for kind in ("learner", "buffer", "actor"))
    if takes_turns(job, engine):
        acting = actors.busy * (job.task.n_actors if engine == "local" else 1)
        whole = learner.busy + acting or 1.0  # each counts the moments in which it wakes the other
        words = f"in turns: {learner.busy / whole:.0%} learning, {acting / whole:.0%} acting"
    else:
        words = _who_waits(learner.idle, actors.idle, buffer.busy, job.ratio)
    return words.replace("%", " %")


def _before_learning(progress: Progress, job: Job) -> str:
    if progress.started_at is None:
        ready = sum(1 for counts in progress.counts.values() if counts[Count.READY_AT])
        return f"starting: {ready} of {len(progress.counts)} roles are ready"
    warmup = job.sampling.warmup
    if progress.received < warmup:
        return f"warming up: {progress.received:,} of {warmup:,} samples"
    return "waiting: no update yet"


def _who_waits(learner_idle: float, actors_idle: float, buffer_busy: float, ratio: float) -> str:
    if min(learner_idle, actors_idle) > ENOUGH_IDLE and buffer_busy > 1.0 - ENOUGH_IDLE:
        return (
            f"buffer-bound: the learner idles {learner_idle:.0%} and the actors {actors_idle:.0%}: "
            "larger batches or trajectories would help"
        )
    if learner_idle > max(ENOUGH_IDLE, actors_idle):
        return (
            f"production-bound: the learner idles {learner_idle:.0%}: "
            "more actors or environments would help"
        )
    if actors_idle > ENOUGH_IDLE:
        return (
            f"consumption-bound: the actors wait {actors_idle:.0%} of the time for the learner: "
            + ("a lower replay_ratio, " if ratio > 1 else "")
            + "more learner cores or fewer actors would help"
        )
    return f"balanced: the learner idles {learner_idle:.0%}, the actors {actors_idle:.0%}"


def _mean(spent: Mapping[str, TimeShare], kind: str) -> TimeShare:
    chosen = [share for name, share in spent.items() if kind_of(name) == kind]
    if not chosen:
        return NOTHING
    return TimeShare(*(sum(times) / len(chosen) for times in zip(*chosen, strict=True)))


LARGEST = 3e38  # that a TensorBoard scalar, of 32 bits, can hold


class Events:
    """A TensorBoard event file of scalars.

    The libraries that write such files load torch: a second and 200 MB that a launcher has no use
    for. The format is small: records of a length, a serialised `Event` and a checksum of either.
    """

    def __init__(self, folder: Path) -> None:
        name = f"events.out.tfevents.{int(time.time()):010d}.{platform.node() or 'localhost'}"
        self._file = (folder / name).open("xb")
        self._record(_field(3, b"brain.Event:2"))

    def add(self, scalars: Mapping[str, float | int | None], step: int) -> None:
        """Writes every scalar that such a file can hold, at one point of the x axis."""
        values = b"".join(
            _field(1, _field(1, name.encode()) + b"\x15" + struct.pack("<f", value))
            for name, value in scalars.items()
            if value is not None and abs(value) < LARGEST
        )
        self._record(b"\x10" + _varint(step) + _field(5, values))

    def _record(self, event: bytes) -> None:
        event = b"\x09" + struct.pack("<d", time.time()) + event
        length = struct.pack("<Q", len(event))
        self._file.write(length + _checksum(length) + event + _checksum(event))
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protocol buffer."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _crc_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ 0x82F63B78 * (crc & 1) for crc in table]
    return table


_CRC_TABLE = _crc_table()


def _checksum(data: bytes) -> bytes:
    """CRC-32C, rotated and shifted as the record format wants it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


PAGE = """# Metrics

While a run goes on, one row of metrics a second is added to `metrics.jsonl` in its folder, and the
same numbers to a TensorBoard event file beside it (`tensorboard --logdir runs`). Names follow
Stable-Baselines3 where it has one. Rates and the shares of busy and idle time are over the last
interval, from one row to the next; everything else is so far. A number that does not exist yet, or
is not finite, is `null`. Produced, received and consumed are counted in valid environment steps,
for every algorithm.

`<role>` is the name of a role, as in `actor-0.3`: group 0, actor 3. `<scalar>` is whatever the
algorithm's `learn` returns.

This page is generated: `python -m tianji.metrics > docs/metrics.md`.

| metric | unit | meaning |
|---|---|---|
"""


def page() -> str:
    """The text of docs/metrics.md."""
    return PAGE + "".join(f"| `{m.name}` | {m.unit} | {m.meaning} |\n" for m in METRICS)


if __name__ == "__main__":
    print(page(), end="")
