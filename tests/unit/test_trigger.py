"""The conditions on which roles communicate."""

import pytest

from tianji.roles.trigger import EveryUpdates, WhenFull


@pytest.mark.parametrize("send_size", [1, 2, 16])
def test_a_trajectory_is_pushed_when_it_is_full_and_not_before(send_size):
    trigger = WhenFull(send_size)
    fired = [length for length in range(1, send_size + 1) if trigger.fires(length, ended=False)]
    assert fired == [send_size]


def test_the_end_of_an_episode_does_not_push_by_default():
    assert not WhenFull(16).fires(3, ended=True)


@pytest.mark.parametrize(("interval", "expected"), [(1, [1, 2, 3, 4]), (2, [2, 4]), (3, [3])])
def test_weights_are_published_at_multiples_of_the_interval(interval, expected):
    trigger = EveryUpdates(interval)
    assert [version for version in range(1, 5) if trigger.fires(version)] == expected
