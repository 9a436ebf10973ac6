"""How good a policy is: whole games without exploration, and what their returns amount to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from tianji.core import stats
from tianji.core.algorithm import Policy
from tianji.core.env import BoolArray, Env, ended_in, lost_in, over_of, points_of
from tianji.core.errors import TianJiError
from tianji.core.schema import Arrays
from tianji.core.state import fresh_seed
from tianji.core.stats import Floats

MOST_ENVS = 16  # environments that play side by side
MOST_EPISODES = 100_000  # that one evaluation may have


Tell = Callable[[int, int], None]
"""Is told after every step how many games are over, and how many steps were played in each."""


class Games:
    """Plays `n_episodes` whole episodes without exploration, one step of all E environments a time.

        games = Games(env, policy, n_episodes=20)
        games.reset(seed=0)
        while not games.step():
            ...
        print(games.returns.mean())

    Episode k of environment e is result number k * E + e, and counts if that is below `n_episodes`.
    So every environment plays a number of episodes that is known before, whichever ends first: to
    take the first that end would favour short ones. What is played beyond them is not counted. An
    episode that a broken game lost is played once more.
    """

    def __init__(self, env: Env, policy: Policy, n_episodes: int) -> None:
        assert n_episodes > 0, n_episodes
        n_envs = env.spec.n_envs
        self.returns = np.zeros(n_episodes)
        self.lengths = np.zeros(n_episodes, np.int64)
        self.won = np.full(n_episodes, np.nan)  # 1: won, 0: not; nan: nobody can win
        self._env, self._policy = env, policy
        self._obs: Arrays | None = None  # None: nothing begun yet
        self._first = np.ones(n_envs, np.bool_)
        self._place = np.arange(n_envs)  # the result that each environment plays for
        self._returned = np.zeros(n_envs)
        self._steps = np.zeros(n_envs, np.int64)
        self._after_end = np.zeros(n_envs, np.bool_)
        self._left = n_episodes

    @property
    def over(self) -> int:
        """Episodes that count and have ended."""
        return len(self.returns) - self._left

    def reset(self, seed: int) -> None:
        """Begins anew; the same seed and the same weights give the same games."""
        self._obs = self._env.reset(seed)
        self._first = np.ones(self._place.size, np.bool_)
        self._place[:] = np.arange(self._place.size)
        for array in (self.returns, self.lengths, self._returned, self._steps, self._after_end):
            array.fill(0)
        self._left = len(self.returns)

    def step(self) -> bool:
        """One step of every environment; True when all episodes that count have ended."""
        assert self._obs is not None and self._left, "reset first"
        decision = self._policy.act(self._obs, self._first, explore=False)
        step = self._env.step(decision["action"])
        self._obs, self._first = step.obs, step.first
        if (lost := lost_in(step, self._after_end)).any():
            self._returned[lost], self._steps[lost] = 0.0, 0
        self._after_end = ended_in(step)
        counted = step.valid if step.score is None else True  # points count in every row
        self._returned += np.where(counted, points_of(step), 0.0)
        self._steps += step.valid
        ended = over_of(step)  # a game may have several lives
        if ended.any():
            self._record(ended, step.won)
        return self._left == 0

    def _record(self, ended: BoolArray, won: BoolArray | None) -> None:
        counts = np.flatnonzero(ended & (self._place < len(self.returns)))
        places = self._place[counts]
        self.returns[places] = self._returned[counts]
        self.lengths[places] = self._steps[counts]
        if won is not None:
            self.won[places] = won[counts]
        self._left -= counts.size
        self._place[ended] += self._place.size
        self._returned[ended] = 0.0
        self._steps[ended] = 0


@dataclass(frozen=True)
class Evaluation:
    """The outcome of some games that one set of weights has played."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    version: int  # updates behind the weights
    seed: int
    won: tuple[float, ...] | None = None  # 1: won, 0: not; None: nobody can win

    @property
    def win_ratio(self) -> float | None:
        """Share of the games that were won; None where nobody can win."""
        return None if self.won is None else float(np.mean(self.won))

    @cached_property
    def win_interval(self) -> tuple[float, float] | None:
        """Where the true share lies, with 95 % (Wilson)."""
        return None if self.won is None else stats.wilson(int(sum(self.won)), len(self.won))

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns, over these episodes."""
        with np.errstate(invalid="ignore"):  # of infinite returns
            return float(np.std(self.returns))

    @property
    def iqm(self) -> float:
        """Mean return of the middle half of the episodes."""
        return stats.iqm(self.returns)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Where the IQM of as many other episodes would lie, with 95 % (a bootstrap)."""
        return stats.interval(self.returns)

    def row(self, of: str, env_steps: int | None, wall_s: float | None = None) -> dict[str, Any]:
        """A row of `evaluations.jsonl`; `of` is "training" or "eval"."""
        low, high = self.interval
        return {
            "of": of,
            "wall_s": wall_s,
            "env_steps": env_steps,
            "updates": self.version,
            "episodes": len(self.returns),
            "seed": self.seed,
            "mean": self.mean,
            "std": self.std,
            "iqm": self.iqm,
            "low": low,
            "high": high,
            "win_ratio": self.win_ratio,
            "win_low": None if self.win_interval is None else self.win_interval[0],
            "win_high": None if self.win_interval is None else self.win_interval[1],
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "won": None if self.won is None else list(self.won),
        }


