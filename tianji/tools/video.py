"""A film of one game that a trained policy plays, as an .mp4 or .gif file."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tianji.core import atomic_file
from tianji.core.errors import TianJiError
from tianji.envs import Rendering, ShownEnv
from tianji.envs.shown import Picture
from tianji.roles.evaluation import Evaluation, Games, env_seed, outcome
from tianji.runs.trained import Trained

PACKAGES = {".mp4": "imageio_ffmpeg", ".gif": "PIL"}
SHORTEST_GIF_MS = 20  # viewers show a picture that is meant to be shorter for longer


def check_file(path: Path) -> None:
    """Refuses a film that could not be written; nothing that exists is overwritten."""
    package = PACKAGES.get(path.suffix.lower())
    if package is None:
        raise TianJiError(f"{path}: a film ends in {' or '.join(PACKAGES)}, as in game.mp4")
    if importlib.util.find_spec(package) is None:
        raise TianJiError(
            f"{path}: writing {path.suffix} needs a package that is not installed: "
            "pip install 'tianji[video]'"
        )
    if path.exists():
        raise TianJiError(f"{path} exists, and nothing is overwritten: name another file")
    if not path.parent.is_dir():
        raise TianJiError(f"{path} cannot be written: there is no folder {path.parent}")


def record(trained: Trained, path: Path, seed: int) -> Evaluation:
    """Films one episode without exploration; returns how it went."""
    check_file(path)
    env = trained.shown_environment(Rendering.PICTURES)
    games = Games(env, trained.policy, 1)
    write = _write_mp4 if path.suffix.lower() == ".mp4" else _write_gif
    try:
        with atomic_file.claiming(path, "name another file with --video"):
            write(path, _pictures(env, games, env_seed(seed)), env.fps)
    finally:
        env.close()
    return outcome(games, trained.version, seed)


def _pictures(env: ShownEnv, games: Games, seed: int) -> Iterator[Picture]:
    """The first observation, and what every step of the episode led to."""
    games.reset(seed)
    first = _even(env.picture())
    yield first
    ended = False
    while not ended:
        ended = games.step()
        picture = _even(env.picture())
        if picture.shape != first.shape:
            raise TianJiError(
                f"the pictures change their size from {first.shape[:2]} to {picture.shape[:2]}: "
                "a film needs pictures of one size"
            )
        yield picture


def _even(picture: Picture) -> Picture:
    """The picture with an even number of rows and columns, which mp4 wants."""
    height, width, _ = picture.shape
    return np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


def _write_mp4(path: Path, pictures: Iterator[Picture], fps: float) -> None:
    ffmpeg: Any = importlib.import_module("imageio_ffmpeg")  # without types
    first = next(pictures)
    height, width, _ = first.shape
    writer = ffmpeg.write_frames(
        str(path), (width, height), fps=fps, macro_block_size=2, ffmpeg_log_level="error"
    )
    try:
        writer.send(None)  # starts ffmpeg
        for picture in chain([first], pictures):
            writer.send(np.ascontiguousarray(picture))
    finally:
        writer.close()


def _write_gif(path: Path, pictures: Iterator[Picture], fps: float) -> None:
    from PIL import Image

    octree = Image.Quantize.FASTOCTREE  # several times faster than the default, and near enough
    images = [Image.fromarray(picture).quantize(method=octree) for picture in pictures]
    milliseconds = max(SHORTEST_GIF_MS, round(1000 / fps))
    images[0].save(path, save_all=True, append_images=images[1:], duration=milliseconds, loop=0)
