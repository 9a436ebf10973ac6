"""When a run counts as solved, and what is kept of its episodes."""

import numpy as np
import pytest
from carrying import carried
from commands import ROOT

from tianji.config import load
from tianji.core.counts import Count
from tianji.core.status import Status
from tianji.job.factory import make_env
from tianji.job.job import prepare
from tianji.job.wiring import channels_of
from tianji.observe.limits import Limits
from tianji.observe.rates import at_start, homes_in, shares
from tianji.observe.times import Times
from tianji.observe.watch import LOOKS, Watch
from tianji.roles.episodes import EPISODES_PER_MESSAGE
from tianji.roles.role_specs import roles_of
from tianji.transports.local import LocalTransport


@pytest.fixture
def made():
    config = load(ROOT / "configs" / "cartpole_ppo.py", ("exp.stop_return=10", "actor_cfg.num=2"))
    job = prepare(config, make_env(config).spec)
    return job, LocalTransport(channels_of(job))


@pytest.fixture
def stage(made):
    job, transport = made
    outboxes = [transport.outbox(f"episodes actor-0.{i}") for i in range(2)]
    return Watch(job, transport), outboxes


def push(outbox, returned, ended_at, learned=None):
    n = len(ended_at)
    slot = outbox.slot()
    slot["learned"][:n] = returned if learned is None else learned
    slot["n"][...] = n
    slot["returned"][:n], slot["length"][:n], slot["ended_at"][:n] = returned, 1, ended_at
    outbox.commit(0)
    assert n <= EPISODES_PER_MESSAGE


@pytest.fixture
def groups():
    """A watch over two groups of two learners, and what they report with."""
    keys = ("global_cfg.group_num=2", "learner_cfg.num=2", "global_cfg.exit_val.fusion_step=3")
    config = load(ROOT / "configs" / "cartpole_dqn.py", keys)
    job = prepare(config, make_env(config).spec)
    transport = LocalTransport(channels_of(job))
    names = [role.name for role in roles_of(config)]
    return (
        Watch(job, transport),
        Limits(job),
        {name: transport.outbox(f"report {name}") for name in names},
    )


def say(outbox, staleness=(), scalars=None, **counts):
    slot = outbox.slot()
    for array in slot.values():
        array[...] = 0
    for name, value in counts.items():
        slot["counts"][Count[name]] = value
    for value in staleness:
        slot["staleness"][value] += 1
    if scalars is not None:
        slot["scalars"][...] = scalars
    outbox.commit(0)


def test_what_groups_have_done_is_added_up(groups):
    watch, _, outboxes = groups
    for group in (0, 1):
        for i in (0, 1):
            values = {"VERSION": 10 + group, "CONSUMED": 100, "FIRST_CONSUMED_AT": 50 - group}
            stale = {"staleness": (group, 3), "scalars": 2.0 * i}
            say(outboxes[f"learner-{group}.{i}"], **values, **stale)
        say(outboxes[f"buffer-{group}.0"], RECEIVED=7)
        say(outboxes[f"actor-{group}.0"], PRODUCED=9)
    progress = watch.poll()
    assert (progress.updates, progress.version) == (21, 10)  # two learners, one update
    assert (progress.consumed, progress.received, progress.produced) == (400, 14, 18)
    assert progress.staleness.rows() == [(0, 2), (1, 2), (3, 4)]
    assert set(progress.scalars.values()) == {1.0}
    assert Times(40.0).first_consumed(progress) == 9.0
    assert (progress.fusions, progress.distance) == (0, None)


def test_so_many_fusions_end_a_run(groups):
    watch, limits, outboxes = groups
    say(outboxes["reducer-0.0"], FUSIONS=2, DISTANCE=0.5)
    progress = watch.poll()
    assert (limits.reached(progress), progress.distance) == (None, 0.5)
    assert progress.fusion_kl is None
    for group in (0, 1):
        say(outboxes[f"learner-{group}.0"], FUSION_KL=0.02 + 0.02 * group)
    assert watch.poll().fusion_kl == pytest.approx(0.03)
    say(outboxes["reducer-0.0"], FUSIONS=3, DISTANCE=0.25)
    assert limits.reached(watch.poll()) is Status.FINISHED


def test_the_worst_drift_of_a_run_is_kept_and_so_after_a_resume(stage, made):
    watch, _ = stage
    job, transport = made
    learner = transport.outbox("report learner-0.0")
    for version in range(1, 3 * LOOKS):
        say(learner, scalars=0.2 if version <= LOOKS else 0.9, VERSION=version)
        progress = watch.poll()
    again = Watch(job, transport)
    again.restore(carried(watch.state()))
    assert [progress.ess, progress.least_ess] == pytest.approx([0.9, 0.2])
    assert again.progress.least_ess is None
    say(learner, scalars=0.9, VERSION=version + 1)
    assert again.poll().least_ess == pytest.approx(0.2)


