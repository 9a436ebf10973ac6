"""The roles of Figure 2, one step at a time: who does what, in which order, who waits for whom."""

import numpy as np
import pytest
from fields import layout_of, spec_of, step_of

from tianji.core.balance import Balance
from tianji.core.channel import ChannelSpec, Delivery
from tianji.core.counts import Count, Histogram
from tianji.core.errors import TianJiError
from tianji.core.lazy import torch
from tianji.core.schema import Field, Schema
from tianji.core.store import feedback_of
from tianji.roles import Actor, Buffer, Learner
from tianji.roles import actor as actor_module
from tianji.roles.episodes import EPISODE_SCHEMA
from tianji.roles.trigger import EveryUpdates, WhenFull
from tianji.stores.replay import Replay
from tianji.stores.rollouts import Rollouts
from tianji.transports.local import LocalTransport

LENGTH = 4
OBS, ACTION = Field("obs", "float32", (1,)), Field("action", "int64")
TRAJECTORY = layout_of(OBS, ACTION, (), LENGTH, 1)
WEIGHTS = Schema((Field("weights", "float32", (3,)),))
NOTHING = Schema((Field("nothing", "uint8"),))


class CountingEnv:
    """Observes its own clock; episodes of three steps, each followed by a step that only resets."""

    def __init__(self, diary):
        self.spec, self.diary, self.closed = spec_of(OBS, ACTION, 10), diary, False

    def reset(self, seed=None):
        self.now, self.in_episode, self.seed = 0, 0, seed
        return {"obs": self.observe()}

    def observe(self):
        return np.array([[self.now]], np.float32)

    def step(self, action):
        self.diary.append(f"step {int(action[0])}")
        self.now += 1
        reset = self.in_episode == 3
        self.in_episode = 0 if reset else self.in_episode + 1
        flags = (np.array([self.in_episode == 3]), np.array([False]), np.array([not reset]))
        return step_of(self.observe(), np.array([0.0 if reset else 2.0], np.float32), *flags)

    def close(self):
        self.closed = True


class EchoPolicy:
    """Its action is what it observes."""

    def __init__(self, diary):
        self.diary = diary

    def load(self, weights, version):
        self.diary.append(f"load {version}")

    def act(self, obs, first, explore=True):
        self.diary.append(f"act {int(obs['obs'][0, 0])}")
        return {"action": obs["obs"][:, 0].astype(np.int64)}


class EndOfEpisode:
    """A trigger of a user's own: pushes when an episode ends."""

    def __init__(self, send_size):
        self.send_size = send_size

    def fires(self, length, ended):
        return ended


class Stage:
    """One actor with both ends of its channels; `diary` tells what it did, in order."""

    def __init__(self, depth=2, trigger=WhenFull, per_version=None):
        transport = LocalTransport(
            [
                ChannelSpec("weights", "learner", ("actor",), WEIGHTS, Delivery.LATEST),
                ChannelSpec("trajectories", "actor", ("buffer",), TRAJECTORY, depth=depth),
                ChannelSpec("episodes", "actor", ("launcher",), EPISODE_SCHEMA, depth=4),
            ]
        )
        self.diary = []
        self.weights = transport.outbox("weights")
        self.trajectories = transport.inbox("trajectories")
        self.episodes = transport.inbox("episodes")
        self.actor = Actor(
            "actor",
            CountingEnv(self.diary),
            EchoPolicy(self.diary),
            transport.inbox("weights"),
            transport.outbox("trajectories"),
            transport.outbox("episodes"),
            trigger(LENGTH),
            LENGTH,
            seed=7,
            per_version=per_version,
            clock=lambda: 1.5,
        )

    def publish(self, version):
        self.weights.push({"weights": np.zeros(3, np.float32)}, version)

    def run(self, n):
        return [self.actor.step() for _ in range(n)]


# -------------------------------------------------------------------------------------------- actor


@pytest.mark.parametrize(
    ("large", "loaded"), [(3, ["load 0", "load 1"]), (2, ["load 0", "load 2"])]
)
def test_large_weights_are_loaded_where_a_trajectory_begins(monkeypatch, large, loaded):
    monkeypatch.setattr(actor_module, "LARGE", large)  # there are three
    stage = Stage()
    stage.publish(0)
    stage.run(2)
    stage.publish(1)
    stage.run(1)
    stage.publish(2)
    stage.run(2)
    assert [words for words in stage.diary if words.startswith("load")][:2] == loaded


