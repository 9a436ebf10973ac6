"""Production and consumption in step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianji.core.balance import MOST_DEPTH, Balance, depth_for, slack_for
from tianji.core.errors import TianJiError


@pytest.mark.parametrize(
    ("ratio", "batch", "warmup", "slack", "received", "consumed", "consume", "produce"),
    [
        (1, 32, 0, 0, 0, 0, False, True),  # nothing there
        (1, 32, 0, 0, 31, 0, False, True),  # not a batch yet
        (1, 32, 0, 0, 32, 0, True, False),  # exactly one batch is owed
        (1, 32, 0, 0, 32, 32, False, True),  # and paid
        (1, 32, 100, 0, 131, 0, False, True),  # the warm-up is not paid for
        (1, 32, 100, 0, 132, 0, True, False),
        (32, 32, 0, 0, 1, 0, True, False),  # an update per sample
        (32, 32, 0, 0, 16, 15 * 32, True, False),
        (32, 32, 0, 0, 16, 16 * 32, False, True),
        (0.5, 32, 0, 0, 63, 0, False, True),
        (0.5, 32, 0, 0, 64, 0, True, False),
        (1, 32, 0, 16, 32, 0, True, True),  # slack: production may run 16 samples ahead
        (1, 32, 0, 16, 47, 0, True, True),
        (1, 32, 0, 16, 48, 0, True, False),
        (2, 32, 0, 16, 31, 0, True, True),  # slack is counted in samples produced
        (2, 32, 0, 16, 32, 0, True, False),
    ],
)
def test_the_formula(ratio, batch, warmup, slack, received, consumed, consume, produce):
    balance = Balance(ratio, batch, warmup, slack)
    balance.received, balance.consumed = received, consumed
    assert (balance.may_consume(), balance.may_produce()) == (consume, produce)


def test_a_batch_that_is_not_learned_from_yet_is_still_owed():
    balance = Balance(ratio=1, batch=32)
    balance.received = balance.consumed = 32
    assert balance.may_produce()
    assert not balance.may_produce(unsettled=32)


@pytest.mark.parametrize(
    ("batch", "ratio", "arriving", "on_policy", "depth"),
    [
        (128, 4, 128, False, 2),  # one brings more than a batch needs
        (128, 4, 16, False, 3),  # a batch needs two: while it is learned from, two more are made
        (128, 1, 16, False, 9),
        (128, 0.01, 16, False, MOST_DEPTH),  # memory has an end
        (128, 1, 16, True, 2),  # on-policy samples would be older
    ],
)
def test_actors_have_room_for_what_the_next_batch_needs(batch, ratio, arriving, on_policy, depth):
    assert depth_for(batch, ratio, arriving, on_policy) == depth


BALANCES = st.builds(
    Balance,
    ratio=st.sampled_from([0.1, 0.25, 1, 1.5, 4, 32]) | st.floats(0.05, 40),
    batch=st.integers(1, 64),
    warmup=st.integers(0, 200),
    slack=st.integers(0, 100),
)
ROUNDS = st.lists(st.tuples(st.integers(1, 32), st.booleans()), min_size=1, max_size=200)


@given(BALANCES, st.integers(0, 5000), st.integers(0, 5000))
def test_one_of_the_two_questions_is_always_answered_with_yes(balance, received, consumed):
    balance.received, balance.consumed = received, consumed
    assert balance.may_produce() or balance.may_consume()


@given(BALANCES, ROUNDS)
def test_whoever_follows_the_answers_keeps_the_ratio_within_a_batch(balance, rounds):
    for size, consumption_first in rounds:
        for consuming in (consumption_first, not consumption_first):
            if consuming and balance.may_consume():
                balance.consume()
            elif not consuming and balance.may_produce():
                balance.receive(size)
        owed = balance.earned - balance.consumed
        assert balance.consumed == 0 or owed >= 0
        assert owed < balance.batch + (balance.slack + size_limit(rounds)) * balance.ratio


def size_limit(rounds):
    """The most that one message may bring at once."""
    return max(size for size, _ in rounds)


@given(BALANCES, st.lists(st.integers(1, 32), min_size=1, max_size=100))
def test_when_all_that_may_be_consumed_is_consumed_less_than_a_batch_is_owed(balance, sizes):
    for size in sizes:
        balance.receive(size)
        while balance.may_consume():
            balance.consume()
    assert balance.earned - balance.consumed < balance.batch


@pytest.mark.parametrize("ratio", [0, -1.0])
def test_a_ratio_that_would_never_consume_is_refused(ratio):
    with pytest.raises(TianJiError, match="replay_ratio: want a number above 0"):
        Balance(ratio, batch=1)


@pytest.mark.parametrize(
    ("ratio", "on_policy", "slack"),
    [
        (4.0, False, 64),  # a trajectory of everybody is more than the next batch needs
        (1.0, False, 128),
        (0.5, False, 256),  # or it could not be made before the last was learned from
        (0.5, True, 64),  # old samples would cost more than a learner that waits
    ],
)
def test_a_buffer_beside_its_learner_may_have_what_the_next_batch_needs(ratio, on_policy, slack):
    assert slack_for(128, ratio, 64, on_policy) == slack
    balance = Balance(ratio, 128, slack=slack)
    for _ in range(int(128 / ratio / 64)):
        balance.receive(64)
    balance.consume()  # handed out, and being learned from
    received = 0
    while balance.may_produce(128):
        balance.receive(64)
        received += 64
    assert balance.may_consume() is not on_policy and received >= slack
