"""E Atari games behind ale-py: in the threads of its vector environment, or one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from ale_py import Action, ALEInterface, roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import VectorEnv

from tianji.core.env import BoolArray
from tianji.envs.atari import FIRE, AtariWanted, Frames, Played
from tianji.envs.shown import Picture

NEVER = 2**30  # frames after which ale-py may cut a game off: AtariEnv does it


class Threads:
    """ale-py's AtariVectorEnv: games are played in C++, beside Python."""

    def __init__(
        self, rom: str, wanted: AtariWanted, sticky: float, n_envs: int, threads: int
    ) -> None:
        wrapping, metadata = wanted.wrapping, VectorEnv.metadata
        VectorEnv.metadata = dict(metadata)  # ale-py writes into what belongs to everybody
        try:
            self._env = AtariVectorEnv(
                rom,
                n_envs,
                num_threads=threads,
                max_num_frames_per_episode=NEVER,
                repeat_action_probability=sticky,
                full_action_space=wanted.full_actions,
                img_height=wrapping.height,
                img_width=wrapping.width,
                stack_num=1,
                frameskip=wrapping.skip,
                maxpool=wrapping.skip > 1,
                noop_max=wrapping.noop,
                episodic_life=False,  # would begin a new game after each life
                life_loss_info=False,
                reward_clipping=False,
                use_fire_reset=wrapping.fire,
            )
        finally:
            VectorEnv.metadata = metadata
        self.actions = [action.name for action in self._env.ale.get_action_set()]
        self._strength = np.ones(n_envs, np.float32)
        self._none = np.zeros(n_envs, np.int32), np.zeros(n_envs, np.bool_)

    def reset(self, seed: int | None) -> Played:
        """Begins every game anew."""
        n_envs = self._env.num_envs
        seeds = None if seed is None else (seed + np.arange(n_envs)) % 2**31
        return self._begun(*self._env.reset(seed=seeds))

    def restart(self, which: BoolArray) -> Played:
        """Begins only these anew; the other rows say where those games are."""
        return self._begun(*self._env.reset(options={"reset_mask": which}))

    def send(self, action: npt.NDArray[np.int64]) -> None:
        """One action each; returns at once."""
        self._env.ale.send(action, self._strength)

    def receive(self) -> Played:
        """What came of it; waits without keeping Python from other threads."""
        frames, points, ended, _, info = self._env.ale.recv()
        return Played(frames[:, 0], points, ended, info["lives"], info["episode_frame_number"])

    def close(self) -> None:
        """Ends the threads, which live as long as what holds them."""
        self._env.close()
        del self._env

    def _begun(self, frames: Any, info: dict[str, Any]) -> Played:
        return Played(frames[:, 0], *self._none, info["lives"], info["episode_frame_number"])


class Loop:
    """The same in Python and this thread, for who wants to look at the first one.

    Frames differ from ale-py's by one grey level in a thousandth of the pixels, where a mean of
    pixels lies between two levels.
    """

    def __init__(
        self, rom: str, wanted: AtariWanted, sticky: float, n_envs: int, window: bool
    ) -> None:
        self._wrapping = wanted.wrapping
        path = roms.get_rom_path(rom)
        assert path is not None, rom
        self._rom = path
        self._games = [ALEInterface() for _ in range(n_envs)]
        self._noops = [np.random.default_rng(e) for e in range(n_envs)]
        for e, game in enumerate(self._games):
            game.setFloat("repeat_action_probability", sticky)
            game.setBool("display_screen", window and e == 0)
            game.setInt("random_seed", e)
            game.loadROM(self._rom)
        first = self._games[0]
        full = wanted.full_actions
        self._known = first.getLegalActionSet() if full else first.getMinimalActionSet()
        self.actions = [action.name for action in self._known]
        height, width = first.getScreenDims()
        self._rows = means(height, self._wrapping.height)
        self._columns = means(width, self._wrapping.width).T
        self._screens = np.zeros((n_envs, 2, height, width), np.uint8)
        self._sent: npt.NDArray[np.int64] | None = None
        self._ended = np.zeros(n_envs, np.bool_)

    def reset(self, seed: int | None) -> Played:
        """Begins every game anew."""
        for e, game in enumerate(self._games):
            if seed is not None:
                self._noops[e] = np.random.default_rng(seed + e)
                game.setInt("random_seed", (seed + e) % 2**31)
                game.loadROM(self._rom)
        return self.restart(np.ones(len(self._games), np.bool_))

    def restart(self, which: BoolArray) -> Played:
        """Begins only these anew; the other rows say where those games are."""
        for e in np.flatnonzero(which).tolist():
            self._begin(e)
        return self._played(np.zeros(len(self._games), np.int32))

    def send(self, action: npt.NDArray[np.int64]) -> None:
        """Keeps the actions; they are played when the outcome is asked for."""
        self._sent = action.copy()

    def receive(self) -> Played:
        """Plays what was sent."""
        assert self._sent is not None
        points = np.zeros(len(self._games), np.int32)
        for e, action in enumerate(self._sent.tolist()):
            if self._ended[e]:
                self._begin(e)
            else:
                points[e] = self._play(e, self._known[action])
        self._sent = None
        return self._played(points)

    def picture(self) -> Picture:
        """The first game's screen in colours."""
        return self._games[0].getScreenRGB()

    def close(self) -> None:
        """There is nothing to give back."""

    def _play(self, e: int, action: Action) -> int:
        game, screens, points = self._games[e], self._screens[e], 0
        for left in reversed(range(self._wrapping.skip)):
            points += game.act(action)
            if game.game_over(with_truncation=False):
                break
            if left < 2:
                game.getScreenGrayscale(screens[left])
        return points

    def _begin(self, e: int) -> None:
        game, noop = self._games[e], self._wrapping.noop
        game.reset_game()
        for _ in range(self._noops[e].integers(noop) if noop else 0):
            self._one(game, Action.NOOP)
        if self._wrapping.fire and FIRE in self.actions:
            self._one(game, Action.FIRE)
        game.getScreenGrayscale(self._screens[e, 0])
        self._screens[e, 1] = 0  # older than the game

    def _one(self, game: ALEInterface, action: Action) -> None:
        game.act(action)
        if game.game_over(with_truncation=False):
            game.reset_game()

    def _played(self, points: npt.NDArray[np.int32]) -> Played:
        self._ended = np.array([game.game_over(with_truncation=False) for game in self._games])
        lives = np.array([game.lives() for game in self._games], np.int32)
        numbers = [game.getEpisodeFrameNumber() for game in self._games]
        return Played(self._frames(), points, self._ended, lives, np.array(numbers, np.int32))

    def _frames(self) -> Frames:
        pooled = self._screens.max(1) if self._wrapping.skip > 1 else self._screens[:, 0]
        grey = self._rows @ pooled.astype(np.float32) @ self._columns
        return np.rint(grey).astype(np.uint8)


def means(n_in: int, n_out: int) -> npt.NDArray[np.float32]:
    """The matrix [n_out, n_in] that shrinks an axis: each output is the mean of what it covers."""
    edges = np.linspace(0.0, n_in, n_out + 1)
    pixels = np.arange(n_in)
    low = np.maximum(edges[:-1, None], pixels)
    high = np.minimum(edges[1:, None], pixels + 1)
    covered: npt.NDArray[np.float64] = np.maximum(high - low, 0.0)
    return (covered * n_out / n_in).astype(np.float32)
