"""An environment that somebody looks at: in a window, or as pictures for a film."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tianji.core.env import Env
from tianji.core.errors import TianJiError

Picture = npt.NDArray[np.uint8]
"""[height, width, 3], red, green and blue."""

FPS = 30.0  # of an environment that does not say
DRIVER = "SDL_VIDEODRIVER"  # what pygame draws with
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", DRIVER)


class ShownEnv(Env, Protocol):
    """Environments of which the first can be looked at."""

    @property
    def fps(self) -> float:
        """Pictures per second at which the first one runs as it should."""

    def picture(self) -> Picture:
        """The first one as it is now."""


def picture_of(name: str, env: Any) -> Picture:
    """What `env.render()` draws, checked: simulators fail here in every way there is."""
    try:
        drawn = env.render()
    except Exception as error:
        raise cannot(name, str(error) or type(error).__name__) from error
    if drawn is None:
        raise cannot(name, "its render() returned nothing")
    array = np.asarray(drawn)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or not array.size:
        raise cannot(name, f"its render() returned {array.dtype}{list(array.shape)}")
    return array


def cannot(name: str, reason: str) -> TianJiError:
    """The error for an environment of which no picture can be had."""
    return TianJiError(
        f"{name} cannot be filmed: {reason}\n"
        "A film needs an environment whose render() returns an array uint8[height, width, 3] "
        "(gymnasium: render_mode 'rgb_array')."
    )


def fps_of(env: Any) -> float:
    """What the environment's metadata say, if anything."""
    metadata = getattr(env, "metadata", None)
    found = metadata.get("render_fps") if isinstance(metadata, dict) else None
    return float(found) if isinstance(found, int | float) and 0 < found <= 1000 else FPS


def check_display() -> None:
    """Refuses a window where there is no screen to open it on."""
    if sys.platform == "linux" and not any(map(os.environ.get, DISPLAYS)):
        raise TianJiError(
            "no display for a window (DISPLAY is not set): make a film instead, as in "
            "--video game.mp4"
        )


@contextmanager
def quietly(screen: bool) -> Iterator[None]:
    """Keeps greetings and complaints of drawing libraries out of what a command prints.

    Without a `screen` SDL is told not to look for one; it decides when it is first asked to draw.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    before = os.environ.get(DRIVER)
    if not screen:
        os.environ[DRIVER] = "dummy"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if before is not None:
            os.environ[DRIVER] = before
        elif not screen:
            del os.environ[DRIVER]