def test_it_takes_a_hundred_episodes(stage):
    watch, (one, _) = stage
    push(one, 50.0, np.arange(60))
    assert watch.poll().solved_at is None
    push(one, 50.0, np.arange(60, 99))
    assert watch.poll().solved_at is None
    push(one, 50.0, [99])
    assert watch.poll().solved_at == 99


def test_a_late_message_does_not_make_the_time_shorter(stage):
    watch, (one, two) = stage
    push(one, 50.0, np.arange(60))
    push(one, 50.0, np.arange(60, 99))
    watch.poll()
    push(two, 50.0, [3.0])  # ended long ago, and comes last
    assert watch.poll().solved_at == 98


def test_the_window_stays_as_it_was_when_the_target_was_reached(stage):
    watch, (one, _) = stage
    push(one, 10.0, np.arange(60))
    push(one, 10.0, np.arange(60, 100))
    assert watch.poll().solved_at is not None
    push(one, 0.0, np.arange(100, 150))
    progress = watch.poll()
    assert progress.mean_return == 10.0
    assert progress.n_episodes == 150


def test_a_resumed_watch_goes_on_with_the_same_window(stage, made):
    watch, (one, _) = stage
    job, transport = made
    push(one, 50.0, np.arange(60))
    push(one, 50.0, np.arange(60, 99))
    watch.poll()
    state = carried(watch.state())
    again = Watch(job, transport)
    again.restore(state)
    assert (again.progress.n_episodes, again.progress.mean_return) == (99, 50.0)
    assert again.progress.solved_at is None
    push(one, 50.0, [7.0])  # on the clock of a new process
    assert again.poll().solved_at == 7.0


def test_time_goes_on_where_it_stopped(stage):
    watch, _ = stage
    watch.restore({"returns": [], "lengths": [], "episodes": 0, "elapsed_seconds": 30.0})
    assert watch.progress.elapsed(100.0) == 30.0  # while the roles are being started
    watch.progress.started_at = 100.0
    assert watch.progress.elapsed(112.0) == 42.0


def report(transport, role, busy, idle, ready):
    slot = transport.outbox(f"report {role}").slot()
    slot["counts"][[Count.READY_AT, Count.BUSY_SECONDS, Count.IDLE_SECONDS]] = ready, busy, idle
    transport.outbox(f"report {role}").commit(0)


def test_waiting_for_others_after_a_resume_is_taken_off_once(stage, made):
    watch, _ = stage
    job, transport = made
    watch.restore({"returns": [], "lengths": [], "episodes": 0, "elapsed_seconds": 30.0})
    late = "learner-0.0"
    others = [role.name for role in roles_of(job.config) if role.name != late]
    for name in others:
        report(transport, name, 50.0, 20.0, ready=100.0)
    watch.poll()
    for name in others:
        report(transport, name, 50.0, 28.0, ready=100.0)  # they wait for the learner
    report(transport, late, 50.0, 20.0, ready=108.0)
    assert watch.poll().started_at == 108.0
    report(transport, "actor-0.0", 52.0, 36.0, ready=100.0)
    progress = watch.poll()
    spent = shares(at_start(progress), progress.counts, homes_in(job, "process"))
    assert spent["actor-0.0"][:4] == pytest.approx((0.2, 0.8, 0.0, 0.0))


def test_a_run_starts_without_a_role_that_died_before_it_was_ready(stage, made):
    watch, _ = stage
    job, transport = made
    for role in roles_of(job.config):
        if role.name != "actor-0.1":
            report(transport, role.name, 0.0, 0.0, ready=100.0)
    assert watch.poll().started_at is None
    watch.lose("actor-0.1")
    assert watch.poll().started_at == 100.0


@pytest.mark.parametrize(("of", "solved"), [("game", False), ("life", True)])
def test_a_target_is_of_whole_games_unless_the_config_says_life(of, solved):
    keys = ("exp.stop_return=10", f"exp.stop_return_of={of}")
    config = load(ROOT / "configs" / "cartpole_ppo.py", keys)
    job = prepare(config, make_env(config).spec)
    transport = LocalTransport(channels_of(job))
    watch, outbox = Watch(job, transport), transport.outbox("episodes actor-0.0")
    for _ in range(2):
        push(outbox, 4.0, np.arange(50.0), learned=12.0)
        progress = watch.poll()
    assert (progress.mean_return, progress.learned_return) == (4.0, 12.0)
    assert (progress.solved_at is not None) == solved
