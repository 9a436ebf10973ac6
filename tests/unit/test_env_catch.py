"""Catch: a game of pixels in which one must see how the ball flies."""

import time

import numpy as np
import pytest
from wrapped import environment

from tianji.core.errors import TianJiError
from tianji.envs import Rendering, make, make_shown
from tianji.envs.catch import BALL, Catch


def balls_and_paddles(obs):
    """Columns of ball and paddle and the ball's row, as a player of 12 pixels' boards sees them."""
    rows, columns = np.divmod((obs == BALL).reshape(len(obs), -1).argmax(1), 12)
    paddle = (obs[:, -1] > 0).argmax(1) + 1
    return rows, columns, paddle


def play(n_frames, fastest=2, n_episodes=2000):
    """The mean return of a player who follows the ball, or with two frames sees where it lands."""
    env = Catch(64, size=12, fastest=fastest)
    returns, before, first = [], None, np.ones(64, bool)
    obs = env.reset(0)["obs"]
    while len(returns) < n_episodes:
        row, column, paddle = balls_and_paddles(obs)
        aim = column
        if n_frames == 2 and before is not None:
            aim = np.where(first, paddle, landing(row, column, column - before))
        before = column
        step = env.step(np.sign(aim - paddle) + 1)
        obs, first = step.obs["obs"], step.first
        returns += step.reward[step.terminated].tolist()
    return np.mean(returns)


def landing(row, column, moved):
    """Where a ball lands that bounces, if it did not bounce between the two frames."""
    x = (column + moved * (11 - row)) % 22
    return np.where(x > 11, 22 - x, x)


def test_two_frames_are_needed_and_enough():
    assert play(2) == 1.0  # every ball
    assert play(1) < 0.3
    assert play(1, fastest=1) > 0.9  # as fast as the paddle: to follow it is enough


@pytest.mark.parametrize("size", [12, 24, 42, 84])
def test_boards_fill_frames_of_any_size(size):
    env = Catch(3, size=size, stack=3)
    obs = env.reset(0)["obs"]
    pixels = size // 12
    assert (obs.shape, obs.dtype, env.spec.stack) == ((3, size, size), np.uint8, 3)
    assert ((obs == BALL).sum((1, 2)) == pixels**2).all()
    assert ((obs > 0).sum((1, 2)) == 4 * pixels**2).all()


def test_an_episode_is_so_many_balls_and_a_row_that_only_begins_follows():
    env = Catch(2, size=12, balls=3)
    env.reset(0)
    ended = []
    for t in range(35):
        step = env.step(np.ones(2, np.int64))
        assert not step.truncated.any() and (step.first == ~step.valid).all()
        assert (step.valid == (t != 33)).all() and not step.reward[~step.valid].any()
        assert (step.reward != 0).all() == (t in (10, 21, 32))
        ended += [t] * int(step.terminated.sum())
    assert ended == [32, 32] and env.spec.max_episode_steps == 33


def test_it_goes_on_where_its_state_was_taken():
    one, other = Catch(4, size=12), Catch(4, size=12)
    one.reset(3)
    for _ in range(5):
        one.step(np.zeros(4, np.int64))
    other.restore(one.state())
    for t in range(40):
        action = np.full(4, t % 3)
        a, b = one.step(action), other.step(action)
        assert (a.obs["obs"] == b.obs["obs"]).all() and (a.valid == b.valid).all()


def test_a_config_names_it_and_its_keys():
    env = make(environment("type='Catch', kwargs=dict(size=36, balls=2)"), 5, ".")
    assert (env.spec.n_envs, env.spec.input_shape, env.spec.reward_threshold) == (
        5,
        (2, 36, 36),
        1.8,
    )
    shown = make_shown(environment("type='Catch'"), ".", None, Rendering.PICTURES)
    assert shown.picture().shape == (192, 192, 3)


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [("size=8", "size"), ("balls=0", "balls"), ("stack=1.5", "stack"), ("speed=2", "'speed'")],
)
def test_other_keys_and_values_are_refused(kwargs, said):
    with pytest.raises(TianJiError, match=said):
        make(environment(f"type='Catch', kwargs=dict({kwargs})"), 1, ".")


def test_it_is_quick():
    env = Catch(64, size=24)
    env.reset(0)
    action = np.ones(64, np.int64)
    began = time.process_time()
    for _ in range(100):
        env.step(action)
    assert 6400 / (time.process_time() - began) > 10_000