def test_an_actor_does_nothing_before_it_has_weights():
    stage = Stage()
    assert stage.run(3) == [False] * 3
    assert stage.diary == []


def test_an_actor_takes_weights_before_it_acts():
    stage = Stage()
    stage.publish(0)
    assert stage.run(2) == [True, True]
    assert stage.diary == ["load 0", "act 0", "step 0", "act 1", "step 1"]


def test_newer_weights_are_taken_in_the_middle_of_a_trajectory():
    stage = Stage()
    stage.publish(0)
    stage.run(1)
    stage.publish(5)
    stage.run(1)
    assert stage.diary[-3:] == ["load 5", "act 1", "step 1"]
    assert stage.actor.counts[Count.VERSION] == 5
    assert stage.actor.counts[Count.WEIGHTS_TAKEN] == 2


def test_a_trajectory_keeps_the_version_of_its_first_step():
    stage = Stage()
    stage.publish(0)
    stage.run(3)
    stage.publish(5)
    stage.run(2)
    assert stage.trajectories.take().version == 0
    stage.run(3)
    assert stage.trajectories.take().version == 5


def test_a_trajectory_holds_what_happened_in_order():
    stage = Stage()
    stage.publish(0)
    stage.run(LENGTH)
    rows = stage.trajectories.take().arrays
    assert rows["length"] == LENGTH
    assert rows["obs"].ravel().tolist() == [0, 1, 2, 3, 4]
    assert rows["action"].ravel().tolist() == [0, 1, 2, 3]
    assert rows["reward"].ravel().tolist() == [2, 2, 2, 0]
    assert rows["terminated"].ravel().tolist() == [False, False, True, False]
    assert rows["valid"].ravel().tolist() == [True, True, True, False]


def test_one_trajectory_goes_on_where_the_last_one_ended():
    stage = Stage()
    stage.publish(0)
    stage.run(2 * LENGTH)
    assert stage.trajectories.take().arrays["obs"][-1] == 4
    assert stage.trajectories.take().arrays["obs"][0] == 4


def test_a_trajectory_is_pushed_with_its_last_step_and_not_before():
    stage = Stage()
    stage.publish(0)
    stage.run(LENGTH - 1)
    assert stage.trajectories.waiting == 0
    stage.run(1)
    assert stage.trajectories.waiting == 1


def test_a_full_channel_paces_an_actor_and_loses_nothing():
    stage = Stage(depth=1)
    stage.publish(0)
    assert stage.run(LENGTH + 2) == [True] * LENGTH + [False, False]
    assert stage.actor.counts[Count.REFUSED] == 2
    assert stage.trajectories.take() is not None
    assert stage.run(1) == [False]  # still being read
    assert stage.trajectories.take() is None
    stage.run(LENGTH)
    assert stage.trajectories.take().arrays["obs"].ravel().tolist() == [4, 5, 6, 7, 8]


def test_what_wakes_a_receiver_was_counted_before():
    stage, counted = Stage(), []
    send = stage.actor.trajectory._outbox.commit

    def commit(version):
        counted.append(int(stage.actor.counts[Count.PRODUCED]))
        send(version)

    stage.actor.trajectory._outbox.commit = commit
    stage.publish(0)
    stage.run(2 * LENGTH)
    assert len(counted) == 2 and 0 < counted[0] < counted[1]
    assert counted[1] == stage.actor.counts[Count.PRODUCED]


def test_a_paced_actor_still_takes_weights():
    stage = Stage(depth=1)
    stage.publish(0)
    stage.run(LENGTH + 1)
    stage.publish(3)
    assert stage.run(1) == [False]
    assert stage.diary[-1] == "load 3"


def test_a_trigger_at_the_end_of_episodes_gives_partial_trajectories():
    stage = Stage(trigger=EndOfEpisode, depth=3)
    stage.publish(0)
    stage.run(3 + 4)
    first, second = (stage.trajectories.take() for _ in range(2))
    assert int(first.arrays["length"]) == 3
    second_rows = second.arrays
    assert int(second_rows["length"]) == 4  # the reset, and three steps: full as well as ended
    assert second_rows["valid"].ravel().tolist() == [False, True, True, True]


