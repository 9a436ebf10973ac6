"""A trained policy, ready to act: what `tianji.load(RUN)` returns."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from tianji.config import Config, from_json
from tianji.core import checkpoint
from tianji.core.algorithm import Algorithm, Policy, Saved, Task, Weights
from tianji.core.env import SpacesEnv, Terms
from tianji.core.errors import TianJiError
from tianji.core.json_file import read_json, whole
from tianji.core.schema import Arrays
from tianji.envs import Env, Rendering, ShownEnv
from tianji.job.factory import make_env, make_games_env, make_shown_env
from tianji.job.job import Job, prepare
from tianji.observe.report.run_reader import refuse_other
from tianji.roles.role_specs import Kind, role_name
from tianji.runs.older_config import config_of
from tianji.runs.trust import refuse_strange
from tianji.runs.weights_file import BEST, FINAL, read


class Trained:
    """The policy of a finished run, without exploration.

    policy = tianji.load("runs/cartpole_ppo-20260131-120000")
    action = policy.act(observation)             # of one environment, or of several at once
    """

    def __init__(
        self,
        config: Config,
        job: Job,
        policy: Policy,
        weights: Weights,
        version: int,
        env_steps: int | None = None,
        terms: Terms | None = None,
    ) -> None:
        self.config = config
        self.weights = weights  # what the policy was loaded with, flat
        self.version = version  # updates behind the weights
        self.env_steps = env_steps  # that had been made by then; None if nobody wrote it down
        self._job = job
        self._policy = policy
        self._terms = terms  # of the environment's own spaces, where it has any
        self._n_acted = 0  # observations in the last call

    def __repr__(self) -> str:
        task = self.config.environment.task
        return f"Trained({self.config.agent.type} on {task}, {self.version:,} updates)"

    @property
    def algorithm(self) -> type[Algorithm]:
        """The class that the policy was trained with."""
        return self._job.algorithm

    @property
    def policy(self) -> Policy:
        """The acting half, as actors use it."""
        return self._policy

    @property
    def task(self) -> Task:
        """What the algorithm was told about its job: spaces, network and hyper-parameters."""
        return self._job.task

    def act(self, obs: Any, first: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
        """The action for one observation, or the actions for a stack of them.

        Observations are what the environment's own space describes (a state's number, a Dict, a
        Tuple, ...), or those of n environments as gymnasium's vector environments show them; the
        action is one of its action space. Observations as `environment()` shows them, arrays by
        field, get actions as its `step` takes them, which count from 0. `first` says where an
        episode begins, for policies that remember; without it the first call does.
        """
        names = {field.name for field in self._job.task.env.observations}
        ours = isinstance(obs, Mapping) and names <= set(obs)
        terms = None if ours else self._terms
        told = terms.observed(obs) if terms else None
        arrays, single = told or self._by_field(obs)
        n = len(next(iter(arrays.values())))
        begins = np.full(n, self._n_acted != n) if first is None else np.atleast_1d(first)
        self._n_acted = n
        action = self._policy.act(arrays, begins.astype(np.bool_), explore=False)["action"]
        action = terms.action(action) if terms else action
        return np.asarray(action)[0] if single else np.asarray(action)

    def predict(self, *_: Any, **__: Any) -> NoReturn:
        """Only says what it is called here."""
        raise TianJiError("a trained policy has no predict: use act(observation)")

    def _by_field(self, obs: Any) -> tuple[Arrays, bool]:
        """The arrays [n, ...] of observations by field, and whether it was one."""
        fields = self._job.task.env.observations
        named = obs if isinstance(obs, Mapping) else {fields[0].name: obs}
        if missing := {field.name for field in fields} - set(named):
            raise TianJiError(f"act: the observation lacks {min(missing)!r}, got {sorted(named)}")
        arrays = {field.name: np.asarray(named[field.name], field.dtype) for field in fields}
        single = arrays[fields[0].name].shape == fields[0].shape
        for field in fields:
            shape = arrays[field.name].shape
            if (shape if single else shape[1:]) != field.shape:
                raise TianJiError(f"act: want {field.name!r} as {field}, got {list(shape)}")
        if single:
            arrays = {name: array[None] for name, array in arrays.items()}
        return arrays, single

    def in_float32(self) -> Trained:
        """The same policy, computed as other programs do; convolutions may act in bfloat16."""
        model = replace(self.task.model, precision="float32")
        policy = self.algorithm.policy(replace(self.task, model=model, device="cpu"), 0, 0)
        policy.load(self.weights, self.version)
        more = self.weights, self.version, self.env_steps, self._terms
        return Trained(self.config, self._job, policy, *more)

    def environment(self) -> Env:
        """Fresh environments of the kind that the policy was trained in."""
        return make_env(self.config)

    def games_environment(self, n_episodes: int) -> Env:
        """Fresh environments to evaluate `n_episodes` in."""
        return make_games_env(self.config, n_episodes)

    def shown_environment(self, rendering: Rendering) -> ShownEnv:
        """One fresh environment to look at."""
        return make_shown_env(self.config, rendering)


def load(
    path: str | Path, which: Literal["final", "best"] = "final", trust: bool = False
) -> Trained:
    """The policy of a run's folder, of one of its checkpoints, or of a file of weights.

    Of a run it is the one that it ended with, or that its newest checkpoint has if it has not ended
    yet; `which="best"` takes the one that played best. If what it ended with is damaged, the newest
    intact checkpoint is taken instead, with a warning. With `trust`, classes that its config.json
    names are imported whoever recorded it.
    """
    path = Path(path)
    if which not in ("final", "best"):
        raise TianJiError(f"load: want 'final' or 'best', got {which!r}")
    chosen = path
    if run_of(path) == path:
        if not (path / "config.json").exists():
            refuse_other(path)
        chosen, notes = best(path) if which == "best" else newest(path)
        if which == "final" and notes and _final(path).exists():
            warnings.warn(f"{notes[0]}; {chosen.name} is used instead", stacklevel=2)
    saved = _of_checkpoint(chosen) if chosen.is_dir() else _of_file(chosen)
    folder = chosen if chosen.is_dir() else chosen.resolve().parent.parent
    about = _config_of(folder)
    config = from_json(config_of(about), str(folder / "config.json"))
    refuse_strange(config, about, path, trust)
    env = make_env(config)
    terms = env.space_terms() if isinstance(env, SpacesEnv) else None
    env.close()
    job = prepare(config, env.spec)
    n_weights = job.algorithm.n_weights(job.task)
    if saved.weights.shape != (n_weights,):
        raise TianJiError(
            f"{path}: its {saved.weights.size:,} weights are not the {n_weights:,} of its "
            "configuration's network: has the environment or the algorithm changed?"
        )
    policy = job.algorithm.policy(replace(job.task, device="auto"), 0, 0)  # wherever this is
    policy.load(saved.weights, saved.version)
    return Trained(config, job, policy, saved.weights, saved.version, saved.env_steps, terms)


def run_of(path: Path) -> Path:
    """The folder of the run that `path`, a run or one of its checkpoints, belongs to."""
    if not path.exists():
        raise TianJiError(f"{path} does not exist: name a run's folder or one of its checkpoints")
    if path.suffix == ".py" and path.is_file():
        refuse_other(path)
    if path.is_file() or any((path / f"manifest.{end}").exists() for end in ("json", "sha256")):
        return path.resolve().parent.parent
    whole = path.resolve()
    if whole.name == "checkpoints" and (whole.parent / "config.json").exists():
        raise TianJiError(
            f"{path} holds the checkpoints of a run: name the run, {whole.parent}, or one of them"
        )
    return path


def newest(run: Path) -> tuple[Path, list[str]]:
    """What a run ended with, or the newest intact checkpoint of one that has not ended.

    Beside it, a line about all that is newer and not intact.
    """
    damaged = []
    if (file := _final(run)).exists():
        try:
            read(file)
            return file, []
        except TianJiError as error:
            damaged.append(str(error))
    found, broken = checkpoint.newest(run)
    if found is not None:
        return found.folder, damaged + broken
    if damaged:
        raise TianJiError(f"{damaged[0]}, and there is no checkpoint to play with instead")
    refuse_other(run)
    there = (run / "checkpoints" / BEST).exists()
    more = " which='best', or --best, plays what did best in an evaluation." if there else ""
    raise TianJiError(
        f"{run} has no trained policy yet: neither checkpoints/{FINAL} nor a checkpoint.{more} "
        "Let it train until its first checkpoint, or to its end"
    )


def best(run: Path) -> tuple[Path, list[str]]:
    """The weights with the best evaluation while training, or else the best checkpoint's.

    Beside it, what is to be said about the choice.
    """
    if (file := run / "checkpoints" / BEST).exists():
        return file, []
    refuse_other(run)
    if (folder := checkpoint.best(run)) is None:
        raise TianJiError(
            f"{run} has no best policy: neither an evaluation while it trained (exp.eval_step) "
            "nor a checkpoint"
        )
    note = (
        f"{run} has no evaluation (exp.eval_step): this is {folder.name}, the checkpoint with "
        "the best return while training"
    )
    return folder, [note]


def _final(run: Path) -> Path:
    return run / "checkpoints" / FINAL


def _of_file(file: Path) -> Saved:
    saved = read(file)
    if saved.env_steps is None and file.name == FINAL:  # version 0.1 wrote them elsewhere
        return replace(saved, env_steps=_env_steps(file.resolve().parent.parent))
    return saved


def _of_checkpoint(folder: Path) -> Saved:
    found = checkpoint.load(folder)
    part = found.part(role_name(Kind.LEARNER))
    weights = None if part is None else part.get("weights")
    if not isinstance(weights, np.ndarray):
        raise TianJiError(f"{folder}: its learner has no weights: it is none of ours")
    return Saved(np.array(weights), found.version, found.env_steps, found.score)


def _config_of(folder: Path) -> dict[str, Any]:
    about = read_json(folder / "config.json")
    if not isinstance(about.get("config"), dict):
        raise TianJiError(
            f"{folder} holds no run, config.json is missing or not ours: name a run's folder"
        )
    return about


def _env_steps(folder: Path) -> int | None:
    """Environment steps that a run had made in the end, where it lived to say so."""
    return whole(read_json(folder / "summary.json").get("env_steps"))
