"""Metrics: each named once, computed from counters alone."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tianji import metrics
from tianji.config import load
from tianji.counts import Count
from tianji.engines.local import LocalEngine
from tianji.metrics import METRICS, Events, Meter, bottleneck, homes_in, row
from tianji.run import Run
from tianji.topology import Job, make_env, prepare, roles_of
from tianji.watch import Limits, Progress

ROOT = Path(__file__).parents[2]
ASYNCHRONOUS, SYNCHRONOUS = "cartpole_dqn.py", "cartpole_ppo.py"


def job_of(name: str, *overrides: str) -> Job:
    config = load(ROOT / "tests" / "tasks" / name, overrides)
    env = make_env(config)
    env.close()
    return prepare(config, env.spec)


def progress_of(job: Job, **counts: dict[Count, float]) -> Progress:
    """All roles ready at 100 s; `learner`, `buffer` and `actor` say what their kind has counted."""
    progress = Progress({role.name: np.zeros(len(Count)) for role in roles_of(job.config)})
    for name, vector in progress.counts.items():
        vector[Count.READY_AT] = 100.0
        for count, value in counts.get(metrics.kind_of(name), {}).items():
            vector[count] = value
    progress.started_at = 100.0
    return progress


def times(busy: float, idle: float, **others: float) -> dict[Count, float]:
    named = {Count[name.upper()]: value for name, value in others.items()}
    return {Count.BUSY_SECONDS: busy, Count.IDLE_SECONDS: idle} | named


def sentence(learner: tuple[float, float], actor: tuple[float, float], name: str) -> str:
    job = job_of(name)
    progress = progress_of(job, learner=times(*learner, version=3), actor=times(*actor))
    return bottleneck(progress, job)


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == metrics.page(), "run: python -m tianji.metrics > docs/metrics.md"
    assert all(f"`{metric.name}`" in page for metric in METRICS)


def test_every_metric_is_named_once_and_explained() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert all(metric.meaning for metric in METRICS)


def test_a_pattern_covers_names_of_its_length_only() -> None:
    pattern = metrics.Metric("roles/<role>/busy", "share", "")
    assert pattern.covers("roles/actor-0.3/busy")
    assert not pattern.covers("roles/actor-0.3/idle")
    assert not pattern.covers("roles/busy")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """The rows of a real, short run in one process."""
    folder = tmp_path_factory.mktemp("run")
    job = job_of(SYNCHRONOUS, "exp.train_steps=6000")
    run, engine = Run(job, "local", folder, quiet=True), LocalEngine(job)
    status = engine.train(Limits(job), run.tick)
    run.finish(status, engine.watch.progress)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_every_key_of_a_real_row_is_declared(written: list[dict[str, object]]) -> None:
    for key in {key for line in written for key in line}:
        assert any(metric.covers(key) for metric in METRICS), key


def test_every_declared_metric_is_in_a_real_row(written: list[dict[str, object]]) -> None:
    for metric in METRICS:
        assert any(metric.covers(key) for key in written[-1]), metric.name


def test_a_row_begins_with_time_steps_and_updates(written: list[dict[str, object]]) -> None:
    assert all(list(line)[:3] == ["wall_s", "env_steps", "updates"] for line in written)
    assert written[-1]["env_steps"] == written[-1]["time/total_timesteps"]
    assert written[-1]["balance/ratio"] == 1.0


def test_what_is_not_finite_is_written_as_null() -> None:
    job = job_of(ASYNCHRONOUS)
    progress = progress_of(job)
    progress.scalars = {"loss": math.nan, "q": math.inf}
    values = row(progress, job, metrics.Rates(), 1.0, 1.0)
    assert values["train/loss"] is None and values["train/q"] is None
    json.dumps(values, allow_nan=False)


def test_rates_are_over_the_last_interval() -> None:
    job = job_of(ASYNCHRONOUS)
    meter = Meter(homes_in(job, "process"))
    first = meter.read(progress_of(job, actor={Count.PRODUCED: 500}), 105.0)
    second = meter.read(progress_of(job, actor={Count.PRODUCED: 700}), 106.0)
    assert (first.production, second.production) == (100.0, 200.0)
    assert second.roles["actor-0.0"] == 200.0


def test_a_reading_right_after_another_replaces_it() -> None:
    job = job_of(ASYNCHRONOUS)
    meter = Meter(homes_in(job, "process"), soonest_seconds=0.5)
    meter.read(progress_of(job, actor={Count.PRODUCED: 100}), 101.0)
    rates = meter.read(progress_of(job, actor={Count.PRODUCED: 100}), 101.001)
    assert rates.production == pytest.approx(100, rel=0.01)


def test_there_are_no_rates_before_all_roles_are_ready() -> None:
    job = job_of(ASYNCHRONOUS)
    progress = progress_of(job)
    progress.started_at = None
    assert Meter(homes_in(job, "process")).read(progress, 5.0) == metrics.Rates()


def test_roles_of_one_process_share_its_time() -> None:
    job = job_of(ASYNCHRONOUS)  # the buffer rides with the learner
    progress = progress_of(job, learner=times(6, 3), buffer=times(1, 3), actor=times(2, 8))
    spent = metrics.shares(metrics.at_start(progress), progress.counts, homes_in(job, "process"))
    assert spent["learner-0.0"] == pytest.approx((0.6, 0.3))
    assert spent["buffer-0.0"] == pytest.approx((0.1, 0.3))
    assert spent["actor-0.0"] == pytest.approx((0.2, 0.8))


def test_waiting_for_the_last_role_to_be_ready_is_not_idle_time() -> None:
    job = job_of(ASYNCHRONOUS)
    progress = progress_of(job, actor=times(4, 10) | {Count.READY_AT: 91.0})
    spent = metrics.shares(metrics.at_start(progress), progress.counts, homes_in(job, "process"))
    assert spent["actor-0.0"] == pytest.approx((0.8, 0.2))


def test_the_ratio_counts_neither_warm_up_nor_what_was_dropped() -> None:
    job = job_of(ASYNCHRONOUS, "hyp.warmup_size=500")
    buffer = {Count.RECEIVED: 1_600, Count.DROPPED: 100}
    buffer |= {Count.UNITS_RECEIVED: 1_500, Count.UNITS_CONSUMED: 32_000}
    progress = progress_of(job, buffer=buffer)
    assert metrics.ratio_of(progress, job) == 32.0
    assert metrics.ratio_of(progress_of(job), job) is None


def test_the_target_of_freshness_is_the_batch_in_the_buffer() -> None:
    job = job_of(ASYNCHRONOUS, "hyp.batch_size=50", "hyp.buffer_size=1000")
    assert job.sampling.freshness == 0.05
    assert job_of(SYNCHRONOUS).sampling.freshness == 1.0


def test_an_idle_learner_means_production_bound() -> None:
    said = sentence((59, 41), (99, 1), ASYNCHRONOUS)
    assert said == (
        "production-bound: the learner idles 41 %: more actors or environments would help"
    )


def test_waiting_actors_mean_consumption_bound() -> None:
    said = sentence((99, 1), (37, 63), ASYNCHRONOUS)
    assert said.startswith("consumption-bound: the actors wait 63 % of the time for the learner")


def test_nobody_waiting_means_balanced() -> None:
    said = sentence((96, 4), (93, 7), ASYNCHRONOUS)
    assert said == "balanced: the learner idles 4 %, the actors 7 %"


def test_a_synchronous_run_goes_in_turns() -> None:
    said = sentence((62, 38), (35, 65), SYNCHRONOUS)
    assert said == "in turns: 64 % learning, 36 % acting"


def test_in_one_process_the_actors_share_one_turn() -> None:
    job = job_of(ASYNCHRONOUS, "actor_cfg.num=2")
    progress = progress_of(job, learner=times(60, 0, version=1), actor=times(20, 0))
    assert bottleneck(progress, job, "local") == "in turns: 60 % learning, 40 % acting"


def test_before_the_first_update_it_says_what_is_awaited() -> None:
    job = job_of(ASYNCHRONOUS, "hyp.warmup_size=500")
    progress = progress_of(job, buffer={Count.RECEIVED: 300})
    assert bottleneck(progress, job) == "warming up: 300 of 500 samples"
    progress.started_at = None
    assert bottleneck(progress, job) == "starting: 3 of 3 roles are ready"


def records(data: bytes) -> Iterator[bytes]:
    """The records of an event file; the checksum of a length vouches for it."""
    while data:
        length = struct.unpack("<Q", data[:8])[0]
        assert data[8:12] == metrics._checksum(data[:8])
        event, data = data[12 : 12 + length], data[12 + length :]
        assert data[:4] == metrics._checksum(event)
        yield event
        data = data[4:]


def test_an_event_file_holds_its_scalars(tmp_path: Path) -> None:
    events = Events(tmp_path)
    events.add({"train/loss": 0.5, "missing": None, "huge": 1e300}, step=300)
    events.close()
    version, scalars = records(next(tmp_path.iterdir()).read_bytes())
    assert version[9:] == b"\x1a\x0dbrain.Event:2"
    value = b"\x0a\x0atrain/loss\x15" + struct.pack("<f", 0.5)
    assert scalars[9:] == b"\x10\xac\x02" + b"\x2a\x13" + b"\x0a\x11" + value


def test_the_checksum_is_the_one_of_the_record_format() -> None:
    crc = 0xE3069283  # of the nine digits, by the definition of CRC-32C
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert metrics._checksum(b"123456789") == struct.pack("<I", masked)