def test_a_full_trajectory_is_pushed_whatever_the_trigger_says():
    class Never(EndOfEpisode):
        def fires(self, length, ended):
            return False

    stage = Stage(trigger=Never)
    stage.publish(0)
    stage.run(LENGTH)
    assert stage.trajectories.waiting == 1


def test_only_valid_steps_count_as_produced():
    stage = Stage()
    stage.publish(0)
    stage.run(2 * LENGTH)
    assert stage.actor.counts[Count.PRODUCED] == 6
    assert stage.actor.counts[Count.PUSHED] == 2


def test_an_actor_waits_for_weights_or_for_room():
    stage = Stage(depth=1, per_version=2)
    assert stage.actor.waits_for() is Count.WAITED_WEIGHTS
    stage.publish(0)
    assert stage.run(LENGTH + 1)[-1] is False
    assert stage.actor.waits_for() is Count.WAITED_ROOM
    stage.trajectories.take()
    stage.trajectories.free()
    assert stage.run(LENGTH + 1)[-1] is False
    assert stage.actor.waits_for() is Count.WAITED_WEIGHTS  # it made its share with the last


@pytest.mark.parametrize("per_version", [1, 2])
def test_a_synchronous_actor_never_acts_ahead_of_the_learner(per_version):
    stage = Stage(depth=8, per_version=per_version)
    for version in range(3):
        stage.publish(version)
        stage.run(50)
        found = []
        while (message := stage.trajectories.take()) is not None:
            found.append(message.version)
        assert found == [version] * per_version


def test_finished_episodes_are_reported_with_return_length_and_time():
    stage = Stage()
    stage.publish(0)
    stage.run(2 * LENGTH)
    episodes = stage.episodes.take().arrays
    assert episodes["n"] == 1
    assert (episodes["returned"][0], episodes["length"][0], episodes["ended_at"][0]) == (
        6.0,
        3,
        1.5,
    )


def test_episodes_nobody_reads_are_kept_for_later():
    stage = Stage(depth=20)
    stage.publish(0)
    stage.run(10 * LENGTH)
    found = 0
    for _ in range(3):
        while (message := stage.episodes.take()) is not None:
            found += int(message.arrays["n"])
        stage.run(LENGTH)
    assert found >= 10


def test_an_actor_whose_weights_have_ended_closes_its_trajectories_and_sends_nothing_half_filled():
    stage = Stage()
    stage.publish(0)
    stage.run(LENGTH + 2)
    stage.weights.close()
    assert stage.run(1) == [True]
    assert stage.actor.done
    assert stage.trajectories.take() is not None
    assert stage.trajectories.take() is None
    assert stage.trajectories.closed


def test_an_actor_closes_its_environments():
    stage = Stage()
    assert stage.actor.env.seed == 7
    stage.actor.close()
    assert stage.actor.env.closed


def test_what_was_published_before_there_was_room_is_acted_with(monkeypatch):
    stage = Stage(depth=1)
    stage.publish(0)
    stage.run(LENGTH)  # one trajectory, and no room for the next
    begin = stage.actor.trajectory.begin

    def begin_late(*given):  # an update ends between the look at the weights and that for room
        stage.publish(1)
        assert stage.trajectories.take() is not None
        stage.trajectories.free()
        return begin(*given)

    monkeypatch.setattr(stage.actor.trajectory, "begin", begin_late)
    stage.run(LENGTH)
    assert stage.diary[-2 * LENGTH - 1] == "load 1"
    assert stage.trajectories.take().version == 1


# ------------------------------------------------------------------------------------------- buffer


def trajectory(n_valid=LENGTH, first=0):
    rows = TRAJECTORY.empty()
    rows["length"][...] = LENGTH
    rows["obs"][:, 0, 0] = np.arange(first, first + LENGTH + 1)
    rows["valid"][:n_valid] = True
    return rows


