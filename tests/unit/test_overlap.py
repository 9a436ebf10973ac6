"""A learner on a GPU: the next batch is staged before anybody looks at what an update came to."""

import pytest
from commands import ROOT
from learners import Averaging, GroupOfLearners

from tianji import config as configs
from tianji.core.channel import empty_handed
from tianji.core.counts import Count
from tianji.engines.local import LocalEngine
from tianji.job import factory, serial
from tianji.job.job import prepare
from tianji.observe.limits import Limits


class Elsewhere(Averaging):
    """Learns where nobody waits for it, and writes down in which order it was asked for what."""

    overlaps = True

    def __init__(self, n_steps=1):
        super().__init__(n_steps)
        self.order = []
        self.n_staged = 0

    def stage(self, batch):
        self.n_staged += 1
        self.order.append(f"stage {self.n_staged}")
        return self.n_staged, batch

    def learn(self, staged):
        number, batch = staged
        self.order.append(f"learn {number}")
        return super().learn(batch)

    def weights(self):
        self.order.append(f"weights {self.updates_done}")
        return self.vector


@pytest.fixture
def learner(monkeypatch):
    monkeypatch.setattr("learners.Averaging", Elsewhere)
    group = GroupOfLearners(k=1, ahead=2)
    return group, group.learners[0]


def test_the_batch_that_waits_is_staged_before_the_weights_are_read(learner):
    group, one = learner
    for _ in range(2):
        assert group.push()
    group.run()
    assert one.version == 2
    assert one.algorithm.order == [
        *("weights 0", "stage 1", "learn 1"),
        *("stage 2", "weights 1", "learn 2", "weights 2"),
    ]


def test_a_batch_that_comes_meanwhile_is_staged_too(learner):
    group, one = learner
    group.push()
    assert one.step() and not one.settled and one.version == 0
    group.push()  # what a buffer does that takes turns with its learner
    assert one.step() and one.settled and one.version == 1
    assert one.algorithm.order[-2:] == ["stage 2", "weights 1"]


def test_what_was_staged_is_used_once_and_every_batch_is_learned_from_once(learner):
    group, one = learner
    pushed = 0
    for turn in range(40):
        pushed += group.push() if turn % 3 else 0
        one.step()
    group.run()
    assert one.version == pushed == one.algorithm.n_staged > 9
    assert one.counts[Count.CONSUMED] == pushed * group.rows
    learned = [word for word in one.algorithm.order if word.startswith("learn")]
    assert learned == [f"learn {i + 1}" for i in range(pushed)]


def test_a_version_that_was_given_up_is_neither_staged_nor_learned_from(learner):
    group, one = learner
    group.push()
    group.batches.slot()
    group.batches.commit(empty_handed(1))
    group.run()
    assert one.version == 2
    assert one.algorithm.order[1:] == ["stage 1", "learn 1", "weights 1", "weights 1"]
    assert one.counts[Count.CONSUMED] == group.rows


def test_where_no_batch_waits_nothing_is_staged_twice(learner):
    group, one = learner
    group.push()
    one.step()
    one.step()
    assert one._ahead is None
    assert not one.step()


@pytest.mark.parametrize("task", ["cartpole_dqn", "cartpole_ppo"])
def test_training_is_the_same_bit_for_bit(task):
    own = {
        "cartpole_dqn": ("hyp.warmup_size=100", "exp.train_steps=500"),
        "cartpole_ppo": ("hyp.minibatch=64", "exp.train_steps=5000"),
    }
    given = (*own[task], "model.hidden=[16]", "buffer_cfg.slack=0")
    config = configs.load(ROOT / f"configs/{task}.py", ("exp.stop_return=1e9", *given))
    job = prepare(config, factory.make_env(config).spec)
    outcome, engine = serial.train(job), LocalEngine(job)
    engine.learner.algorithm.overlaps = True
    assert engine.train(Limits(job)) == "finished"
    assert engine.learner.version == outcome.version > 1
    assert (engine.learner.algorithm.weights() == outcome.algorithm.weights()).all()
