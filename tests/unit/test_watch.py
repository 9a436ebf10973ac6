"""When a run counts as solved, and what is kept of its episodes."""

import numpy as np
import pytest
from commands import ROOT

from tianji.config import load
from tianji.episodes import EPISODES_PER_MESSAGE
from tianji.topology import channels_of, make_env, prepare
from tianji.transports.local import LocalTransport
from tianji.watch import Watch


@pytest.fixture
def stage():
    config = load(ROOT / "configs" / "cartpole_ppo.py", ("exp.stop_return=10", "actor_cfg.num=2"))
    job = prepare(config, make_env(config).spec)
    transport = LocalTransport(channels_of(job))
    outboxes = [transport.outbox(f"episodes actor-0.{i}") for i in range(2)]
    return Watch(job, transport), outboxes


def push(outbox, returned, ended_at):
    n = len(ended_at)
    slot = outbox.slot()
    slot["n"][...] = n
    slot["returned"][:n], slot["length"][:n], slot["ended_at"][:n] = returned, 1, ended_at
    outbox.commit(0)
    assert n <= EPISODES_PER_MESSAGE


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