class BufferStage:
    """One buffer between `n` actors and a learner."""

    def __init__(self, n=1, sampling=None, ratio=1.0, slack=0, ahead=0, depth=2, **more):
        sampling = sampling or Replay(batch=4, capacity=100, warmup=0)
        batch = sampling.batch_schema(TRAJECTORY)
        specs = [ChannelSpec(f"t{i}", f"a{i}", ("buffer",), TRAJECTORY, depth=2) for i in range(n)]
        specs.append(ChannelSpec("batches", "buffer", ("learner",), batch, depth=depth))
        transport = LocalTransport(specs)
        self.actors = [transport.outbox(f"t{i}") for i in range(n)]
        self.learner = transport.inbox("batches")
        self.balance = Balance(ratio, sampling.batch_units, sampling.warmup, slack, ahead)
        self.store = sampling.build(TRAJECTORY, n, 0, 0)
        inboxes = [transport.inbox(f"t{i}") for i in range(n)]
        outbox = transport.outbox("batches")
        self.buffer = Buffer("buffer", inboxes, outbox, self.store, self.balance, **more)

    def push(self, actor=0, version=0, n_valid=LENGTH):
        return self.actors[actor].push(trajectory(n_valid), version)

    def batches(self):
        """How many batches the learner finds, with the buffer working in between."""
        n = 0
        while (message := self.learner.take()) is not None or self.works():
            n += message is not None
        return n

    def works(self):
        return not self.buffer.done and self.buffer.step()


def test_a_buffer_with_nothing_to_do_says_so():
    stage = BufferStage()
    assert stage.buffer.step() is False


def test_a_buffer_waits_for_trajectories_or_for_its_learner():
    stage = BufferStage(depth=1)
    assert stage.buffer.waits_for() is Count.WAITED_TRAJECTORIES
    stage.push()
    stage.buffer.step()
    assert stage.learner.take() is not None and stage.buffer.step() is False
    assert stage.buffer.waits_for() is Count.WAITED_ROOM  # what was handed out is not learned from
    assert stage.learner.take() is None and stage.buffer.step() is False
    assert stage.buffer.waits_for() is Count.WAITED_TRAJECTORIES


def test_a_buffer_whose_batches_nobody_takes_waits_for_its_learner():
    stage = BufferStage(ratio=4.0, depth=1)
    stage.push()
    stage.buffer.step()
    assert stage.buffer.step() is False
    assert stage.buffer.waits_for() is Count.WAITED_ROOM  # more batches are owed


def test_a_buffer_receives_and_hands_out_in_one_step():
    stage = BufferStage()
    stage.push(version=3)
    assert stage.buffer.step() is True
    message = stage.learner.take()
    assert message.arrays["version"].tolist() == [3] * 4
    assert message.version == 0
    assert stage.buffer.counts[Count.RECEIVED] == LENGTH


def test_only_valid_steps_count_as_received():
    stage = BufferStage()
    stage.push(n_valid=3)
    stage.buffer.step()
    assert stage.buffer.counts[Count.RECEIVED] == 3
    assert stage.learner.take() is None  # three samples do not earn a batch of four


def test_a_buffer_does_not_receive_while_batches_are_owed():
    stage = BufferStage(ratio=4.0)
    stage.push()
    stage.push()
    stage.buffer.step()
    assert stage.buffer.trajectories[0].waiting == 1
    assert stage.buffer.counts[Count.RECEIVED] == LENGTH


def test_with_slack_it_receives_ahead():
    stage = BufferStage(ratio=4.0, slack=LENGTH)
    stage.push()
    stage.buffer.step()
    stage.push()
    stage.buffer.step()
    assert stage.buffer.counts[Count.RECEIVED] == 2 * LENGTH


def test_beside_its_learner_it_has_a_trajectory_ready_and_back_in_turns_it_waits_again():
    stage = BufferStage(ratio=4.0, ahead=LENGTH)
    for apart, received in ((False, LENGTH), (True, 2 * LENGTH), (False, 2 * LENGTH)):
        stage.buffer.apart = apart
        stage.push()
        stage.buffer.step()
        assert stage.buffer.counts[Count.RECEIVED] == received
    stage.batches()  # all that is owed, and what was pushed with it
    assert stage.buffer.counts[Count.RECEIVED] == 3 * LENGTH


