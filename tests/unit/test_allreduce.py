"""Learners of one group: the same parameters to the last bit, and nobody ever waits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learners import Averaging, GroupOfLearners, N

from tianji.core.counts import Count
from tianji.core.errors import TianJiError
from tianji.roles.allreduce import AllReduce


def alone(n_batches, n_steps=1):
    """What one learner makes of the same batches."""
    group = GroupOfLearners(k=1, n_steps=n_steps)
    for _ in range(n_batches):
        group.push()
        group.run()
    return group.vectors[0]


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_several_learners_learn_what_one_would_have(k, n_steps):
    group = GroupOfLearners(k, n_steps)
    for _ in range(5):
        group.push()
        group.run()
    assert group.versions == [5] * k
    np.testing.assert_allclose(group.vectors[0], alone(5, n_steps), rtol=1e-5, atol=1e-6)
    for vector in group.vectors:
        assert vector.tobytes() == group.vectors[0].tobytes()


def test_a_learner_whose_peers_have_not_come_says_so_and_is_in_the_middle():
    group = GroupOfLearners()
    group.push()
    first, second = group.learners
    assert first.step() is True  # it has sent its gradient
    assert [first.step() for _ in range(3)] == [False] * 3
    assert (first.settled, first.version, first.algorithm.vector.any()) == (False, 0, False)
    assert second.step() is True
    assert (second.settled, second.version) == (True, 1)
    assert first.step() is True
    assert (first.settled, first.version) == (True, 1)


def test_only_the_first_publishes_and_it_does_so_once_per_version():
    group = GroupOfLearners()
    found = []
    for _ in range(3):
        group.push()
        group.run()
        message = group.weights.take()
        found.append((message.version, message.arrays["weights"].tobytes()))
    assert [version for version, _ in found] == [1, 2, 3]
    assert found[-1][1] == group.vectors[1].tobytes()


def test_what_a_full_channel_refuses_is_sent_later():
    group = GroupOfLearners(depth=1, n_steps=4)
    for _ in range(4):
        group.push()
    group.run()
    assert group.versions == [4, 4]
    assert group.vectors[0].tobytes() == group.vectors[1].tobytes()


def test_they_end_together_at_the_last_update():
    group = GroupOfLearners(k=3, max_updates=2)
    for _ in range(4):
        group.push()
    group.run()
    assert all(learner.done for learner in group.learners)
    assert group.versions == [2, 2, 2]


def test_they_end_when_the_batches_do():
    group = GroupOfLearners()
    group.push()
    group.batches.close()
    group.run()
    assert all(learner.done for learner in group.learners)
    assert group.versions == [1, 1]
    assert group.weights.closed


def test_one_that_has_begun_gives_up_what_another_will_not_begin():
    group = GroupOfLearners(n_steps=3)
    group.push()
    first, second = group.learners
    first.step()
    group.control.close()
    assert second.step() is True
    assert second.done
    group.run()
    assert first.done
    assert group.versions == [0, 0]
    assert not first.algorithm.vector.any()
    assert first.algorithm.updates_done == 0


def test_one_that_dies_in_the_middle_of_an_update_leaves_no_half_of_it_behind():
    group = GroupOfLearners(n_steps=3)
    group.push()
    first, second = group.learners
    first.step()
    second.step()
    first.step()  # one exchange is complete, and the second has died
    group.transport.outbox("1>0").close()
    with pytest.raises(RuntimeError, match="in the middle of an update"):
        for _ in range(9):
            first.step()


STEPS = st.lists(st.integers(0, 4), max_size=60)


@given(STEPS, st.integers(2, 3), st.integers(1, 3), st.integers(1, 2), st.booleans())
def test_in_whatever_order_they_get_their_turns_they_end_alike(
    order, k, n_steps, depth, by_control
):
    group = GroupOfLearners(k, n_steps, depth=depth, ahead=2)
    pushed = 0
    for turn in order:
        if turn < k:
            learner = group.learners[turn]
            if not learner.done:
                learner.step()
        elif turn == 3:
            pushed += group.push()
    if by_control:
        group.control.close()
    else:
        group.batches.close()
    group.run()
    assert all(learner.done and learner.settled for learner in group.learners)
    assert len(set(group.versions)) == 1
    assert {vector.tobytes() for vector in group.vectors} == {group.vectors[0].tobytes()}
    done = [learner.algorithm.updates_done for learner in group.learners]
    assert done == group.versions
    if not by_control:
        assert group.versions[0] == pushed


def test_a_gradient_of_another_size_is_refused_with_what_is_wanted():
    exchange = AllReduce(0, {}, {}, N + 1)
    batch = {"x": np.zeros((2, N), np.float32)}
    with pytest.raises(TianJiError, match=r"float32\[6\], .* not float32\[5\]"):
        exchange.begin(Averaging().updates(batch))


def test_an_update_without_a_gradient_is_refused():
    with pytest.raises(TianJiError, match="yielded no gradient"):
        AllReduce(0, {}, {}, N).begin(Averaging(n_steps=0).updates({}))


def test_a_learner_waits_for_a_batch_and_in_an_update_for_the_others_gradients():
    group = GroupOfLearners(2)
    first, second = group.learners
    assert first.step() is False and first.waits_for() is Count.WAITED_BATCH
    group.push()
    while first.step():
        pass
    assert first.waits_for() is Count.WAITED_GRADIENTS
    while second.step() or first.step():
        pass
    assert group.versions == [1, 1] and first.waits_for() is Count.WAITED_BATCH
