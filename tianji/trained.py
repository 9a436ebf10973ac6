"""A trained policy, ready to act: what `tianji.load(RUN)` returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tianji.algorithms.base import Policy
from tianji.config import Config, from_json
from tianji.envs.base import Env
from tianji.errors import TianJiError
from tianji.topology import Job, make_env, prepare
from tianji.weights import load_final


class Trained:
    """The policy of a finished run, without exploration.

    policy = tianji.load("runs/cartpole_ppo-20260131-120000")
    action = policy.act(observation)             # of one environment, or of several at once
    """

    def __init__(self, config: Config, job: Job, policy: Policy, version: int) -> None:
        self.config = config
        self.version = version  # updates behind the weights
        self._job = job
        self._policy = policy

    def act(self, obs: npt.ArrayLike) -> npt.NDArray[Any]:
        """The action for one observation, or the actions for a stack of them."""
        env = self._job.task.env
        array = np.asarray(obs, env.observation.dtype)
        if array.shape == env.observation.shape:
            return np.asarray(self._policy.act(array[None], explore=False)["action"][0])
        if array.shape[1:] == env.observation.shape:
            return np.asarray(self._policy.act(array, explore=False)["action"])
        raise TianJiError(f"act: want an observation of {env.observation}, got {list(array.shape)}")

    def environment(self) -> Env:
        """Fresh environments of the kind that the policy was trained in."""
        return make_env(self.config)


def load(folder: str | Path) -> Trained:
    """The policy that the run in `folder` ended with."""
    folder = Path(folder)
    try:
        about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        weights, version = load_final(folder)
    except FileNotFoundError as error:
        raise TianJiError(
            f"{folder} holds no trained policy, {error.filename} is missing: name a run's folder"
        ) from error
    config = from_json(about["config"], str(folder / "config.json"))
    env = make_env(config)
    env.close()
    job = prepare(config, env.spec)
    policy = job.algorithm.policy(job.task, 0, 0)
    policy.load(weights, version)
    return Trained(config, job, policy, version)