def test_a_batch_that_the_learner_still_holds_is_not_settled():
    stage = BufferStage()
    stage.push()
    stage.buffer.step()
    stage.push()
    assert stage.learner.take() is not None
    assert stage.buffer.step() is False  # being learned from
    assert stage.learner.take() is None  # learned
    assert stage.buffer.step() is True


@pytest.mark.parametrize("ratio", [0.5, 1.0, 4.0, 16.0])
def test_updates_follow_the_balance(ratio):
    stage = BufferStage(sampling=Replay(batch=4, capacity=50, warmup=6), ratio=ratio)
    updates = 0
    for _ in range(20):
        stage.push()
        updates += stage.batches()
    assert updates == pytest.approx((20 * LENGTH - 6) * ratio / 4, abs=1)


def test_in_order_nobody_is_received_before_their_turn():
    stage = BufferStage(n=3, slack=100, in_order=True)
    sources, add = [], stage.store.add
    stage.store.add = lambda source, *rest: sources.append(source) or add(source, *rest)
    stage.push(1)
    stage.push(2)
    stage.works()
    assert sources == []
    stage.push(0)
    stage.works()
    assert sources == [0, 1, 2]
    stage.actors[0].close()  # who has gone is not waited for
    stage.push(2)
    stage.push(1)
    stage.works()
    assert sources == [0, 1, 2, 1, 2]


def test_in_order_everybody_is_heard_before_the_first_batch():
    stage = BufferStage(n=2, in_order=True)
    stage.push(0)
    stage.works()
    assert stage.learner.take() is None
    stage.push(1)
    stage.works()
    assert stage.learner.take() is not None


def test_no_actor_is_starved_by_another():
    stage = BufferStage(n=3)
    taken = np.zeros(3)
    for _ in range(30):
        for actor in range(3):
            while stage.push(actor):
                pass
        before = [inbox.waiting for inbox in stage.buffer.trajectories]
        stage.buffer.step()
        taken += [b - i.waiting for b, i in zip(before, stage.buffer.trajectories, strict=True)]
        while stage.learner.take() is not None:
            pass
    assert taken.min() >= taken.max() - 2


def test_a_full_batch_channel_is_counted_as_a_refusal():
    stage = BufferStage(ratio=16.0, depth=1)
    stage.push()
    stage.buffer.step()
    assert stage.buffer.step() is False
    assert stage.buffer.counts[Count.REFUSED] == 1


def test_a_buffer_closes_after_its_last_actor_and_not_before():
    stage = BufferStage(n=2)
    stage.push(0)
    stage.actors[0].close()
    stage.batches()
    assert not stage.buffer.done
    stage.actors[1].close()
    assert stage.batches() == 0
    assert stage.learner.closed
    assert not stage.buffer.done  # the learner may still be busy with the last batch
    stage.learner.close()
    assert stage.buffer.step() is True
    assert stage.buffer.done


def test_a_buffer_that_has_all_its_steps_hands_out_what_is_owed_before_it_closes():
    stage = BufferStage(ratio=16.0, depth=2, max_steps=LENGTH)
    stage.push()
    for _ in range(10):  # the learner is busy elsewhere: two batches fit, fourteen are still owed
        stage.works()
    assert not stage.learner.closed
    assert stage.batches() == 16
    assert stage.learner.closed


@pytest.mark.parametrize("max_steps", [None, LENGTH])
def test_a_buffer_ends_with_its_learner_whatever_is_owed(max_steps):
    stage = BufferStage(ratio=16.0, depth=2, max_steps=max_steps)
    stage.push()
    stage.buffer.step()
    stage.push()  # it will never be received
    stage.learner.close()
    assert stage.buffer.step() is True
    assert stage.buffer.done


def test_a_buffer_that_has_all_the_steps_it_wants_takes_no_more():
    stage = BufferStage(max_steps=LENGTH)
    stage.push()
    stage.push()
    assert stage.batches() == 1
    assert stage.learner.closed
    assert stage.buffer.counts[Count.RECEIVED] == LENGTH


