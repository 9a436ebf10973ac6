"""What one environment must remember, under the wrappers that gymnasium puts around it."""

from __future__ import annotations

from typing import Any

from gymnasium.wrappers import OrderEnforcing, TimeLimit

from tianji.core.errors import TianJiError
from tianji.core.state import State, copied, restore_to, state_of

Known = TimeLimit[Any, Any] | OrderEnforcing[Any, Any]
"""Wrappers of which is known what they remember."""


def single_state(env: object) -> State | None:
    """The environment's own state and that of its wrappers; None where it has none.

    Another wrapper than the known ones may remember anything, so there is no state of what is in
    it, unless the wrapper itself defines `state` and `restore`.
    """
    wrappers, inner = _peeled(env)
    state = state_of(inner)
    if state is None:
        return None
    return {"env": state, "wrappers": [_memory(wrapper) for wrapper in wrappers]}


def restore_single(name: str, env: object, state: State) -> None:
    """Goes on in the middle of the episode, without a reset."""
    wrappers, inner = _peeled(env)
    same = len(wrappers) == len(state["wrappers"])
    # A copy: what was saved may be read-only, and an environment may keep and change it.
    if not same or not restore_to(inner, copied(state["env"])):
        raise TianJiError(
            f"{name}: the state of an environment with state() and restore() was saved, and this "
            "one has not both, or other wrappers: resume with the class of that time"
        )
    for wrapper, memory in zip(wrappers, state["wrappers"], strict=True):
        if isinstance(wrapper, TimeLimit):
            wrapper._elapsed_steps = memory
        else:
            wrapper._has_reset = memory


def _peeled(env: Any) -> tuple[list[Known], object]:
    """The known wrappers, outermost first, and what they are around."""
    wrappers: list[Known] = []
    while type(env) in (TimeLimit, OrderEnforcing):
        wrappers.append(env)
        env = env.env
    return wrappers, env


def _memory(wrapper: Known) -> int | bool | None:
    """Steps since the last reset, or whether there was one."""
    return wrapper._elapsed_steps if isinstance(wrapper, TimeLimit) else wrapper._has_reset
