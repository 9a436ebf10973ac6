"""A library's own vector environment, whichever way it resets the episodes that end."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from tianji.core.env import EnvSpec, Step
from tianji.core.errors import TianJiError
from tianji.core.schema import Arrays
from tianji.core.state import State, copied, restore_to, state_of
from tianji.envs.spaces import Actions, Observed, describe, first_broken, not_finite
from tianji.envs.terms import Terms


class VectorAdapter:
    """An `Env` over a vector environment in any of gymnasium's three autoreset modes.

    NEXT_STEP: the library resets in the step after an episode's end; that row is marked not valid.
    SAME_STEP: it resets at once; the last observation is taken from its `final_obs`.
    DISABLED: it does not reset by itself, and to step an environment that has ended is undefined.
    So this class resets those, and only those, as soon as the step is over, and looks like
    SAME_STEP from outside: every step that was made is valid and none is made for nothing.

    `reset` and `step` return the same arrays each time, with new content: copy what must last
    longer than until the next call. How one seed makes E is the library's choice. Gymnasium's own
    vector environments cannot say what they must remember, and so this one has no state, unless a
    vector environment defines `state` and `restore` itself.
    """

    def __init__(
        self,
        name: str,
        env: VectorEnv[Any, Any, Any],
        reward_threshold: float | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        mode, n_envs = _autoreset_mode(name, env), env.num_envs
        self._name, self._env = name, env
        self.spec: EnvSpec = describe(
            name,
            env.single_observation_space,
            env.single_action_space,
            n_envs,
            reward_threshold=reward_threshold,
            max_episode_steps=max_episode_steps,
            same_step=mode is not AutoresetMode.NEXT_STEP,
        )
        self._actions = Actions(name, env.single_action_space, self.spec)
        self._observed = Observed(name, env.single_observation_space, n_envs)
        self._final = Observed(name, env.single_observation_space, n_envs)
        self._reward = np.zeros(n_envs, np.float32)
        self._terminated = np.zeros(n_envs, np.bool_)
        self._truncated = np.zeros(n_envs, np.bool_)
        self._valid = np.ones(n_envs, np.bool_)
        self._first = np.zeros(n_envs, np.bool_)
        self._step = Step(
            self._observed.arrays,
            self._reward,
            self._terminated,
            self._truncated,
            self._valid,
            self._first,
            self._final.arrays if self.spec.same_step else None,
        )
        self._ended = np.zeros(0, np.intp)  # whose episode the last step ended
        self._marked = False  # whether the last step left marks in `valid` and `first`
        self._n_steps = 0
        self._begun = np.zeros(n_envs, np.int64)  # `_n_steps` when the current episode began
        self._handle_ends = {
            AutoresetMode.NEXT_STEP: self._mark_resets,
            AutoresetMode.SAME_STEP: self._take_final,
            AutoresetMode.DISABLED: self._reset_ended,
        }[mode]

    def reset(self, seed: int | None = None) -> Arrays:
        """Starts every environment anew and returns what is observed, [E, ...]."""
        obs, _ = self._env.reset(seed=seed)
        self._observed.put_all(obs)
        self._n_steps, self._ended = 0, self._ended[:0]
        for array in (self._begun, self._terminated, self._truncated, self._reward):
            array.fill(0)
        self._valid.fill(True)
        self._first.fill(False)
        self._marked = False
        self._check_finite()
        return self._observed.arrays

    def step(self, action: npt.NDArray[Any]) -> Step:
        """Applies one action per environment, [E, ...]."""
        obs, reward, terminated, truncated, infos = self._env.step(self._actions.all(action))
        self._n_steps += 1
        self._observed.put_all(obs)
        self._copy("reward", reward, self._reward)
        self._copy("terminated", terminated, self._terminated)
        self._copy("truncated", truncated, self._truncated)
        self._handle_ends(infos)
        self._check_finite()
        return self._step

    def space_terms(self) -> Terms:
        """What its single environments call an observation and an action."""
        return Terms(self._env.single_observation_space, self._env.single_action_space)

    def close(self) -> None:
        """Closes the vector environment."""
        self._env.close()

    def state(self) -> State | None:
        """What the vector environment remembers, and the last step; None if it cannot say."""
        state = state_of(self._env)
        if state is None:
            return None
        counters = {"ended": self._ended, "n_steps": self._n_steps, "begun": self._begun}
        return {"env": state, "step": self._arrays(), **counters}

    def restore(self, state: State) -> None:
        """Goes on within the same episodes; nothing is reset."""
        if not restore_to(self._env, copied(state["env"])):
            raise TianJiError(
                f"{self._name}: the state of a vector environment with state() and restore() was "
                "saved, and this one has not both: resume with the class of that time"
            )
        for name, array in self._arrays().items():
            self._copy(name, state["step"][name], array)
        self._begun[...] = state["begun"]
        self._marked = not self._valid.all()
        ended = self._terminated | self._truncated
        self._first[...] = ended if self.spec.same_step else ~self._valid
        self._ended, self._n_steps = np.array(state["ended"], np.intp), state["n_steps"]

    def _arrays(self) -> Arrays:
        return {
            **self._observed.arrays,
            **{f"final_{name}": array for name, array in self._final.arrays.items()},
            "reward": self._reward,
            "terminated": self._terminated,
            "truncated": self._truncated,
            "valid": self._valid,
        }

    def _mark_resets(self, infos: dict[str, Any]) -> None:
        """For those that ended in the step before, this one was only a reset."""
        if self._marked:
            self._valid.fill(True)
            self._first.fill(False)
        self._marked = bool(self._ended.size)
        if self._marked:
            self._valid[self._ended] = False
            self._first[self._ended] = True
            self._reward[self._ended] = 0.0
            self._terminated[self._ended] = False
            self._truncated[self._ended] = False
            self._begun[self._ended] = self._n_steps
        self._find_ended()

    def _take_final(self, infos: dict[str, Any]) -> None:
        self._find_ended_at_once()
        if not self._ended.size:
            return
        if "final_obs" not in infos:
            raise TianJiError(f"{self._name} resets in the same step but gives no 'final_obs'")
        for e in self._ended.tolist():
            self._final.put(e, infos["final_obs"][e])
        self._check_final()

    def _reset_ended(self, infos: dict[str, Any]) -> None:
        self._find_ended_at_once()
        if not self._ended.size:
            return
        self._final.copy_rows(self._ended, self._observed)
        self._check_final()
        obs, _ = self._env.reset(options={"reset_mask": self._terminated | self._truncated})
        for e in self._ended.tolist():
            self._observed.put_one_of(e, obs)

    def _find_ended(self) -> None:
        self._ended = (self._terminated | self._truncated).nonzero()[0]

    def _find_ended_at_once(self) -> None:
        """Where an episode ended in this step, another has begun in it."""
        np.logical_or(self._terminated, self._truncated, out=self._first)
        self._ended = self._first.nonzero()[0]

    def _check_final(self) -> None:
        if (broken := self._final.broken()) is not None:
            e, field = broken
            raise not_finite(self._name, e, field, self._length(e))
        self._begun[self._ended] = self._n_steps

    def _check_finite(self) -> None:
        if (broken := self._observed.broken()) is not None:
            raise not_finite(self._name, broken[0], broken[1], self._length(broken[0]))
        if (e := first_broken(self._reward, len(self._reward))) is not None:
            raise not_finite(self._name, e, "reward", self._length(e))

    def _length(self, e: int) -> int:
        """Steps that environment `e` has made in its current episode."""
        return self._n_steps - int(self._begun[e])

    def _copy(self, field: str, source: Any, target: npt.NDArray[Any]) -> None:
        if source.__class__ is not np.ndarray or source.shape != target.shape:
            source = np.asarray(source)
            if source.shape != target.shape:
                want, got = list(target.shape), list(source.shape)
                raise TianJiError(f"{self._name}: field {field!r}: want shape {want}, got {got}")
        target[...] = source


def _autoreset_mode(name: str, env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    found = env.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(found)
    except ValueError:
        modes = ", ".join(mode.name for mode in AutoresetMode)
        raise TianJiError(
            f"{name}: the metadata of its vector environment has autoreset_mode {found!r}: "
            f"want {modes}\nUse vectorization 'sync', or mend the metadata."
        ) from None