def test_what_is_dropped_for_its_age_was_never_received_by_the_balance():
    sampling = Rollouts(batch=1, pool=1, steps=LENGTH, max_lag=0)
    stage = BufferStage(sampling=sampling, slack=4 * LENGTH, depth=1)
    stage.push(version=0)
    stage.push(version=0)
    assert stage.batches() == 1  # the second is of version 0 while the learner has moved to 1
    assert stage.buffer.counts[Count.DROPPED] == LENGTH
    assert stage.balance.received == stage.balance.consumed == LENGTH
    stage.push(version=1)
    assert stage.batches() == 1


# ------------------------------------------------------------------------------------------ learner


class CountingAlgorithm:
    """Its weights are the number of batches it has learned from."""

    scalars = ("loss",)
    overlaps = False

    def __init__(self):
        self.n = 0

    def stage(self, batch):
        return batch

    def learn(self, batch):
        self.n += 1
        return {"loss": float(self.n)}

    def weights(self):
        return np.full(3, self.n, np.float32)

    def n_left_out(self):
        return None


class LearnerStage:
    """One learner, fed by hand."""

    def __init__(self, interval=1, max_updates=None):
        schema = Replay(batch=4, capacity=10, warmup=0).batch_schema(TRAJECTORY)
        transport = LocalTransport(
            [
                ChannelSpec("batches", "buffer", ("learner",), schema, depth=8),
                ChannelSpec("weights", "learner", ("actor",), WEIGHTS, Delivery.LATEST),
                ChannelSpec("control", "launcher", ("learner",), NOTHING, Delivery.LATEST),
            ]
        )
        self.schema = schema
        self.batches, self.control = transport.outbox("batches"), transport.outbox("control")
        self.weights = transport.inbox("weights")
        self.learner = Learner(
            "learner",
            CountingAlgorithm(),
            transport.inbox("batches"),
            transport.outbox("weights"),
            transport.inbox("control"),
            EveryUpdates(interval),
            max_updates,
            clock=lambda: 2.5,
        )

    def push(self, versions=(0, 0, 0, 0), ages=(0, 0, 0, 0), new=(True, True, True, True)):
        batch = self.schema.empty()
        batch["version"][...], batch["age"][...], batch["new"][...] = versions, ages, new
        self.batches.push(batch, 0)


def test_a_learner_publishes_before_it_has_learned_anything():
    stage = LearnerStage()
    assert stage.weights.take() is None  # not when it is made: it may be about to be restored
    assert stage.learner.step() is False
    message = stage.weights.take()
    assert (message.version, message.arrays["weights"].tolist()) == (0, [0, 0, 0])
    assert stage.learner.step() is False
    assert stage.weights.take() is None  # once


def test_a_learner_without_a_batch_says_so():
    assert LearnerStage().learner.step() is False


def test_each_batch_is_one_version_and_is_published():
    stage = LearnerStage()
    for version in (1, 2, 3):
        stage.push()
        assert stage.learner.step() is True
        message = stage.weights.take()
        assert (message.version, message.arrays["weights"][0]) == (version, version)


def test_weights_are_published_when_the_trigger_fires():
    stage = LearnerStage(interval=3)
    stage.learner.step()
    stage.weights.take()
    found = []
    for _ in range(6):
        stage.push()
        stage.learner.step()
        message = stage.weights.take()
        found.append(message.version if message else None)
    assert found == [None, None, 3, None, None, 6]


def test_staleness_is_the_learners_version_less_the_samples():
    stage = LearnerStage()
    stage.push(versions=(0, 0, 0, 0))
    stage.push(versions=(0, 1, 1, 1))
    stage.push(versions=(0, 1, 2, 2), ages=(70, 5, 5, 0))
    for _ in range(3):
        stage.learner.step()
    report = stage.learner.report()
    assert Histogram(report["staleness"]).rows() == [(0, 9), (1, 2), (2, 1)]
    assert Histogram(report["age"]).rows() == [(0, 9), (5, 2), (70, 1)]


def test_samples_newer_than_a_learner_that_was_resumed_are_not_old():
    stage = LearnerStage()
    stage.push(versions=(2, 1, 0, 0))
    stage.learner.step()
    assert Histogram(stage.learner.report()["staleness"]).rows() == [(0, 4)]


