"""Metrics: each named once, computed from counters alone."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tianji.config import load
from tianji.core.counts import Count
from tianji.engines.local import LocalEngine
from tianji.job.factory import make_env
from tianji.job.job import Job, prepare
from tianji.observe import metrics
from tianji.observe.bottleneck import bottleneck
from tianji.observe.limits import Limits
from tianji.observe.metrics import METRICS, row
from tianji.observe.rates import Meter, Rates, at_start, homes_in, message_bytes, shares
from tianji.observe.watch import Progress
from tianji.roles.evaluation import Evaluation
from tianji.roles.role_specs import Kind, kind_of, roles_of
from tianji.runs.run import Run

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs"))
import metrics_page  # noqa: E402  # no part of the package

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
        for count, value in counts.get(kind_of(name).word, {}).items():
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
    assert page == metrics_page.page(), "run: python docs/metrics_page.py > docs/metrics.md"
    assert all(f"`{metric.name}`" in page for metric in METRICS)


def test_every_metric_is_named_once_and_explained() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert all(metric.meaning for metric in METRICS)


EVALUATION = Evaluation(returns=(1.0, 2.0, 6.0), lengths=(4, 5, 9), version=3, seed=0)


def rows_of_a_run(job: Job, folder: Path) -> list[dict[str, object]]:
    """The rows of a real, short run in one process, with an evaluation and a checkpoint."""
    run, engine = Run(job, "local", folder, quiet=True, row_seconds=0.2), LocalEngine(job)
    told = False

    def tick(progress: Progress) -> None:
        nonlocal told
        run.tick(progress)
        if progress.updates and not told:
            told = True
            run.evaluated(EVALUATION, progress.produced)
            run.saved(0.5)

    run.finish(engine.train(Limits(job), tick), engine.watch.progress)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    job = job_of(SYNCHRONOUS, "exp.train_steps=6000")
    return rows_of_a_run(job, tmp_path_factory.mktemp("ppo"))


@pytest.fixture(scope="module")
def keys(written: list[dict[str, object]], tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Every key of every row, of a run of either algorithm."""
    job = job_of(ASYNCHRONOUS, "exp.train_steps=700")
    rows = [*written, *rows_of_a_run(job, tmp_path_factory.mktemp("dqn"))]
    return {key for line in rows for key in line}


def covers(metric: metrics.Metric, key: str) -> bool:
    """Whether a key of a row is this metric; `<...>` in a name stands for any word."""
    return re.fullmatch(re.sub("<[^>]*>", "[^/]+", metric.name), key) is not None


def test_every_key_of_a_real_row_is_declared(keys: set[str]) -> None:
    for key in keys:
        assert any(covers(metric, key) for metric in METRICS), key


def test_every_declared_metric_is_in_a_real_row(keys: set[str]) -> None:
    for metric in METRICS:
        assert any(covers(metric, key) for key in keys), metric.name


def test_a_name_of_stable_baselines_leads_to_a_metric(keys: set[str]) -> None:
    assert not [other for other in metrics_page.OTHERS if other.ours not in keys]


def test_an_evaluation_stands_in_the_next_row_and_in_no_other(
    written: list[dict[str, object]],
) -> None:
    told = [line for line in written if "eval/mean_reward" in line]
    assert len(told) == 1
    assert (told[0]["eval/mean_reward"], told[0]["eval/mean_ep_length"]) == (3.0, 6.0)
    assert told[0]["eval/n"] == 3


def test_checkpoints_are_counted_from_the_first_on(written: list[dict[str, object]]) -> None:
    assert (written[0]["checkpoint/n"], written[0]["checkpoint/seconds"]) == (0, None)
    assert (written[-1]["checkpoint/n"], written[-1]["checkpoint/seconds"]) == (1, 0.5)


def test_a_row_begins_with_time_steps_and_updates(written: list[dict[str, object]]) -> None:
    assert all(list(line)[:3] == ["wall_s", "env_steps", "updates"] for line in written)
    assert written[-1]["env_steps"] == written[-1]["time/total_timesteps"]
    assert written[-1]["balance/ratio"] == 1.0