class Playable(Protocol):
    """What can be evaluated: `tianji.load(RUN)` is."""

    @property
    def policy(self) -> Policy:
        """The policy, with its weights."""

    @property
    def version(self) -> int:
        """Updates behind the weights."""

    def games_environment(self, n_episodes: int) -> Env:
        """Fresh environments to play `n_episodes` in."""


def evaluate(
    trained: Playable, episodes: int, seed: int = 0, tell: Tell = lambda over, moves: None
) -> Evaluation:
    """Plays `episodes` whole games without exploration; the same seed gives the same games."""
    check(episodes, seed)
    return play(trained, trained.games_environment(episodes), episodes, seed, tell)


def play(
    trained: Playable, env: Env, episodes: int, seed: int, tell: Tell = lambda over, moves: None
) -> Evaluation:
    """The same in environments of the caller's, which are closed in the end."""
    games = Games(env, trained.policy, episodes)
    try:
        games.reset(env_seed(seed))
        moves = 1
        while not games.step():
            tell(games.over, moves)
            moves += 1
    finally:
        env.close()
    return outcome(games, trained.version, seed)


def outcome(games: Games, version: int, seed: int) -> Evaluation:
    """What finished games amount to."""
    return evaluation_of(games.returns, games.lengths, games.won, version, seed)


def evaluation_of(
    returns: Floats, lengths: Any, won: Floats, version: int, seed: int
) -> Evaluation:
    """The same from arrays; `won` is nan where nobody can win."""
    results = None if np.isnan(won).any() else tuple(won.tolist())
    return Evaluation(tuple(returns.tolist()), tuple(lengths.tolist()), version, seed, results)


def check(episodes: int, seed: int) -> None:
    """Refuses numbers that nobody can play with."""
    if episodes < 1:
        raise TianJiError(f"episodes: {episodes} is too few: play 1 at least")
    if episodes > MOST_EPISODES:
        raise TianJiError(f"episodes: {episodes:,} is too many: play {MOST_EPISODES:,} at most")
    if not 0 <= seed < 2**63:
        raise TianJiError(f"seed: want a number from 0 to 2**63 - 1, got {seed}")


def env_seed(seed: int) -> int:
    """The environments' seed for an evaluation's seed.

    Environments count on from their seed, so the plain numbers 0 and 1 would share most games. The
    second word keeps evaluation apart from training, whose seeds are made in the same manner.
    """
    return fresh_seed(seed, *b"eval")
