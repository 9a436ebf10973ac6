"""Atari games, many at once: single frames, true points, honest ends of lives and of games."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete

from tianji.config.wrappers import Wrapping
from tianji.core.env import BoolArray, EnvSpec, Rendering, Step
from tianji.core.errors import TianJiError
from tianji.core.imports import did_you_mean
from tianji.core.schema import Arrays, Field
from tianji.envs.shown import Picture
from tianji.envs.spaces import Actions

FRAMES_PER_SECOND = 60.0
STICKY = 0.25  # of gymnasium's -v0 and -v5
NOOP, FIRE = "NOOP", "FIRE"

Frames = npt.NDArray[np.uint8]
"""[E, height, width], grey."""


@dataclass(frozen=True)
class AtariWanted:
    """Everything that is to be said about the games of one actor."""

    game: str  # as the user writes it
    wrapping: Wrapping
    sticky: float | None = None  # None: what the name stands for
    full_actions: bool = False
    max_frames: int = 108_000
    max_step: int | None = None
    threads: int | None = None


class Played(NamedTuple):
    """What one step of E games gave."""

    frames: Frames
    points: npt.NDArray[np.int32]
    ended: BoolArray  # the game is over; the next step begins another one, whatever the action
    lives: npt.NDArray[np.int32]
    frame_numbers: npt.NDArray[np.int32]  # since the game began


class Consoles(Protocol):
    """E games that can be started and played; they know nothing of episodes."""

    actions: list[str]  # names, in the order in which they are counted

    def reset(self, seed: int | None) -> Played:
        """Begins every game anew."""

    def restart(self, which: BoolArray) -> Played:
        """Begins only these anew; the other rows say where those games are."""

    def send(self, action: npt.NDArray[np.int64]) -> None:
        """One action each; returns at once."""

    def receive(self) -> Played:
        """What came of it."""

    def close(self) -> None:
        """Gives back threads and memory."""


class AtariEnv:
    """An `Env` and `SplitEnv` over E games; the step after an episode's end only begins the next.

    Frames are single: `spec.stack` says how many the policy stacks. With `life` an episode ends
    with a life while the game goes on. The row that follows, not `valid`, plays one step that is
    not the policy's: FIRE with `fire`, otherwise nothing, as the classic wrappers do. So every
    episode's end, of a life or of a game, is followed by exactly such a row, and `first` is where
    `valid` is not: a stack that starts anew there crosses neither lives nor games.

    `score` has the game's points, unclipped, and `over` tells where a game has ended or was cut
    off. What a frame shows when a game ends is not captured by ale-py: `obs` repeats an older one
    there. Nothing is learned from it, because the episode is terminated. Games that take too long
    are cut off here and not by ale-py, whose last frame would be an older one as well.
    """

    def __init__(self, wanted: AtariWanted, consoles: Consoles, n_envs: int) -> None:
        wrapping = wanted.wrapping
        self._name = f"AtariEnv {wanted.game}"
        self._consoles, self._wrapping = consoles, wrapping
        self._max_frames, self._max_step = wanted.max_frames, wanted.max_step
        n_actions = len(consoles.actions)
        longest = -(-wanted.max_frames // wrapping.skip)
        self.spec = EnvSpec(
            observations=(Field("obs", "uint8", (wrapping.height, wrapping.width)),),
            action=Field("action", "int64", ()),
            choices=(n_actions,),
            n_envs=n_envs,
            max_episode_steps=min(longest, wanted.max_step or longest),
            stack=wrapping.stack,
        )
        self._actions = Actions(self._name, Discrete(n_actions), self.spec)
        self._opening = consoles.actions.index(self._opening_action())
        self._begun = False  # whether a step is under way
        self._begins = np.zeros(n_envs, np.bool_)  # whose next row only begins an episode
        self._cut = np.zeros(n_envs, np.bool_)  # whose game was cut off in the last step
        self._fresh = np.zeros(n_envs, np.bool_)  # whose next row begins a game
        self._lives = np.zeros(n_envs, np.int32)
        self._steps = np.zeros(n_envs, np.int64)  # of the current game

    def _opening_action(self) -> str:
        """What begins a life."""
        return FIRE if self._wrapping.fire and FIRE in self._consoles.actions else NOOP

    def reset(self, seed: int | None = None) -> Arrays:
        """Begins every game anew; environment e is seeded with `seed + e`."""
        if self._begun:
            self._consoles.receive()
            self._begun = False
        played = self._consoles.reset(seed)
        for array in (self._begins, self._cut, self._fresh, self._steps):
            array.fill(0)
        self._lives[...] = played.lives
        return {"obs": played.frames}

    def step(self, action: npt.NDArray[Any]) -> Step:
        """Applies one action per environment."""
        self.begin(action)
        return self.finish()

    def begin(self, action: npt.NDArray[Any]) -> None:
        """Sends one action per environment and returns at once; the array may be used again."""
        assert not self._begun, "finish the step that was begun"
        actions = self._actions.all(action)  # one outside would block ale-py for ever
        if self._begins.any():
            actions = np.where(self._begins, self._opening, actions)
        self._consoles.send(actions)
        self._begun = True

    def finish(self) -> Step:
        """What came of it, as soon as every environment has moved."""
        assert self._begun, "begin a step first"
        played = self._consoles.receive()
        self._begun = False
        if self._cut.any():
            played = self._consoles.restart(self._cut)._replace(
                points=played.points, ended=played.ended & ~self._cut
            )
        return self._told(played)

    def close(self) -> None:
        """Ends the threads that play."""
        self._consoles.close()

    def _told(self, played: Played) -> Step:
        """The step, and what the next one has to know."""
        valid = ~self._begins
        score = np.where(self._fresh, 0, played.points).astype(np.float32)
        self._steps += 1
        self._steps[self._fresh] = 0
        late = played.frame_numbers >= self._max_frames
        if self._max_step is not None:
            late |= self._steps >= self._max_step
        cut = late & ~played.ended & ~self._fresh
        terminated = played.ended.copy()
        if self._wrapping.life:
            terminated |= (played.lives > 0) & (played.lives < self._lives) & ~self._fresh
        terminated &= valid
        over = played.ended | cut
        self._lives[...] = played.lives
        self._cut, self._fresh, self._begins = cut, over, terminated | over
        gained = np.sign(score) if self._wrapping.clip else score
        return Step(
            obs={"obs": played.frames},
            reward=np.where(valid, gained, np.float32(0.0)),
            terminated=terminated,
            truncated=cut & valid & ~terminated,
            valid=valid,
            first=~valid,
            score=score,
            over=over,
        )


class ShownAtari(AtariEnv):
    """Games of which the first can be looked at."""

    def __init__(self, wanted: AtariWanted, consoles: Any, n_envs: int) -> None:
        super().__init__(wanted, consoles, n_envs)
        self.fps = FRAMES_PER_SECOND / wanted.wrapping.skip
        self._shown = consoles

    def picture(self) -> Picture:
        """The first game's screen as it is now, in colours."""
        picture: Picture = self._shown.picture()
        return picture


