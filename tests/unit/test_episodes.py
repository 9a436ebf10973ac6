"""What a game was worth beside what was learned from it, from the actor to the stop condition."""

import math

import numpy as np
import pytest

from tianji.core.env import Step
from tianji.roles.episodes import Ended, EpisodeLog, Episodes


def step_of(reward, ended=False, over=None, score=None, valid=True):
    """A step of one environment."""

    def flag(value):
        return np.array([value])

    none = flag(False)
    points = None if score is None else np.array([score], np.float32)
    gained = np.array([reward], np.float32)
    ends = flag(ended), none
    game = None if over is None else flag(over)
    return Step({}, gained, *ends, flag(valid), flag(not valid), None, points, game)


def test_an_episode_without_lives_is_worth_what_was_learned_from_it():
    episodes = Episodes(1, clock=lambda: 5.0)
    assert not episodes.add(step_of(2.0))
    assert episodes.add(step_of(3.0, ended=True), version=7)
    assert episodes.ended == [Ended(5.0, 2, 5.0, 2, 7, 5.0)]


def test_a_game_has_its_points_over_all_lives_beside_the_mean_of_its_clipped_lives():
    episodes = Episodes(1, clock=lambda: 0.0)
    lives = [(1.0, 7.0), (1.0, 4.0), (0.0, 0.0)]
    for i, (reward, score) in enumerate(lives):
        last = i == len(lives) - 1
        assert not episodes.add(step_of(reward, over=False, score=score))
        assert episodes.add(step_of(1.0, ended=True, over=last, score=1.0))
        if not last:  # FIRE: nobody learns from it, but it may score
            assert not episodes.add(step_of(0.0, over=False, score=2.0, valid=False))
    (game,) = episodes.ended
    assert (game.returned, game.length) == (18.0, 6)
    assert game.learned == pytest.approx(5 / 3)
    episodes.add(step_of(1.0, ended=True, over=True, score=10.0))
    assert (episodes.ended[1].returned, episodes.ended[1].learned) == (10.0, 1.0)


def test_a_game_that_ends_in_a_row_nobody_learns_from_is_a_game_all_the_same():
    episodes = Episodes(1, clock=lambda: 0.0)
    episodes.add(step_of(1.0, ended=True, over=False, score=3.0))
    assert not episodes.add(step_of(0.0, over=True, score=0.0, valid=False))
    assert [(game.returned, game.length, game.learned) for game in episodes.ended] == [(3, 1, 1)]


def test_an_episode_that_a_broken_game_lost_is_forgotten():
    episodes = Episodes(1, clock=lambda: 0.0)
    episodes.add(step_of(4.0))
    assert not episodes.add(step_of(0.0, valid=False))  # no end before it: lost
    episodes.add(step_of(1.0))
    episodes.add(step_of(2.0, ended=True))
    episodes.add(step_of(0.0, valid=False))  # what follows every end
    episodes.add(step_of(5.0, ended=True))
    told = [(game.returned, game.length, game.steps) for game in episodes.ended]
    assert told == [(3.0, 2, 3), (5.0, 1, 4)]  # the lost one's step was made all the same


def test_only_the_environment_whose_game_broke_begins_anew():
    def step(reward, valid, ended=(False, False)):
        none, valid = np.zeros(2, bool), np.array(valid)
        return Step({}, np.array(reward, np.float32), np.array(ended), none, valid, ~valid)

    episodes = Episodes(2, clock=lambda: 0.0)
    episodes.add(step((4.0, 4.0), (True, True)))
    episodes.add(step((0.0, 2.0), (False, True)))
    episodes.add(step((1.0, 1.0), (True, True), (True, True)))
    assert [(game.returned, game.length) for game in episodes.ended] == [(1.0, 1), (7.0, 3)]


@pytest.mark.parametrize("known", [True, False])
def test_the_row_after_a_life_is_told_from_a_lost_game_also_after_a_restart(known):
    before, after = (EpisodeLog(1, None, clock=lambda: 0.0) for _ in range(2))
    before.add(step_of(1.0, ended=True, over=False, score=7.0))
    state = before.state()
    if not known:  # as older checkpoints are
        del state["after_end"]
    after.restore(state)
    after.add(step_of(0.0, over=False, score=2.0, valid=False))
    after.add(step_of(1.0, ended=True, over=True, score=1.0))
    assert [(game.returned, game.length) for game in after.ended] == [(10.0, 2)]


def test_games_in_progress_are_forgotten_when_they_begin_anew():
    episodes = Episodes(1, clock=lambda: 0.0)
    episodes.add(step_of(1.0, over=False, score=3.0))
    episodes.begin_anew()
    episodes.add(step_of(1.0, ended=True, over=True, score=5.0))
    (game,) = episodes.ended
    assert (game.returned, game.learned, game.steps) == (5.0, 1.0, 2)


def test_one_that_is_older_than_the_number_says_nan():
    assert math.isnan(Ended(1.0, 2, 3.0).learned)
