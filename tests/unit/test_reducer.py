"""The fusion of groups: the mean of all that are open, and nobody waits for it."""

import numpy as np
import pytest
from learners import GroupOfLearners, N, reducer_of

from tianji.core.counts import Count
from tianji.roles import role_state


def send(stage, group, value, version=0):
    vector = np.full(N, value, np.float32) if np.isscalar(value) else value
    return stage.outboxes[group].push({"parameters": vector}, version)


def test_the_mean_is_that_of_all_groups():
    stage, random = reducer_of(3), np.random.default_rng(0)
    sent = random.normal(size=(3, N)).astype(np.float32)
    for group in range(3):
        assert stage.mean.take() is None
        send(stage, group, sent[group])
        stage.reducer.step()
    message = stage.mean.take()
    np.testing.assert_array_equal(message.arrays["parameters"], np.mean(sent, axis=0))
    counts = stage.reducer.counts
    apart = np.linalg.norm(sent - np.mean(sent, axis=0), axis=1)
    assert counts[Count.FUSIONS] == 1
    assert counts[Count.DISTANCE] == pytest.approx(np.sqrt((apart**2).mean()))


def test_it_takes_one_from_each_group_for_every_mean():
    stage = reducer_of(2)
    send(stage, 0, 1.0)
    assert stage.reducer.step() is True
    assert stage.reducer.step() is False
    assert send(stage, 0, 5.0) is False  # the first is not averaged yet
    send(stage, 1, 3.0)
    stage.reducer.step()
    assert stage.mean.take().arrays["parameters"][0] == 2.0
    stage.reducer.step()  # frees what was averaged
    assert send(stage, 0, 5.0) is True


def test_a_group_that_has_ended_is_left_out():
    stage = reducer_of(3)
    stage.outboxes[1].close()
    send(stage, 0, 1.0)
    send(stage, 2, 4.0)
    stage.reducer.step()
    assert stage.mean.take().arrays["parameters"][0] == 2.5


def test_what_a_group_sent_before_its_end_still_counts():
    stage = reducer_of(3)
    send(stage, 1, 7.0)
    stage.outboxes[1].close()
    send(stage, 0, 1.0)
    send(stage, 2, 4.0)
    stage.reducer.step()
    assert stage.mean.take().arrays["parameters"][0] == 4.0


def test_with_one_group_left_there_is_nothing_to_average():
    stage = reducer_of(2)
    stage.outboxes[1].close()
    send(stage, 0, 1.0)
    stage.reducer.step()
    assert stage.mean.take() is None
    assert stage.mean.closed
    assert not stage.reducer.done  # its process ends with the last group
    assert stage.reducer.step() is False
    assert send(stage, 0, 2.0)  # it has not heard of it
    stage.outboxes[0].close()
    assert [stage.reducer.step() for _ in range(2)] == [True, True]
    assert stage.reducer.done


def test_it_is_done_when_all_groups_are():
    stage = reducer_of(2)
    for outbox in stage.outboxes:
        outbox.close()
    assert stage.reducer.step() is True
    assert stage.reducer.done


def test_it_makes_no_more_means_than_were_asked_for():
    stage = reducer_of(2, max_fusions=1)
    for value in (1.0, 2.0):
        for group in (0, 1):
            send(stage, group, value)
        for _ in range(3):
            stage.reducer.step()
    assert stage.reducer.fusions == 1
    assert stage.mean.closed


def test_what_it_had_gathered_is_remembered():
    stage, again = reducer_of(2), reducer_of(2)
    send(stage, 0, 3.0)
    stage.reducer.step()
    role_state.restore(again.reducer, role_state.state(stage.reducer))
    send(again, 1, 5.0)
    again.reducer.step()
    assert again.mean.take().arrays["parameters"][0] == 4.0
    role_state.restore(again.reducer, role_state.state(stage.reducer))
    role_state.rejoin(again.reducer, 7)
    assert not again.reducer.came.any()


# -------------------------------------------------------------------------------- a learner's side


def learn(group, n=1):
    for _ in range(n):
        group.push()
        group.run()


def publish(group, vector, n=1):
    group.mean.push({"parameters": np.asarray(vector, np.float32)}, n)


@pytest.mark.parametrize("k", [1, 2])
def test_parameters_are_sent_every_so_many_updates(k):
    group = GroupOfLearners(k, interval=3)
    learn(group, 2)
    assert group.parameters.take() is None
    learn(group)
    message = group.parameters.take()
    assert message.version == 3
    np.testing.assert_array_equal(message.arrays["parameters"], group.vectors[0])


@pytest.mark.parametrize("k", [1, 2])
def test_what_was_learned_while_the_mean_was_made_is_kept(k):
    group, plain = GroupOfLearners(k, interval=1), GroupOfLearners(k)
    learn(group)
    sent = group.parameters.take().arrays["parameters"].copy()
    mean = sent + np.arange(N, dtype=np.float32)
    publish(group, mean)
    for stage in (group, plain):
        stage.random = np.random.default_rng(1)
    before = [vector.copy() for vector in group.vectors]
    for vector, other in zip(plain.vectors, before, strict=True):
        vector[...] = other
    learn(group)
    learn(plain)
    for vector, other in zip(group.vectors, plain.vectors, strict=True):
        np.testing.assert_allclose(vector, other + (mean - sent), atol=1e-6)
    assert {vector.tobytes() for vector in group.vectors} == {group.vectors[0].tobytes()}
    assert group.learners[0].counts[Count.FUSIONS] == 1


def test_with_nothing_learned_in_between_it_is_plain_averaging():
    group = GroupOfLearners(k=1, interval=1)
    learn(group)
    fusion, learner = group.learners[0].fusion, group.learners[0]
    mean = np.linspace(-1, 1, N, dtype=np.float32)
    publish(group, mean)
    learner.algorithm.shift(fusion.correction())
    np.testing.assert_allclose(learner.algorithm.vector, mean, atol=1e-6)


def test_a_learner_learns_on_while_no_mean_comes_and_counts_that_it_could_not_send():
    group = GroupOfLearners(k=1, interval=1)
    learn(group, 4)
    assert group.versions == [4]
    assert group.learners[0].counts[Count.REFUSED] == 3
    assert group.parameters.take().version == 1
    assert group.parameters.take() is None
    publish(group, group.vectors[0])
    learn(group)
    assert group.parameters.take().version == 5


def test_without_a_reducer_left_it_sends_nothing():
    group = GroupOfLearners(k=1, interval=1)
    group.mean.close()
    learn(group, 3)
    assert group.parameters.take() is None
    assert group.learners[0].counts[Count.REFUSED] == 0


def test_a_learner_that_ends_leaves_the_fusions_to_others():
    group = GroupOfLearners(k=1, interval=1)
    group.control.close()
    group.run()
    assert group.parameters.closed


def test_what_is_in_flight_may_be_remembered_or_lost():
    group, again = GroupOfLearners(k=1, interval=2), GroupOfLearners(k=1, interval=2)
    learn(group, 3)
    state = group.learners[0].fusion.state()
    fusion = again.learners[0].fusion
    fusion.restore(state)
    publish(again, np.ones(N))
    np.testing.assert_allclose(fusion.correction(), 1 - state["sent"])
    fusion.restore(state)
    fusion.rejoin(3)
    publish(again, np.ones(N))
    assert fusion.correction() is None
    fusion.offer(lambda: np.zeros(N, np.float32), 4)
    assert again.parameters.take().version == 4