def test_a_learner_counts_samples_and_how_many_were_new():
    stage = LearnerStage()
    stage.push(new=(True, True, True, False))
    stage.learner.step()
    counts = stage.learner.counts
    assert (counts[Count.CONSUMED], counts[Count.NEW], counts[Count.VERSION]) == (4, 3, 1)
    assert counts[Count.FIRST_CONSUMED_AT] == 2.5
    assert stage.learner.report()["scalars"].tolist() == [1.0]


def test_a_learner_ends_when_its_batches_have_ended_and_learns_from_all_of_them():
    stage = LearnerStage(interval=100)
    stage.push()
    stage.push()
    stage.batches.close()
    while not stage.learner.done:
        assert stage.learner.step() is True
    assert stage.weights.take().version == 2  # what it learned last is published
    assert stage.weights.closed
    assert stage.batches.abandoned


def test_a_learner_ends_at_once_when_the_launcher_says_so():
    stage = LearnerStage()
    stage.push()
    stage.control.close()
    stage.learner.step()
    assert stage.learner.done
    assert stage.learner.version == 0


def test_a_learner_ends_after_the_updates_it_was_given():
    stage = LearnerStage(max_updates=2)
    for _ in range(4):
        stage.push()
        if not stage.learner.done:
            stage.learner.step()
    assert stage.learner.done
    assert stage.learner.version == 2


# -------------------------------------------------------------------------------------- all of them


class Group:
    """An actor, a buffer and a learner, joined as a topology would join them."""

    def __init__(self, max_steps=None):
        sampling = Replay(batch=4, capacity=40, warmup=8)
        batch = sampling.batch_schema(TRAJECTORY)
        transport = LocalTransport(
            [
                ChannelSpec("weights", "learner", ("actor",), WEIGHTS, Delivery.LATEST),
                ChannelSpec("trajectories", "actor", ("buffer",), TRAJECTORY),
                ChannelSpec("episodes", "actor", ("launcher",), EPISODE_SCHEMA, depth=64),
                ChannelSpec("batches", "buffer", ("learner",), batch),
                ChannelSpec("control", "launcher", ("learner",), NOTHING, Delivery.LATEST),
            ]
        )
        inbox, outbox = transport.inbox, transport.outbox
        self.control, diary = outbox("control"), []
        self.balance = Balance(2.0, 4, warmup=8)
        self.learner = Learner(
            "learner",
            CountingAlgorithm(),
            inbox("batches"),
            outbox("weights"),
            inbox("control"),
            EveryUpdates(1),
        )
        self.buffer = Buffer(
            "buffer",
            [inbox("trajectories")],
            outbox("batches"),
            sampling.build(TRAJECTORY, 1, 0, 0),
            self.balance,
            max_steps,
        )
        self.actor = Actor(
            "actor",
            CountingEnv(diary),
            EchoPolicy(diary),
            inbox("weights"),
            outbox("trajectories"),
            outbox("episodes"),
            WhenFull(LENGTH),
            LENGTH,
            seed=0,
        )
        self.roles = [self.learner, self.buffer, self.actor]

    def run(self, rounds):
        for _ in range(rounds):
            for role in self.roles:
                if not role.done:
                    role.step()


def test_a_group_that_has_all_its_steps_ends_by_itself_with_the_balance_held():
    group = Group(max_steps=300)
    group.run(1000)
    assert all(role.done for role in group.roles)
    received = group.buffer.counts[Count.RECEIVED]
    assert 300 <= received < 300 + LENGTH
    assert group.learner.version == pytest.approx((received - 8) * 2 / 4, abs=1)


def test_the_end_of_the_stream_passes_through_all_roles():
    group = Group()
    group.run(100)
    assert not any(role.done for role in group.roles)
    group.control.close()
    group.run(10)
    assert all(role.done for role in group.roles)


def test_no_step_waits_and_one_role_always_has_something_to_do():
    group = Group()
    for _ in range(300):
        assert any([role.step() for role in group.roles])


def test_priorities_may_be_a_tensor_but_must_be_one_for_each_sample():
    batch = {"row": np.arange(3), "generation": np.zeros(3, np.int64)}
    tensor = torch.ones(3, requires_grad=True)
    assert feedback_of(batch, tensor)["priority"].tolist() == [1, 1, 1]
    for wrong in (None, [1.0], torch.ones(4)):
        with pytest.raises(TianJiError, match="learn "):
            feedback_of(batch, wrong)