def test_what_is_not_finite_is_written_as_null() -> None:
    job = job_of(ASYNCHRONOUS)
    progress = progress_of(job)
    progress.scalars = {"loss": math.nan, "q": math.inf}
    values = row(progress, job, Rates(), 1.0, 1.0)
    assert values["train/loss"] is None and values["train/q"] is None
    json.dumps(values, allow_nan=False)


def test_rates_are_over_the_last_interval() -> None:
    job = job_of(ASYNCHRONOUS)
    meter = Meter(homes_in(job, "process"))
    first = meter.read(progress_of(job, actor={Count.PRODUCED: 500}), 105.0)
    second = meter.read(progress_of(job, actor={Count.PRODUCED: 700}), 106.0)
    assert (first.production, second.production) == (100.0, 200.0)
    assert second.roles["actor-0.0"] == 200.0


def test_bytes_are_messages_times_their_size() -> None:
    job = job_of(ASYNCHRONOUS)
    sizes = message_bytes(job)
    assert set(sizes) == {role.name for role in roles_of(job.config)}
    meter = Meter(homes_in(job, "process"), message_bytes=sizes)
    pushed = {kind: {Count.PUSHED: 20} for kind in ("learner", "buffer", "actor")}
    assert meter.read(progress_of(job, **pushed), 110.0).n_bytes == 2 * sum(sizes.values())


def test_a_resumed_run_is_not_credited_with_what_it_did_before() -> None:
    job = job_of(ASYNCHRONOUS)
    progress = progress_of(job, actor=times(7, 13) | {Count.PRODUCED: 1_500})
    base = np.zeros(len(Count))
    base[[Count.BUSY_SECONDS, Count.IDLE_SECONDS, Count.PRODUCED]] = (5, 5, 1_000)
    progress.base = {name: base for name in progress.counts if name.startswith("actor")}
    rates = Meter(homes_in(job, "process")).read(progress, 110.0)
    assert rates.production == 50.0
    assert rates.shares["actor-0.0"][:4] == pytest.approx((0.2, 0.8, 0.0, 0.0))


def test_a_role_that_makes_no_samples_has_shares_of_time_and_no_rate() -> None:
    job = job_of(ASYNCHRONOUS)
    progress = progress_of(job)
    progress.counts["evaluator-0.0"] = np.ones(len(Count))
    homes = homes_in(job, "process") | {"evaluator-0.0": "evaluator-0.0"}
    values = row(progress, job, Meter(homes).read(progress, 105.0), 1.0, 1.0)
    assert "roles/evaluator-0.0/busy" in values and "roles/evaluator-0.0/rate" not in values


def test_actors_are_awake_that_live_and_do_not_rest() -> None:
    job = job_of(ASYNCHRONOUS, "actor_cfg.num=4")
    progress = progress_of(job, actor=times(4, 6))
    progress.counts["actor-0.0"][Count.PAUSED_SECONDS] = 10.0
    progress.counts["actor-0.1"][:] = 0.0  # in a step that takes long
    progress.counts["actor-0.2"][:] = 0.0
    progress.lost.append("actor-0.2")
    rates = Meter(homes_in(job, "process")).read(progress, 110.0)
    assert row(progress, job, rates, 1.0, 1.0)["balance/awake"] == pytest.approx(2.5)


def test_readings_that_come_fast_are_over_the_last_second_all_the_same() -> None:
    job = job_of(ASYNCHRONOUS)
    meter = Meter(homes_in(job, "process"), seconds=1.0)
    made = {100.5: 0, 101.0: 100, 101.5: 100, 101.6: 100, 102.0: 400}
    rates = [meter.read(progress_of(job, actor={Count.PRODUCED: n}), at) for at, n in made.items()]
    assert [round(each.production) for each in rates] == [0, 100, 100, 91, 300]


def test_there_are_no_rates_before_all_roles_are_ready() -> None:
    job = job_of(ASYNCHRONOUS)
    progress = progress_of(job)
    progress.started_at = None
    assert Meter(homes_in(job, "process")).read(progress, 5.0) == Rates()


