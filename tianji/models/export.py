"""Policies as ONNX graphs, for programs that have neither this package nor torch.

A perceptron is a dozen ONNX nodes, so they are written down directly: the file then depends on the
`onnx` package alone, not on what a release of torch can trace, and is made in milliseconds. A torch
module of one's own goes through torch's exporter (`traced`).
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from tianji.core.algorithm import PolicyGraph, Weights
from tianji.core.env import EnvSpec
from tianji.core.errors import TianJiError
from tianji.models.layout import Floats, MLPLayout, Network, NumpyMLP, views_of
from tianji.models.normaliser import Normaliser

if TYPE_CHECKING:
    import torch
    from onnx import NodeProto

OPSET, IR_VERSION = 17, 8  # of 2022: every runtime of the last years reads them


def exported(
    network: Network,
    weights: Weights,
    env: EnvSpec,
    scores: str,
    n_more: int = 0,
    normaliser: Normaliser | None = None,
    head: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> PolicyGraph:
    """The policy that takes the best options, or the mean of a vector within its bounds.

    `weights` are the network's, then `n_more` others, then the normaliser's. `head` makes a score
    for every action out of the network's outputs, where they are not the scores themselves.
    """
    if normaliser is not None:
        start = network.n_weights + n_more
        normaliser.numbers[...] = weights[start : start + len(normaliser.numbers)]
    n_scores = sum(env.choices or ()) or int(np.prod(env.action.shape, dtype=int))
    several = env.choices is not None and env.n_actions is None
    plain = isinstance(network, MLPLayout) and not network.norm
    if plain and not several and not (normaliser or head) and network.n_outputs == n_scores:
        assert isinstance(network, MLPLayout)
        return perceptron(network, weights, env, scores)
    from tianji.models.export_module import ActingModule

    return traced(ActingModule(network, weights, env, n_scores, normaliser, head), env, scores)


def perceptron(layout: MLPLayout, weights: Weights, env: EnvSpec, scores: str) -> PolicyGraph:
    """The policy that takes the best of n actions, or the mean of a vector within its bounds.

    `scores` names the second output, the network's own: `q`, `logits`, `mean`. `weights` may be
    longer than the layout: what lies behind the network is left out.
    """
    network = NumpyMLP(layout)
    network.load(np.asarray(weights, np.float32)[: layout.n_weights])
    graph = _Graph()
    graph.add("Flatten", ["obs"], "inputs", axis=1)
    _add_layers(graph, layout, network.flat, scores)
    if env.n_actions is not None:
        graph.add("ArgMax", [scores], "action", axis=1, keepdims=0, select_last_index=0)
    else:
        _add_bounds(graph, env, scores)
    return PolicyGraph(graph.model(env, scores, (layout.n_outputs,)), network)


def traced(module: torch.nn.Module, env: EnvSpec, scores: str) -> PolicyGraph:
    """What torch's exporter makes of a module with `forward(obs) -> (action, scores)`.

    `obs` is float32 [batch, ...]; the batch may have any size.
    """
    import torch

    module = module.cpu().eval()
    example = torch.zeros(2, *env.input_shape)
    model = converted(module, {"obs": example}, ["action", scores])

    def reference(obs: Floats) -> Floats:
        with torch.no_grad():
            return np.asarray(module(torch.from_numpy(obs))[1].numpy(), np.float32)

    return PolicyGraph(model, reference)


def converted(
    module: torch.nn.Module, examples: dict[str, torch.Tensor], outputs: list[str]
) -> bytes:
    """A module as an ONNX file; the first axis of all its inputs is the batch, of any size."""
    if find_spec("onnxscript") is None:
        raise TianJiError("exporting a torch module needs onnxscript: pip install 'tianji[onnx]'")
    import torch

    batch = torch.export.Dim("batch")
    with _silenced():
        program = torch.onnx.export(
            module,
            kwargs=examples,
            input_names=list(examples),
            output_names=outputs,
            dynamic_shapes={name: {0: batch} for name in examples},
            dynamo=True,
            verbose=False,
        )
    assert program is not None  # with dynamo it always returns the program
    return bytes(program.model_proto.SerializeToString())


@contextmanager
def _silenced() -> Iterator[None]:
    """Without torch's remarks about packages that nobody here asked for and its own old names."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@dataclass
class _Graph:
    """An ONNX graph while it is written: nodes in order, and the constants that they use."""

    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)

    def add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> None:
        """Appends one node."""
        from onnx import helper

        self.nodes.append(helper.make_node(kind, inputs, [output], output, **attributes))

    def constant(self, name: str, value: Any) -> str:
        """Keeps an array under a name that nodes can read."""
        self.constants[name] = np.asarray(value)
        return name

    def model(self, env: EnvSpec, scores: str, shape: tuple[int, ...]) -> bytes:
        """The whole file: `obs` in, `action` and the scores out."""
        from onnx import TensorProto, helper, numpy_helper

        def value(name: str, kind: int, shape: tuple[int, ...]) -> Any:
            return helper.make_tensor_value_info(name, kind, ["batch", *shape])

        kind = TensorProto.FLOAT if env.n_actions is None else TensorProto.INT64
        graph = helper.make_graph(
            self.nodes,
            "policy",
            [value("obs", TensorProto.FLOAT, env.input_shape)],
            [value("action", kind, env.action.shape), value(scores, TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opset)
        return bytes(model.SerializeToString())


def _add_layers(graph: _Graph, layout: MLPLayout, flat: Floats, output: str) -> None:
    """From `inputs` to `output`, as `NumpyMLP` computes it."""
    act = "Tanh" if layout.act == "tanh" else "Relu"
    last, x, views = len(layout.shapes) // 2 - 1, "inputs", iter(views_of(flat, layout.shapes))
    for i in range(last + 1):
        names = [graph.constant(f"{name}{i}", next(views).copy()) for name in ("weight", "bias")]
        y = f"layer{i}" if i < last or layout.dueling else output
        graph.add("Gemm", [x, *names], y, transB=1)
        if i < last:
            graph.add(act, [y], f"hidden{i}")
            y = f"hidden{i}"
        x = y
    if layout.dueling:
        _add_duel(graph, x, layout.n_outputs, output)


def _add_duel(graph: _Graph, x: str, n_actions: int, output: str) -> None:
    """Q = V + A - mean(A), of a layer that gives V and then A."""
    sizes = graph.constant("sizes", np.array([1, n_actions], np.int64))
    from onnx import helper

    graph.nodes.append(helper.make_node("Split", [x, sizes], ["value", "advantage"], axis=1))
    graph.add("ReduceMean", ["advantage"], "mean_advantage", axes=[1], keepdims=1)
    graph.add("Add", ["value", "advantage"], "value_and_advantage")
    graph.add("Sub", ["value_and_advantage", "mean_advantage"], output)


def _add_bounds(graph: _Graph, env: EnvSpec, mean: str) -> None:
    """The action: the mean, no lower and no higher than the space allows."""
    low = graph.constant("low", np.asarray(env.action_low, np.float32))
    high = graph.constant("high", np.asarray(env.action_high, np.float32))
    shape = graph.constant("shape", np.array([-1, *env.action.shape], np.int64))
    graph.add("Max", [mean, low], "not_too_low")
    graph.add("Min", ["not_too_low", high], "within_bounds")
    graph.add("Reshape", ["within_bounds", shape], "action")
