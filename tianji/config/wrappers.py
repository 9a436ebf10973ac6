"""The classic list of Atari wrappers: what each one means, and whether a list makes sense."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tianji.config.binder import Names, key
from tianji.config.section import nearest

RELEASE = {
    "NoopResetEnv": "noop",
    "MaxAndSkipEnv": "skip",
    "EpisodicLifeEnv": "life",
    "FireResetEnv": "fire",
    "WarpFrame": "warp",
    "ClipRewardEnv": "clip",
    "FrameStackOrder": "stack",
}
"""What the paper's release calls them, innermost first."""

CLASSIC = tuple(RELEASE.values())

NAMES = Names(
    (*CLASSIC, *RELEASE),
    idle={
        "MonitorEnv": "every episode's return and length are recorded anyway",
        "AtariOriginalReward": "the game's own score is recorded anyway",
        "ScaledFloatFrame": "frames stay bytes until a network reads them, and it divides them",
    },
)

KEYS: Mapping[str, Mapping[str, tuple[str, int]]] = {
    "noop": {"frames": ("noop_max", 30)},
    "skip": {"frames": ("skip", 4)},
    "warp": {"height": ("height", 84), "width": ("width", 84)},
    "stack": {"frames": ("k", 4)},
}
"""Of each wrapper that has any: key -> the release's word for it, and the default."""

FREE = ("obs_format", "allow_early_resets", "grayscale")  # of the release: true here anyway


@dataclass(frozen=True)
class WrapperConfig:
    """A wrapper around the game, by its short name or by the one in the paper's release."""

    type: str = key("MonitorEnv", "name of the wrapper", names=NAMES)
    kwargs: Mapping[str, Any] = key({}, "the wrapper's own keys", rest="always")

    @property
    def name(self) -> str:
        """Its short name; that of an idle one as it is."""
        return RELEASE.get(self.type, self.type)


@dataclass(frozen=True)
class Wrapping:
    """What a list of wrappers makes of a game; without any it would be the bare game."""

    noop: int = 0  # a game begins with fewer no-ops than this, at random
    skip: int = 1  # frames that an action lasts; the last two are merged, brighter pixels win
    life: bool = False  # a lost life ends what is learned from as an episode, not the game
    fire: bool = False  # a game, and with `life` each life, begins with the button pressed
    height: int = 84
    width: int = 84
    clip: bool = False  # the reward is the sign of the points
    stack: int = 1  # newest frames that the policy sees at once


def wrapping_of(wrappers: Iterable[WrapperConfig]) -> Wrapping:
    """What the wrappers mean together; a ValueError says what contradicts what."""
    wanted: dict[str, WrapperConfig] = {}
    for wrapper in wrappers:
        name = wrapper.name
        if name in NAMES.idle:
            continue
        if name in wanted:
            raise ValueError(f"wrappers: {name!r} is there twice: say once what it shall do")
        wanted[name] = wrapper
    _check_order(list(wanted))
    values = {name: _values(wrapper) for name, wrapper in wanted.items()}
    if "warp" not in values:
        raise ValueError("wrappers: 'warp' is missing: networks here read grey frames of one size")
    if "skip" in values and values["skip"]["frames"] == 1:
        raise ValueError("wrappers: 'skip' with frames=1 skips nothing: leave it out")
    return Wrapping(
        noop=values.get("noop", {}).get("frames", 0),
        skip=values.get("skip", {}).get("frames", 1),
        life="life" in values,
        fire="fire" in values,
        height=values["warp"]["height"],
        width=values["warp"]["width"],
        clip="clip" in values,
        stack=values.get("stack", {}).get("frames", 1),
    )


def _check_order(names: list[str]) -> None:
    """One order has a meaning here: others were other tasks, or none."""
    right = sorted(names, key=CLASSIC.index)
    if names != right:
        first, instead = next((a, b) for a, b in zip(names, right, strict=True) if a != b)
        raise ValueError(
            f"wrappers: {first!r} stands before {instead!r}, which cannot be: they go from the "
            f"game outwards, [{', '.join(map(repr, right))}]"
        )


def _values(wrapper: WrapperConfig) -> dict[str, int]:
    """What a wrapper's own keys say, under either of their names."""
    known = KEYS.get(wrapper.name, {})
    values = {name: default for name, (_, default) in known.items()}
    names = {word: name for name, (release, _) in known.items() for word in (name, release)}
    for word, found in wrapper.kwargs.items():
        if word in FREE and wrapper.type in RELEASE:
            continue
        if word not in names:
            hint = nearest(word, known, "Its keys") or "It has none."
            raise ValueError(f"wrappers: {wrapper.type!r} has no key {word!r}. {hint}")
        if type(found) is not int or not 1 <= found <= 1000:
            want = "a whole number from 1 to 1000"
            raise ValueError(f"wrappers: {wrapper.type}.{word} must be {want}, found {found!r}")
        values[names[word]] = found
    return values