def test_roles_of_one_process_share_its_time() -> None:
    job = job_of(ASYNCHRONOUS)  # the buffer rides with the learner
    progress = progress_of(job, learner=times(6, 3), buffer=times(1, 3), actor=times(2, 8))
    spent = shares(at_start(progress), progress.counts, homes_in(job, "process"))
    assert spent["learner-0.0"][:4] == pytest.approx((0.6, 0.3, 0.0, 0.0))
    assert spent["buffer-0.0"][:4] == pytest.approx((0.1, 0.3, 0.0, 0.0))
    assert spent["actor-0.0"][:4] == pytest.approx((0.2, 0.8, 0.0, 0.0))


def test_waiting_for_the_last_role_to_be_ready_is_not_idle_time() -> None:
    job = job_of(ASYNCHRONOUS)
    progress = progress_of(job, actor=times(4, 10) | {Count.READY_AT: 91.0})
    spent = shares(at_start(progress), progress.counts, homes_in(job, "process"))
    assert spent["actor-0.0"][:4] == pytest.approx((0.8, 0.2, 0.0, 0.0))


def test_the_ratio_counts_neither_warm_up_nor_what_was_dropped() -> None:
    job = job_of(ASYNCHRONOUS, "hyp.warmup_size=500")
    buffer = {Count.RECEIVED: 1_600, Count.DROPPED: 100}
    buffer |= {Count.UNITS_RECEIVED: 1_500, Count.UNITS_CONSUMED: 32_000}
    progress = progress_of(job, buffer=buffer)
    assert metrics.ratio_of(progress, job) == 32.0
    assert metrics.ratio_of(progress_of(job), job) is None
    progress.counts["buffer-1.0"] = np.zeros(len(Count))
    progress.counts["buffer-1.0"][Count.UNITS_RECEIVED] = 400  # a group that still warms up
    assert metrics.ratio_of(progress, job) == 32.0


def test_the_target_of_freshness_is_the_batch_in_the_buffer() -> None:
    job = job_of(ASYNCHRONOUS, "hyp.batch_size=50", "hyp.buffer_size=1000")
    assert job.sampling.freshness == 0.05
    assert job_of(SYNCHRONOUS).sampling.freshness == 1.0


def working(
    learner: tuple[float, float],
    actor: tuple[float, float],
    *overrides: str,
    buffer: tuple[float, float] | None = None,
    produced: float = 0.0,
    consumed: float = 0.0,
    paused: int = 0,
) -> tuple[Job, Progress]:
    """A run of 100 s; `produced` by each actor, the last `paused` of which rested all the time."""
    job = job_of(ASYNCHRONOUS, *overrides)
    progress = progress_of(
        job,
        learner=times(*learner, version=3, consumed=consumed, threads=1),
        buffer=times(*(buffer or (0.0, learner[1]))),
        actor=times(*actor, produced=produced),
    )
    actors = [name for name in progress.counts if kind_of(name) is Kind.ACTOR]
    for name in actors[len(actors) - paused :]:
        progress.counts[name][[Count.BUSY_SECONDS, Count.IDLE_SECONDS, Count.PRODUCED]] = 0.0
        progress.counts[name][Count.PAUSED_SECONDS] = 100.0
    return job, progress


def test_an_idle_learner_means_sample_bound() -> None:
    said = sentence((59, 41), (99, 1), ASYNCHRONOUS)
    assert said == "sample-bound: the learner idles 41 %; more actors or environments would help"


def test_waiting_actors_mean_training_bound() -> None:
    said = sentence((99, 1), (37, 63), ASYNCHRONOUS)
    assert said.startswith("training-bound: the actors wait 63 %; ")


def test_both_waiting_means_communication_bound() -> None:
    job, progress = working((60, 40), (70, 30), produced=7_000, consumed=7_000 * 32)
    assert job.ratio == 32
    said = bottleneck(progress, job)
    assert said == (
        "communication-bound: the learner idles 40 % and the actors 30 %; "
        "larger trajectories or batches: at most +43 %"
    )


def test_a_buffer_that_is_busy_all_the_time_means_communication_bound() -> None:
    own = ("buffer_cfg.cores=1", "learner_cfg.cores=1")
    job, progress = working((40, 60), (95, 5), *own, buffer=(95, 5))
    assert bottleneck(progress, job).startswith("communication-bound: the learner idles 60 %")


