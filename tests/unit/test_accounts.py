"""What was sent and what was counted, at the end of a run."""

import pytest
from commands import TASKS

from tianji.config import load
from tianji.core.counts import Count
from tianji.engines.accounts import missing_steps
from tianji.engines.live_counts import counts_channels, live_counts
from tianji.engines.worker_loop import shared_channels
from tianji.job.factory import make_env
from tianji.job.job import prepare
from tianji.roles import Buffer
from tianji.roles.role_specs import homes_of
from tianji.transports import ring
from tianji.transports.shm import ShmTransport


class Stage:
    """Two actors and a buffer that take down what they send and receive."""

    def __init__(self, *overrides):
        config = load(TASKS / "walk_ppo.py", overrides)
        self.job = prepare(config, make_env(config).spec)
        specs = shared_channels(self.job) + counts_channels(self.job)
        self.transport = ShmTransport.create(specs, homes_of(config))
        self.outboxes, self.inboxes = (
            [end(f"trajectories actor-0.{i}") for i in range(2)]
            for end in (self.transport.outbox, self.transport.inbox)
        )

    def count(self, role, counter, steps):
        live_counts(self.transport, role)[counter] += steps

    def send(self, actor, n_valid=9):
        rows = self.outboxes[actor].slot()
        rows["valid"][...] = False
        rows["valid"].flat[:n_valid] = True
        rows["length"][...] = len(rows["valid"]) - 1
        rows["valid"][-1] = True  # beyond the length: of no step
        self.outboxes[actor].commit(0)
        self.count(f"actor-0.{actor}", Count.PRODUCED, n_valid)

    def take(self, actor, n_valid=9):
        assert self.inboxes[actor].take() is not None
        self.inboxes[actor].free()
        self.count("buffer-0.0", Count.RECEIVED, n_valid)

    @property
    def missing(self):
        return missing_steps(self.job, self.transport)


@pytest.fixture
def stage():
    made = Stage()
    yield made
    made.transport.close()


def test_what_was_received_and_what_is_on_its_way_is_all_that_was_made(stage):
    assert stage.missing == 0
    for _ in range(5):
        stage.send(0)
        stage.send(1, 3)
        assert stage.missing == 0
        stage.take(1, 3)
        stage.take(0)
        assert stage.missing == 0
    stage.send(0)
    assert stage.missing == 0


def test_of_actors_for_whom_another_role_acts_only_what_that_sends_was_made():
    stage = Stage("actor_cfg.inference=True")
    stage.send(0)  # the actors count both
    stage.count("actor-0.1", Count.PRODUCED, 9)
    stage.count("inference-0.0", Count.PRODUCED, 9)
    assert stage.missing == 0
    stage.take(0)
    assert stage.missing == 0
    stage.transport.close()


def test_what_is_lost_or_invented_on_the_way_is_missing(stage):
    stage.send(0)
    stage.inboxes[0].take()
    stage.inboxes[0].free()  # and counted by nobody
    assert stage.missing == 9
    stage.count("buffer-0.0", Count.RECEIVED, 11)
    assert stage.missing == -2


def test_what_a_buffer_refuses_for_its_age_it_has_received(stage):
    stage.send(0)
    stage.inboxes[0].take()
    counts = live_counts(stage.transport, "buffer-0.0")
    buffer = Buffer("buffer-0.0", [], None, None, None, counts=counts)
    buffer.refuse(9)
    stage.inboxes[0].free()
    assert stage.missing == 0


def test_what_a_buffer_was_lost_with_as_it_copied_it_has_received(stage):
    class Lost(Exception):
        pass

    class Store:
        def add(self, source, trajectory, version):
            raise Lost

    stage.send(0, 7)
    counts = live_counts(stage.transport, "buffer-0.0")
    buffer = Buffer("buffer-0.0", stage.inboxes, None, Store(), None, counts=counts)
    with pytest.raises(Lost):
        buffer._store(0, stage.inboxes[0].take())
    ring.skip_taken(stage.transport.block("trajectories actor-0.0"))
    assert stage.missing == 0


def test_the_newest_of_a_ring_that_has_gone_round_are_on_their_way(stage):
    for n_valid in range(1, 8):
        stage.send(0, n_valid)
        stage.take(0, n_valid)
    stage.send(0, 8)
    assert stage.missing == 0
