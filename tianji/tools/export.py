"""A trained policy as one ONNX file that other programs run, checked against the policy itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tianji import __version__
from tianji.core import atomic_file
from tianji.core.algorithm import PolicyGraph
from tianji.core.errors import TianJiError
from tianji.core.frames import MEMORY
from tianji.runs.trained import Trained, load

PLAYED, DRAWN = 256, 256  # observations from episodes, and around them, that are compared
TOLERANCE = 1e-4  # of the largest number compared; float32 sums in another order differ by less
MOST_TIES = 0.01  # of the observations; a policy that cannot choose between more says nothing

Observations = npt.NDArray[Any]


@dataclass(frozen=True)
class Parity:
    """How far the exported policy is from the one that was trained, on the same observations."""

    observations: int
    difference: float  # largest of the second output
    tolerance: float  # that it may have here
    equal: float  # share of equal actions; of a continuous one, equal within the tolerance
    ties: int  # actions that differ because two were equally good; few are excused

    @property
    def holds(self) -> bool:
        """Whether it is the same policy, up to rounding."""
        differing = round((1 - self.equal) * self.observations)
        excused = differing <= self.ties <= MOST_TIES * self.observations
        return self.difference <= self.tolerance and excused

    def __str__(self) -> str:
        """For people."""
        equal = "every action equal" if self.equal == 1 else f"{self.equal:.1%} of actions equal"
        ties = f" ({self.ties} ties)" if self.ties else ""
        largest = f"outputs differ by {self.difference:.1e} at most"
        return f"{self.observations} observations: {equal}{ties}, {largest}"


@dataclass(frozen=True)
class Exported:
    """What was written, and how well it agrees with the policy."""

    path: Path
    about: dict[str, str]  # as stored in the file: tianji, algorithm, environment, updates, parity
    inputs: tuple[str, ...]  # as in `obs float32 [batch, 4]`
    outputs: tuple[str, ...]
    parity: Parity


def onnx(run: str | Path, out: str | Path | None = None, trust: bool = False) -> Exported:
    """Writes the policy of a run, or of one of its checkpoints, without exploration.

    Default for `out`: `policy.onnx` in the run's folder. Nothing is ever overwritten, and nothing
    is written that does not act as the policy does. `trust` is as of `trained.load`.
    """
    _need("onnx", "onnxruntime")
    path = Path(out) if out is not None else default_path(Path(run))
    if path.exists():
        raise TianJiError(f"{path} exists already: name another file with --out, or remove it")
    trained = load(run, trust=trust).in_float32()
    graph = trained.algorithm.exported(trained.task, trained.weights)
    session = _session(graph)
    parity = _parity(trained, graph, session)
    if not parity.holds:
        raise TianJiError(
            f"{path} was not written, because it would not act as the policy does: {parity} "
            f"(want {parity.tolerance:.1e}): look at {trained.algorithm.__name__}.exported"
        )
    about = _about(trained, parity)
    with atomic_file.claiming(path, "name another file with --out") as file:
        file.write(_labelled(graph.model, about))
    inputs, outputs = (
        tuple(map(_signature, values)) for values in (session.get_inputs(), session.get_outputs())
    )
    return Exported(path, about, inputs, outputs, parity)


def default_path(run: Path) -> Path:
    """`policy.onnx` in a run's folder; of a checkpoint, `policy-NAME.onnx` there."""
    whole = run.absolute()
    if whole.parent.name != "checkpoints":
        return run / "policy.onnx"
    path = whole.parent.parent / f"policy-{whole.stem}.onnx"
    return Path(min(str(path), os.path.relpath(path), key=len))  # however it reads best


def _parity(trained: Trained, graph: PolicyGraph, session: Any) -> Parity:
    if trained.task.env.agents:
        from tianji.tools import export_agents

        return export_agents.compare(trained, graph, session)
    return compare(trained, graph, session, observations_of(trained))


def observations_of(trained: Trained, seed: int = 0) -> Observations:
    """What the network reads of games that the policy plays, and as much drawn around that.

    Where the policy stacks frames, it is the stacks.
    """
    from tianji.models.frame_stack import FrameStack

    env = trained.environment()
    spec, obs = trained.task.env, env.reset(seed)
    stack, first = FrameStack(spec), np.ones(spec.n_envs, np.bool_)
    rows, dtype = [stack.see(spec.gather(obs), first).copy()], spec.gather(obs).dtype
    while sum(map(len, rows)) < PLAYED:
        step = env.step(trained.act(obs, first))
        obs, first = step.obs, step.first
        rows.append(stack.see(spec.gather(obs), first).copy())
    env.close()
    played = np.concatenate(rows).astype(np.float32)
    low, high = played.min(0), played.max(0)
    margin = (high - low) / 2 + 0.1
    random = np.random.default_rng(seed)
    drawn = random.uniform(low - margin, high + margin, (DRAWN, *played.shape[1:]))
    if dtype == "uint8":
        drawn = drawn.clip(0, 255)
    return np.concatenate([played, drawn]).astype(dtype)