def test_a_learner_that_never_waits_is_the_limit_however_busy_its_buffer_is() -> None:
    own = ("buffer_cfg.cores=1", "learner_cfg.cores=1")
    made = {"produced": 1_000, "consumed": 32_000}
    job, progress = working((100, 0), (40, 60), *own, buffer=(90, 10), **made)
    assert bottleneck(progress, job) == (
        "training-bound: the actors wait 60 %; one more learner core, if one is free: "
        "at most +11 %"  # 90 % -> 100 % busy
        "; a lower replay_ratio would help too"
    )


def test_the_next_actor_brings_what_each_makes_up_to_what_the_learner_can_use() -> None:
    for idle, gain in ((40, "+33 %"), (20, "+25 %")):  # three actors; a third more, or a quarter
        busy = 100 - idle
        made = {"produced": 3_000, "consumed": 3 * 3_000 * 32}
        job, progress = working((busy, idle), (100, 0), "actor_cfg.num=3", **made)
        assert bottleneck(progress, job) == (
            f"sample-bound: the learner idles {idle} %; "
            f"one more actor, on a core of its own: about {gain}"
        )


def test_one_more_core_brings_its_share_up_to_what_the_actors_can_make() -> None:
    for idle, gain in ((60, "+100 %"), (40, "+67 %")):
        made = {"produced": 1_000, "consumed": 32_000}
        job, progress = working((100, 0), (100 - idle, idle), **made)
        assert bottleneck(progress, job) == (
            f"training-bound: the actors wait {idle} %; one more learner core, if one is free: "
            f"at most {gain}; a lower replay_ratio would help too"
        )
        progress.counts["learner-0.0"][Count.THREADS] = 4
        assert "at most +25 %" in bottleneck(progress, job)


def test_what_rides_with_the_learner_gains_nothing_by_its_cores() -> None:
    made = {"produced": 1_000, "consumed": 32_000}
    job, progress = working((60, 0), (30, 70), buffer=(40, 0), **made)
    assert "at most +43 %" in bottleneck(progress, job)  # 60 + 40 -> 30 + 40
    progress.counts["buffer-0.0"][Count.APART_SECONDS] = 40.0  # beside the learner
    assert "at most +50 %" in bottleneck(progress, job)  # 60 -> 40, which the buffer takes


def test_updates_that_are_short_gain_little_by_cores() -> None:
    made = {"produced": 1_000, "consumed": 32_000}
    job, progress = working((100, 0), (40, 60), **made)
    progress.counts["learner-0.0"][Count.VERSION] = 111_111
    said = bottleneck(progress, job)
    assert said.startswith("training-bound: the actors wait 60 %; updates of 0.9 ms")
    assert "global_cfg.group_num" in said and "at most +100 %" in said and "replay_ratio" in said
    progress.counts["learner-0.0"][Count.VERSION] = 50_000  # 2 ms
    assert "one more learner core" in bottleneck(progress, job)


def test_advice_that_brings_nothing_is_not_given() -> None:
    job, progress = working((60, 40), (100, 0), produced=100_000, consumed=32_000)
    assert bottleneck(progress, job) == "sample-bound: the learner idles 40 %"
    job, progress = working((60, 40), (70, 30), produced=100_000, consumed=32_000)
    assert bottleneck(progress, job) == (
        "communication-bound: the learner idles 40 % and the actors 30 %"
    )
    own = ("buffer_cfg.cores=1", "learner_cfg.cores=1")
    made = {"produced": 1_000, "consumed": 32_000}
    job, progress = working((100, 0), (40, 60), *own, buffer=(100, 0), **made)
    assert bottleneck(progress, job) == (
        "training-bound: the actors wait 60 %; a lower replay_ratio would help"
    )


def test_one_paused_actor_is_one() -> None:
    made = {"produced": 1_000, "consumed": 32_000, "paused": 1}
    job, progress = working((60, 40), (100, 0), "actor_cfg.num=3", **made)
    assert bottleneck(progress, job).endswith("idles 40 %; 1 actor is paused")


