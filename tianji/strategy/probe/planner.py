"""From a configuration to a plan: probe, solve, and say what it is worth."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tianji.config import Config, load
from tianji.config.keywords import as_overrides
from tianji.core.errors import TianJiError
from tianji.core.signals import Interrupted, Signals
from tianji.job.job import Job
from tianji.job.preflight import try_out
from tianji.job.validate import check_device
from tianji.machine import resources
from tianji.roles.role_specs import Kind, role_name, roles_of
from tianji.strategy.plan.model import predict
from tianji.strategy.plan.plan_file import Plan
from tianji.strategy.plan.profile import Profile, Work
from tianji.strategy.plan.same_job import batch_apart, digest_of, told_apart
from tianji.strategy.plan.solver import Choice, PlanRequest, possible, ranked
from tianji.strategy.plan.split import Split
from tianji.strategy.probe import MOST_SECONDS
from tianji.strategy.probe.probe import probe
from tianji.strategy.probe.probe_children import Say
from tianji.strategy.probe.variants import work_of

STOPPED = "stopped while measuring: nothing was written"
GROUP_UPDATES = 100  # of a group within exp.train_steps: with fewer it has hardly begun to learn


@dataclass(frozen=True)
class Planned:
    """A plan, with what it was chosen from."""

    plan: Plan
    choices: list[Choice]  # the plan's own first
    configured: Choice | None  # the split that the configuration itself asks for
    note: str | None = None  # why there are not more groups


def measure(
    file: str | Path,
    overrides: list[str],
    cores: int,
    settings: Mapping[str, Any] | None = None,
    say: Say = lambda _: None,
    seconds: float = MOST_SECONDS,
    profile: Profile | None = None,
    refuse: Callable[[Work], None] = lambda _: None,
) -> tuple[Config, Profile]:
    """What `file` describes, and what it costs; `settings` are keys that go into the plan.

    With a `profile` nothing is measured, and it must be of the same configuration. `refuse` raises
    where the costs would be, or are, of no use.
    """
    config = load(file, [*overrides, *as_overrides(settings or {}, "plan")])
    if profile is None:
        with _stoppable():
            return config, probe(_tried(config, refuse), cores, say, seconds)
    apart = batch_apart(profile.work, config)
    if profile.work.digest != digest_of(config):
        apart = told_apart(profile.work, config)
    if apart is not None:
        raise TianJiError(
            f"--profile: these costs are of another configuration ({apart}; --batch-scale and "
            f"--gpu set keys, too): leave --profile out, and {config.name} is measured"
        )
    refuse(profile.work)
    return config, profile


def make(
    config: Config,
    profile: Profile,
    wish: PlanRequest,
    settings: Mapping[str, Any] | None = None,
    batch_scale: int = 1,
) -> Planned:
    """Plans a job by its profile; `settings` are the keys that make its batch so much larger.

    Groups share `exp.train_steps`, and each learns from what its own actors made: the fastest split
    would be one that learns nothing if there were too many of them. Groups that nobody averages
    are trainings apart, of which only one is kept: a host has one, unless more are asked for.
    """
    found, note = possible(profile, wish), None
    fused = config.parallel.global_cfg.use_group_parallel
    most = max(wish.hosts, most_groups(config, profile.work) if fused else 1)
    fewer = found if wish.groups else [choice for choice in found if choice.split.groups <= most]
    choices = ranked(fewer, profile.work)
    if len(fewer) < len(found) and ranked(found, profile.work)[0].split.groups > most:
        limit = f"{GROUP_UPDATES} updates each within exp.train_steps={config.exp.train_steps:,}"
        limit = limit if fused else "since global_cfg.use_group_parallel=False averages none"
        note = f"no more groups ({limit}): change that, or say --groups N"
    own = dict(settings or {})
    env_scale = 1 if own.pop("actor_cfg.envs", None) is None else batch_scale  # the split has them
    plan = Plan(profile, choices[0].split, own, env_scale)
    return Planned(plan, choices, _configured(config, profile, wish), note)


def most_groups(config: Config, work: Work) -> int:
    """Groups that each have enough samples for `GROUP_UPDATES`."""
    updates = config.exp.train_steps * work.ratio / work.batch
    return max(1, int(updates / GROUP_UPDATES))


def _configured(config: Config, profile: Profile, wish: PlanRequest) -> Choice | None:
    """What the configuration itself would do; None if the cores do not suffice for it.

    A group lives on one host, and the first of them on one that has as many as any.
    """
    parallel, work = config.parallel, profile.work
    hosts = min(wish.hosts, config.n_groups)
    beside = [role.home for role in roles_of(config) if role.group < -(-config.n_groups // hosts)]
    try:
        shares = resources.assign(config, tuple(range(wish.cores)), work.alternates, beside)
    except TianJiError:
        return None
    split = Split(
        config.n_groups,
        shares[role_name(Kind.LEARNER)].threads,
        parallel.actor_cfg.num,
        parallel.actor_cfg.envs,
        work.batch,
        work.pool,
        config.n_learners,
        buffer_alone=parallel.buffer_cfg.cores is not None,
        hosts=hosts,
    )
    if wish.cores == split.groups_per_host == split.learning_cores == split.actors == 1:
        split = replace(split, one_core=not work.alternates)  # as a plan for a single core has it
    if split.cores_per_host(work) > wish.cores:
        return None
    return Choice(split, predict(profile, split))


def _tried(config: Config, refuse: Callable[[Work], None]) -> Job:
    """The job that is to be measured; raises for what no measurement can mend."""
    check_device(config)
    resources.refuse_without_gpu(config)
    job = try_out(config)
    refuse(work_of(job))
    return job


@contextmanager
def _stoppable() -> Iterator[None]:
    """Raises `Interrupted` with words to be said where a signal would have ended the command.

    A signal that a program has an answer of its own to, as Python has to Ctrl-C, is left to that.
    """
    open_ = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is signal.SIG_DFL]
    with Signals(open_) as signals:
        signals.at_once = True
        try:
            yield
        except Interrupted as stop:
            raise Interrupted(stop.number, STOPPED) from None
