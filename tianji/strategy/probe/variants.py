"""A job as it is, and as it would be with other numbers of environments."""

from __future__ import annotations

from dataclasses import replace

from tianji.config import Config
from tianji.core.errors import TianJiError
from tianji.job.job import Job, prepare
from tianji.job.wiring import n_bytes_of
from tianji.strategy.plan.profile import Work
from tianji.strategy.plan.same_job import digest_of, keys_of
from tianji.strategy.probe.larger_batch import scaled

ENVS = (1, 4, 16, 64)  # per actor, besides what the configuration has
MOST_CHOICES = 5  # of environments per actor


def env_choices(job: Job, n_cores: int) -> list[int]:
    """Environments per actor that are worth measuring, those of the configuration first.

    A batch of whole trajectories comes from all environments, so that their number stays as it is
    and only who has them can be chosen.
    """
    own, whole = job.task.env.n_envs, job.task.env.n_envs * job.task.n_actors
    if job.sampling.once:
        counts = [n for n in range(1, n_cores + 1) if whole % n == 0]
        others = [whole // n for n in counts if _fits(job, whole // n)]
    else:
        has_one = job.config.environment.vectorization == "single"
        others = [] if has_one else [envs for envs in ENVS if _is_possible(job, envs)]
    choices = list(dict.fromkeys([own, *others]))
    if len(choices) > MOST_CHOICES:
        kept = sorted(choices[1:])
        step = (len(kept) - 1) / (MOST_CHOICES - 2)
        choices = [own, *(kept[round(i * step)] for i in range(MOST_CHOICES - 1))]
    return list(dict.fromkeys(choices))


def takes_turns(job: Job) -> bool:
    """Whether actors wait while the learner learns, as in synchronous on-policy training."""
    return job.sampling.per_version is not None


def _is_possible(job: Job, envs: int) -> bool:
    """Whether the configuration allows so many: its store may be too small for them."""
    try:
        prepare(variant(job, envs), replace(job.task.env, n_envs=envs))
    except TianJiError:
        return False
    return True


def _fits(job: Job, envs: int) -> bool:
    """Whether the given number of trajectories per batch can be kept with other trajectories."""
    given = getattr(job.task.hyp, "batch_size", None)
    return given is None or envs == job.task.env.n_envs


def variant(job: Job, envs: int) -> Config:
    """The same configuration with another number of environments per actor, in one group."""
    config, parallel = job.config, job.config.parallel
    whole = job.task.env.n_envs * job.task.n_actors
    actors = max(1, whole // envs) if job.sampling.once else 1
    return replace(
        config,
        parallel=replace(
            parallel,
            global_cfg=replace(parallel.global_cfg, group_num=1),
            learner_cfg=replace(parallel.learner_cfg, num=1, cores=None),
            actor_cfg=replace(parallel.actor_cfg, num=actors, envs=envs, cores=None),
            buffer_cfg=replace(parallel.buffer_cfg, cores=None),
        ),
    )


def enlarged(job: Job, factor: int) -> Config | None:
    """The same with larger batches; None where the algorithm has none, or its store no room."""
    try:
        config = scaled(variant(job, job.task.env.n_envs), factor)
        prepare(config, replace(job.task.env, n_envs=config.parallel.actor_cfg.envs))
    except TianJiError:
        return None
    return config


def work_of(job: Job) -> Work:
    """What the job asks for."""
    sampling, learner = job.sampling, job.config.parallel.learner_cfg
    on_policy = sampling.once
    given = getattr(job.task.hyp, "batch_size", None) if on_policy else None
    return Work(
        name=job.config.name,
        digest=digest_of(job.config),
        steps=job.length,
        batch=sampling.batch_units,
        pool=round(sampling.batch_units / sampling.freshness),
        warmup=sampling.warmup,
        ratio=job.ratio,
        envs=job.task.env.n_envs * job.task.n_actors,
        alternates=takes_turns(job),
        weights_bytes=job.weights.n_bytes,
        send_interval=learner.send_interval,
        on_policy=on_policy,
        rollouts=given,
        learners=learner.num,
        fusion_interval=learner.send_root_interval,
        store_bytes=n_bytes_of(job)["store"] // job.config.n_groups,
        slackless=job.in_turns,
        inference=job.config.parallel.actor_cfg.inference,
        keys=keys_of(job.config),
    )