def compare(
    trained: Trained, graph: PolicyGraph, session: Any, observations: Observations
) -> Parity:
    """Runs the graph and the policy side by side."""
    inputs = observations.astype(np.float32)
    action, scores = session.run(None, {"obs": inputs})
    expected = _acted(trained, observations)
    want = graph.scores(inputs)
    one_each = want.shape == (len(inputs), trained.task.env.n_actions)  # score per action
    return parity_of(trained, action, expected, scores, want, want if one_each else None)


def _acted(trained: Trained, observations: Observations) -> npt.NDArray[Any]:
    """What the policy does; one that stacks frames is shown those of every stack in turn."""
    spec, n = trained.task.env, len(observations)
    if spec.stack == 1:
        return trained.act(spec.scatter(observations))
    frames = observations.reshape(n, spec.stack, *spec.inputs[0].shape)
    for i in range(spec.stack):
        action = trained.act(spec.scatter(frames[:, i]), np.full(n, i == 0))
    return action


def parity_of(
    trained: Trained,
    action: npt.NDArray[Any],
    expected: npt.NDArray[Any],
    scores: npt.NDArray[Any],
    wanted: npt.NDArray[Any],
    options: npt.NDArray[Any] | None,
) -> Parity:
    """How far actions [n, ...] are from the expected ones, and scores from the wanted ones.

    The best of `options` [n, n_actions], where there are any, must be the expected action.
    """
    n, difference = len(action), float(np.abs(scores - wanted).max())
    tolerance = TOLERANCE * max(1.0, float(np.abs(wanted).max()))
    if trained.task.env.choices is None:
        same = np.abs(action - expected).reshape(n, -1).max(1) <= tolerance
        return Parity(n, difference, tolerance, float(same.mean()), 0)
    same = (action == expected).reshape(n, -1).all(1)
    tied = np.zeros_like(same)
    if options is not None:
        same &= options.argmax(1) == expected  # or the reference is not of this policy either
        tied = ties(options, action, expected) & ~same
    return Parity(n, difference, tolerance, float(same.mean()), int(tied.sum()))


def ties(
    scores: npt.NDArray[Any], one: npt.NDArray[Any], other: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    """Where both choices are among the best of their row, as far as rounding can tell."""
    rows, best = np.arange(len(scores)), scores.max(1)
    least = best - TOLERANCE * np.abs(np.where(np.isfinite(scores), scores, 0)).max(1)
    return np.asarray((scores[rows, one] >= least) & (scores[rows, other] >= least))


def _need(*packages: str) -> None:
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise TianJiError(
            f"export needs {' and '.join(packages)}, and {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed: pip install 'tianji[onnx]'"
        )


def _session(graph: PolicyGraph) -> Any:
    """The graph, ready to run on one thread; its ends must have the promised names."""
    import onnxruntime  # type: ignore[import-untyped]  # it comes without annotations

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # errors alone
    session = onnxruntime.InferenceSession(graph.model, options, providers=["CPUExecutionProvider"])
    inputs = [value.name for value in session.get_inputs()]
    outputs = [value.name for value in session.get_outputs()]
    n_outputs = 3 if MEMORY in graph.inputs else 2
    if inputs != [*graph.inputs] or outputs[:1] != ["action"] or len(outputs) != n_outputs:
        raise TianJiError(
            f"exported: want a graph from {', '.join(graph.inputs)} to 'action' and "
            f"{n_outputs - 1} more, got one from {inputs} to {outputs}"
        )
    return session


def _signature(value: Any) -> str:
    kinds = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(bool)": "bool"}
    kind = kinds.get(value.type, value.type)
    return f"{value.name} {kind} [{', '.join(map(str, value.shape))}]"


def _about(trained: Trained, parity: Parity) -> dict[str, str]:
    environment = trained.config.environment
    return {
        "tianji": __version__,
        "algorithm": trained.config.agent.type,
        "environment": environment.task,
        "updates": str(trained.version),
        "parity": str(parity),
    }


def _labelled(model: bytes, about: dict[str, str]) -> bytes:
    """The same graph with the words about it, checked against ONNX's own rules."""
    from onnx import checker, helper, load_from_string

    proto = load_from_string(model)
    proto.producer_name, proto.producer_version = "tianji", __version__
    helper.set_model_props(proto, about)
    checker.check_model(proto)
    return bytes(proto.SerializeToString())