def test_actors_that_were_told_to_rest_do_not_wait() -> None:
    eight = ("actor_cfg.num=8",)
    job, progress = working((98, 2), (96, 4), *eight, paused=6)
    assert bottleneck(progress, job) == "balanced: the learner idles 2 %, the actors 4 %"
    job, progress = working((60, 40), (99, 1), *eight, paused=6)
    assert bottleneck(progress, job).endswith("6 actors are paused")


def test_actors_that_were_lost_do_not_count() -> None:
    job, progress = working((98, 2), (96, 4), "actor_cfg.num=3")
    progress.counts["actor-0.2"][[Count.BUSY_SECONDS, Count.IDLE_SECONDS]] = (1.0, 99.0)
    progress.lost = ["actor-0.2"]
    assert bottleneck(progress, job) == "balanced: the learner idles 2 %, the actors 4 %"


def test_what_limits_the_run_now_is_what_has_happened_since() -> None:
    job, before = working((99, 1), (40, 60))
    progress = progress_of(
        job, learner=times(104, 6, version=4), buffer=times(0, 6), actor=times(50, 60)
    )
    assert bottleneck(progress, job).startswith("training-bound")
    now = bottleneck(progress, job, since=before.counts)
    assert now.startswith("sample-bound: the learner idles 50 %")


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


@pytest.mark.parametrize(("ess", "warns"), [(None, False), (0.9, False), (0.5, False), (0.3, True)])
def test_samples_that_are_too_old_are_told_of_with_what_to_do(
    ess: float | None, warns: bool
) -> None:
    job = job_of(ASYNCHRONOUS)
    progress = progress_of(
        job, learner=times(9, 1, version=3, consumed=10), actor=times(9, 1, produced=10)
    )
    progress.recent_ess.extend([] if ess is None else [ess, ess])
    said = bottleneck(progress, job)
    assert ("hyp.batch_size" in said and "30 %" in said) is warns


@pytest.mark.parametrize(
    ("given", "lower"),
    [
        (("actor_cfg.num=2",), ["update_step", "lr"]),  # max_lag is the least there is
        (("actor_cfg.num=2", "hyp.max_lag=2"), ["update_step", "lr"]),
        (("actor_cfg.num=2", "hyp.max_lag=3", "hyp.update_step=1"), ["max_lag", "lr"]),
        (("hyp.buffer_size=4",), ["buffer_size", "update_step", "lr"]),
    ],
    ids=str,
)
def test_only_what_can_be_lowered_is_advised_against_old_samples(
    given: tuple[str, ...], lower: list[str]
) -> None:
    job = job_of(SYNCHRONOUS, "hyp.mode='async'", *given)
    progress = progress_of(job, learner=times(9, 1, version=3), actor=times(9, 1))
    progress.recent_ess.append(0.1)
    advice = bottleneck(progress, job).partition("or lower ")[2]
    assert re.findall(r"hyp\.(\w+)", advice) == lower


def test_a_run_that_drifted_once_says_so_at_its_end_and_not_while_it_is_well() -> None:
    job = job_of(SYNCHRONOUS, "hyp.mode='async'")
    progress = progress_of(job, learner=times(9, 1, version=3), actor=times(9, 1))
    progress.recent_ess.append(0.9)
    assert progress.least_ess == 0.9
    progress.lowest_ess = 0.2
    assert progress.least_ess == 0.2 and "20 %" in bottleneck(progress, job)
    assert "hyp." not in bottleneck(progress, job, since=at_start(progress))


@pytest.mark.parametrize(("mode", "fresh"), [("sync", True), ("async", False)])
def test_drift_is_measured_at_every_update_of_old_samples(
    tmp_path: Path, mode: str, fresh: bool
) -> None:
    sizes = ("exp.train_steps=1000", "actor_cfg.num=2", "actor_cfg.envs=4")
    job = job_of(SYNCHRONOUS, f"hyp.mode={mode!r}", "hyp.lr=0.05", *sizes)
    engine = LocalEngine(job)
    engine.train(Limits(job))
    progress = engine.watch.progress
    values = row(progress, job, Rates(), 0.0, 1.0)
    assert (values["staleness/ess"] == 1.0) is fresh is (values["staleness/kl"] == 0.0)
    assert 0 < values["staleness/ess"] <= 1.0
    assert progress.ess is not None and (progress.ess == 1.0) is fresh
