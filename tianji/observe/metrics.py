"""Every metric of a run, named once with its unit and meaning, and the row that holds them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tianji.core.counts import Count
from tianji.job.job import Job
from tianji.observe.rates import Rates
from tianji.observe.watch import Progress
from tianji.roles.evaluation import Evaluation
from tianji.roles.role_specs import Kind, kind_of


@dataclass(frozen=True)
class Metric:
    """A number that every row has; `<...>` in a name stands for any word."""

    name: str
    unit: str
    meaning: str


METRICS = (
    Metric("wall_s", "seconds", "since the command was started; first in every row"),
    Metric("env_steps", "steps", "environment steps that actors have pushed; the x axis"),
    Metric("updates", "updates", "calls of the algorithm's `learn`, of all groups together"),
    Metric("rollout/ep_rew_mean", "reward", "mean return of the last 100 finished episodes"),
    Metric("rollout/learned_return", "reward", "the same per life and as learned from, clipped"),
    Metric("rollout/ep_len_mean", "steps", "mean length of the last 100 finished episodes"),
    Metric("rollout/win_ratio", "share", "won among the last 100; null where nobody can win"),
    Metric("rollout/episodes", "episodes", "finished episodes so far"),
    Metric("time/fps", "steps/s", "environment steps pushed per second"),
    Metric("time/total_timesteps", "steps", "the same as `env_steps`"),
    Metric("time/time_elapsed", "seconds", "since all roles were ready: training time"),
    Metric("time/resumes", "times", "that the run was taken up again from a checkpoint"),
    Metric("time/restarts", "times", "that a process was lost, and replaced while the run went on"),
    Metric("train/n_updates", "updates", "the same as `updates`"),
    Metric("train/<scalar>", "", "what `learn` returned last, such as `train/loss`"),
    Metric("balance/production", "steps/s", "environment steps that actors push"),
    Metric("balance/receiving", "steps/s", "environment steps that the buffer takes"),
    Metric("balance/consumption", "samples/s", "samples that the learner learns from"),
    Metric("balance/ratio", "", "samples consumed per sample received beyond the warm-up, so far"),
    Metric("balance/target", "", "the ratio that the balance holds (`global_cfg.replay_ratio`)"),
    Metric("balance/awake", "actors", "that live and are not paused (`global_cfg.rebalance`)"),
    Metric("faults/env_restarts", "times", "an environment raised and was made anew so far"),
    Metric("faults/not_finite", "episodes", "discarded for NaN or Inf so far"),
    Metric("faults/lost_episodes", "episodes", "lost to errors of a game such as SMAC so far"),
    Metric("faults/skipped", "updates", "skipped so far: their loss or gradient was not finite"),
    Metric("staleness/mean", "updates", "learner's version minus the version that acted, mean"),
    Metric("staleness/p50", "updates", "the same, median over all samples consumed so far"),
    Metric("staleness/p95", "updates", "the same, 95th percentile"),
    Metric("staleness/max", "updates", "the same, largest"),
    Metric("staleness/dropped", "samples", "refused for their age so far"),
    Metric("staleness/late_priorities", "samples", "whose new priority came too late so far"),
    Metric("staleness/age_p50", "steps", "received since the sample was, median"),
    Metric("staleness/freshness", "share", "batch size over samples in the store (equation 2)"),
    Metric("staleness/new", "share", "consumed samples that had never been consumed before"),
    Metric("staleness/ess", "share", "effective samples of the last batch (PPO, IMPALA)"),
    Metric("staleness/kl", "", "divergence of the policy that learned from it, from who acted"),
    Metric("fusion/n", "fusions", "means of the groups' parameters so far; 0 with one group"),
    Metric(
        "fusion/distance",
        "",
        "of the groups' parameters from their mean before the last fusion, root mean square",
    ),
    Metric(
        "fusion/kl",
        "",
        "divergence of a group's policy after the last fusion from the one before, on some of its "
        "last batch; mean over the groups (PPO, IMPALA)",
    ),
    Metric("comm/refused", "times", "a full channel said no so far: pacing, not an error"),
    Metric("comm/in_queue", "messages", "trajectories and batches that wait to be taken"),
    Metric("comm/bytes_s", "bytes/s", "trajectories, batches, weights and means that roles push"),
    Metric("roles/<role>/busy", "share", "of its process's time that the role worked"),
    Metric(
        "roles/<role>/idle", "share", "of its process's time that nobody there had anything to do"
    ),
    Metric(
        "roles/<role>/wait_<what>",
        "share",
        "of it, by why: weights, room (actor, inference), actions (actor that has no policy), "
        "steps (inference), trajectories, room (buffer: until its learner has "
        "learned), batch, gradients (learner), parameters (reducer)",
    ),
    Metric("roles/<role>/paused", "share", "of its time that it was told to rest (actor)"),
    Metric(
        "roles/<role>/overhead",
        "share",
        "of its process's time: looks in vain, reports, checkpoints; all shares add up to 1",
    ),
    Metric(
        "roles/<role>/rate",
        "1/s",
        "steps pushed (actor), steps taken (buffer), updates (learner), fusions (reducer)",
    ),
    Metric("eval/mean_reward", "reward", "mean return of the last evaluation's games"),
    Metric("eval/std_reward", "reward", "standard deviation of their returns"),
    Metric("eval/iqm", "reward", "mean return of the middle half of them"),
    Metric("eval/win_ratio", "share", "of them that were won; null where nobody can win"),
    Metric("eval/mean_ep_length", "steps", "their mean length"),
    Metric("eval/n", "episodes", "how many were played"),
    Metric("checkpoint/n", "checkpoints", "written so far, since the last start or resume"),
    Metric("checkpoint/seconds", "seconds", "from asking for the last one to having it whole"),
)


@dataclass
class Upkeep:
    """What a run does beside training."""

    resumes: int = 0
    checkpoints: int = 0  # written since it was started or resumed
    checkpoint_seconds: float | None = None  # that the last one took
    evaluation: Evaluation | None = None  # that has come since the last row


def ratio_of(progress: Progress, job: Job) -> float | None:
    """Samples consumed per sample received, as the balance counts: without warm-up and drops."""
    warmup, buffers = job.sampling.warmup, Kind.BUFFER
    received = (
        c[Count.UNITS_RECEIVED] for n, c in progress.counts.items() if kind_of(n) is buffers
    )
    beyond = float(sum(max(0.0, units - warmup) for units in received))  # each warms up by itself
    return progress.total(Count.UNITS_CONSUMED, buffers) / beyond if beyond else None


def row(
    progress: Progress,
    job: Job,
    rates: Rates,
    wall: float,
    elapsed: float,
    upkeep: Upkeep | None = None,
) -> dict[str, Any]:
    """One line of `metrics.jsonl`: plain numbers, None where there is none.

    `wall` counts seconds from the start of the command, `elapsed` from the moment all were ready.
    """
    steps, updates, lengths = progress.produced, progress.updates, progress.lengths
    counts = progress.counts.values()
    stale, upkeep = progress.staleness.summary(), upkeep or Upkeep()
    values: dict[str, Any] = {
        "wall_s": wall,
        "env_steps": steps,
        "updates": updates,
        "rollout/ep_rew_mean": progress.mean_return,
        "rollout/learned_return": progress.learned_return,
        "rollout/win_ratio": progress.win_ratio,
        "rollout/ep_len_mean": sum(lengths) / len(lengths) if lengths else None,
        "rollout/episodes": progress.n_episodes,
        "time/fps": rates.production,
        "time/total_timesteps": steps,
        "time/time_elapsed": elapsed,
        "time/resumes": upkeep.resumes,
        "time/restarts": progress.restarts,
        "train/n_updates": updates,
        **{name_of(scalar): value for scalar, value in progress.scalars.items()},
        "balance/production": rates.production,
        "balance/receiving": rates.receiving,
        "balance/consumption": rates.consumption,
        "balance/ratio": ratio_of(progress, job),
        "balance/target": job.ratio,
        "balance/awake": rates.n_awake,
        "faults/env_restarts": progress.env_restarts,
        "faults/not_finite": progress.not_finite,
        "faults/lost_episodes": progress.lost_episodes,
        "faults/skipped": progress.skipped,
        **{f"staleness/{name}": value for name, value in stale.items()},
        "staleness/dropped": progress.dropped,
        "staleness/late_priorities": progress.late_priorities,
        "staleness/age_p50": progress.age.percentile(0.5),
        "staleness/freshness": progress.freshness if progress.consumed else None,
        "staleness/new": progress.new if progress.consumed else None,
        "fusion/n": progress.fusions,
        "fusion/distance": progress.distance,
        "fusion/kl": progress.fusion_kl,
        "comm/refused": sum(int(c[Count.REFUSED]) for c in counts),
        "comm/in_queue": sum(int(c[Count.QUEUE]) for c in counts),
        "comm/bytes_s": rates.n_bytes,
        "checkpoint/n": upkeep.checkpoints,
        "checkpoint/seconds": upkeep.checkpoint_seconds,
    }
    for name, share in rates.shares.items():
        values |= {
            f"roles/{name}/{what}": value for what, value in share.row(kind_of(name)).items()
        }
        if name in rates.roles:
            values[f"roles/{name}/rate"] = rates.roles[name]
    if upkeep.evaluation is not None:
        values |= evaluation_row(upkeep.evaluation)
    return {name: finite(value) for name, value in values.items()}


def name_of(scalar: str) -> str:
    """As a row has it; an algorithm may say itself what its scalar is about."""
    return scalar if "/" in scalar else f"train/{scalar}"


def evaluation_row(evaluation: Evaluation) -> dict[str, Any]:
    """What the row after an evaluation has besides; all of it stands in `evaluations.jsonl`."""
    return {
        "eval/mean_reward": evaluation.mean,
        "eval/std_reward": evaluation.std,
        "eval/iqm": evaluation.iqm,
        "eval/win_ratio": evaluation.win_ratio,
        "eval/mean_ep_length": sum(evaluation.lengths) / len(evaluation.lengths),
        "eval/n": len(evaluation.returns),
    }


def finite(value: Any) -> Any:
    """`value` as JSON can hold it: floats rounded to six digits, None for NaN and infinities."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None