def make_atari(
    wanted: AtariWanted, n_envs: int, vectorization: str, rendering: Rendering
) -> AtariEnv:
    """`n_envs` games behind one interface.

    They are played in the threads of ale-py's AtariVectorEnv. With `vectorization` "single" or
    "sync", or where the first one is shown, they are played one after the other in this thread.
    """
    try:
        import ale_py
    except ImportError as error:
        raise TianJiError(
            "an AtariEnv needs the package ale-py, which is not installed: "
            f"pip install 'tianji[atari]' ({error})"
        ) from error
    from tianji.envs.atari_consoles import Loop, Threads

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    rom, sticky = _game(wanted.game, ale_py.roms.get_all_rom_ids())
    sticky = sticky if wanted.sticky is None else wanted.sticky
    if vectorization in ("auto", "vector") and rendering is Rendering.NONE:
        threads = min(n_envs, wanted.threads or _n_cores())
        return AtariEnv(wanted, Threads(rom, wanted, sticky, n_envs, threads), n_envs)
    if vectorization == "vector":
        raise TianJiError(
            f"AtariEnv {wanted.game}: vectorization 'vector' opens no window: use 'sync'"
        )
    window = rendering is Rendering.WINDOW
    return ShownAtari(wanted, Loop(rom, wanted, sticky, n_envs, window), n_envs)


def _game(written: str, roms: list[str]) -> tuple[str, float]:
    """ale-py's name of a game and how sticky its actions are, from any name that it goes by.

    `Pong` and `pong`; also gymnasium's `PongNoFrameskip-v4`, `Pong-v0` and `ALE/Pong-v5`, of which
    -v0 and -v5 stand for sticky actions.
    """
    name, _, version = written.removeprefix("ALE/").partition("-v")
    name = re.sub("(NoFrameskip|Deterministic)$", "", name)
    by_name = {_squashed(rom): rom for rom in roms}
    rom = by_name.get(_squashed(name))
    if rom is None or version not in ("", "0", "4", "5"):
        near = did_you_mean(_squashed(name), by_name, n=3)
        raise TianJiError(f"ale-py has no game {written!r}{near or '.'}")
    return rom, STICKY if version in ("0", "5") else 0.0


def _squashed(name: str) -> str:
    return name.replace("_", "").lower()


def _n_cores() -> int:
    """The cores that this process may run on; a thread more would spin instead of play."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
