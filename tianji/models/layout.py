"""Networks as any process can describe them, without torch; a perceptron also acts in numpy."""

from __future__ import annotations

import math
import traceback
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from tianji.core.algorithm import Task
from tianji.core.errors import TianJiError

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.float32]

NORM_EPS = 1e-5  # torch's own


class Forward(Protocol):
    """A network that acts: no gradients, weights in one flat vector.

    One that computes in torch has a `device`, and takes tensors that lie there as well.
    """

    flat: Floats

    def load(self, flat: Floats) -> None:
        """Copies a flat vector of weights."""

    def __call__(self, inputs: Any) -> Floats:
        """Outputs [B, n_outputs] for inputs [B, ...]."""


class Network(ABC):
    """What a network is made of: where its weights lie in one flat vector, and how it is built.

    One of your own defines `build`, and a config names it, `model = dict(type="my_net:MyNet")`:

        class MyNet(tianji.Network):
            def build(self):
                n = math.prod(self.input_shape)
                return nn.Sequential(nn.Flatten(), nn.Linear(n, 32), nn.ReLU(),
                                     nn.Linear(32, self.n_outputs))

    Its module takes inputs [B, *input_shape] of the environment's dtype and returns float32
    [B, n_outputs]. `options` holds the keys of `model` that the config's schema does not know.
    """

    input_shape: tuple[int, ...]
    n_outputs: int
    exact: ClassVar[bool] = False  # an actor's outputs are the learner's, up to rounding

    def __init__(self, input_shape: tuple[int, ...], n_outputs: int, **options: Any) -> None:
        self.input_shape, self.n_outputs, self.options = input_shape, n_outputs, options

    @abstractmethod
    def build(self) -> torch.nn.Module:
        """The module, with any weights; its parameters lie in the flat vector in their order."""

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of each parameter; networks that say so themselves spare the launcher torch."""
        import torch

        with torch.device("meta"):
            module = self.build()
        if buffers := [name for name, _ in module.named_buffers()]:
            raise TianJiError(
                f"model.type: {type(self).__name__} has the buffer {buffers[0]!r}, which would not "
                "travel to the actors: use layers without running statistics (LayerNorm)"
            )
        return [tuple(parameter.shape) for parameter in module.parameters()]

    @property
    def n_weights(self) -> int:
        """Length of the flat vector."""
        return sum(math.prod(shape) for shape in self.shapes)

    def module(self, generator: torch.Generator, last_gain: float | None = None) -> torch.nn.Module:
        """The module with first weights drawn from `generator`.

        With `last_gain` they are orthogonal, the last layer's scaled by it; without, uniform. A
        network of one's own starts as it likes.
        """
        import torch

        with torch.random.fork_rng():
            torch.manual_seed(generator.initial_seed())
            return self.build()

    def forward(self, device: str) -> Forward:
        """The acting half, on `device`."""
        from tianji.models.acting_module import ModuleForward

        return ModuleForward(self, device)


@dataclass(frozen=True)
class MLPLayout(Network):
    """A multi-layer perceptron; with `norm` a LayerNorm follows every layer but the last.

    With `dueling` the last layer has one output more, the state's value V, and the result is
    Q = V + A - mean(A); where every action has several `atoms`, that many more.
    """

    n_inputs: int
    hidden: tuple[int, ...]
    n_outputs: int
    act: str = "relu"
    dueling: bool = False
    atoms: int = 1
    norm: bool = False

    exact: ClassVar[bool] = True

    @property
    def input_shape(self) -> tuple[int, ...]:  # type: ignore[override]  # the base has a variable
        """One vector."""
        return (self.n_inputs,)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Weight [out, in] and bias [out] of each layer, and of the norm behind it."""
        sizes = [self.n_inputs, *self.hidden]
        shapes: list[tuple[int, ...]] = []
        for size_in, size_out in pairwise(sizes):
            shapes += [(size_out, size_in), (size_out,)] + [(size_out,), (size_out,)] * self.norm
        n = self.n_outputs + self.atoms * self.dueling
        return [*shapes, (n, sizes[-1]), (n,)]

    def build(self) -> torch.nn.Module:
        """The module, all its layers' weights zero."""
        from tianji.models.mlp import MLP

        return MLP(self)

    def module(self, generator: torch.Generator, last_gain: float | None = None) -> torch.nn.Module:
        """The module with its first weights."""
        from tianji.models.mlp import MLP

        made = MLP(self)
        return (
            made.uniform(generator) if last_gain is None else made.orthogonal(generator, last_gain)
        )

    def forward(self, device: str) -> Forward:
        """In numpy unless a device was asked for: cheaper than torch at an actor's batch sizes."""
        if device in ("auto", "cpu"):
            return NumpyMLP(self)
        return super().forward(device)


NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel and stride of each convolution of Mnih et al. (2015)."""


@dataclass(frozen=True)
class CNNLayout(Network):
    """Convolutions over stacked frames [C, H, W], dense layers, and a last linear one.

    uint8 inputs count as 0 to 1. With `norm` a LayerNorm follows every dense layer; with
    `norm_convs` all pixels and channels that a convolution gives are normalised too.
    """

    input_shape: tuple[int, ...]
    n_outputs: int
    convs: tuple[tuple[int, int, int], ...] = NATURE
    hidden: tuple[int, ...] = (512,)
    act: str = "relu"
    norm: bool = False
    dueling: bool = False
    atoms: int = 1
    precision: str = "auto"  # what it learns and acts in, as the key of `model`
    norm_convs: bool = False

    def __post_init__(self) -> None:
        """Refuses inputs that are no pictures, and pictures too small for the convolutions."""
        if len(self.input_shape) != 3:
            raise TianJiError(
                f"model.type: a CNN reads pictures [channels, height, width], and what is observed "
                f"has shape {list(self.input_shape)}: use type='MLP', or for one frame without "
                "channels stack some (of Atari: the wrapper 'stack')"
            )
        if min(self.picture) < 1:
            raise TianJiError(
                f"model.convs: pictures of {self.input_shape[1]} x {self.input_shape[2]} are too "
                f"small for {list(self.convs)} (channels, kernel, stride): use smaller kernels"
            )

    @property
    def picture(self) -> tuple[int, int]:
        """Height and width of what the last convolution gives."""
        _, height, width = self.input_shape
        for _, kernel, stride in self.convs:
            height, width = ((size - kernel) // stride + 1 for size in (height, width))
        return height, width

    @property
    def n_features(self) -> int:
        """Numbers that the last convolution gives."""
        channels = self.convs[-1][0] if self.convs else self.input_shape[0]
        return channels * math.prod(self.picture)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Weight and bias of each layer, and of the norm behind it."""
        shapes: list[tuple[int, ...]] = []
        channels = self.input_shape[0]
        for out, kernel, _ in self.convs:
            shapes += [(out, channels, kernel, kernel), (out,)] + [(out,), (out,)] * self.norm_convs
            channels = out
        sizes = [self.n_features, *self.hidden]
        for size_in, size_out in pairwise(sizes):
            shapes += [(size_out, size_in), (size_out,)] + [(size_out,), (size_out,)] * self.norm
        n = self.n_outputs + self.atoms * self.dueling
        return [*shapes, (n, sizes[-1]), (n,)]

    def build(self) -> torch.nn.Module:
        """The module, with torch's own first weights."""
        from tianji.models.cnn import CNN

        return CNN(self)

    def module(self, generator: torch.Generator, last_gain: float | None = None) -> torch.nn.Module:
        """The module with its first weights."""
        from tianji.models.cnn import CNN

        return CNN(self).start(generator, last_gain)


def network_of(
    task: Task,
    n_outputs: int,
    dueling: bool = False,
    atoms: int = 1,
    n_inputs: int | None = None,
) -> Network:
    """The network that a job's `model` section asks for, with this many outputs.

    With `n_inputs` it reads so many numbers and not what one environment shows.
    """
    model, env, last = task.model, task.env, (dueling, atoms)
    shape = env.input_shape if n_inputs is None else (n_inputs,)
    if model.type == "MLP":
        hidden = (64, 64) if model.hidden is None else tuple(model.hidden)
        n = env.n_inputs if n_inputs is None else n_inputs
        return MLPLayout(n, hidden, n_outputs, model.act, *last, bool(model.norm))
    if model.type == "CNN":
        hidden = (512,) if model.hidden is None else tuple(model.hidden)
        convs = NATURE if model.convs is None else tuple(_conv(each) for each in model.convs)
        more = (model.act, bool(model.norm), *last, model.precision, model.norm == "all")
        return CNNLayout(shape, n_outputs, convs, hidden, *more)
    if model.type == "GRU":
        raise TianJiError(
            "model.type: networks of type 'GRU' are for agents that remember (QMIX, VDN, IQL): "
            "write type='MLP'"
        )
    single = n_inputs is None and len(env.inputs) == 1 and not _normalises(task)
    return _own_network(task, shape, env.inputs[0].dtype if single else "float32", n_outputs)


def _normalises(task: Task) -> bool:
    return bool(getattr(task.hyp, "normalise_obs", False))


def _own_network(task: Task, shape: tuple[int, ...], dtype: str, n_outputs: int) -> Network:
    """A network of one's own, after it gave once in this process what it should."""
    assert task.own_network is not None, "a job loads the class that its model names"
    own, options = task.own_network, dict(task.model.kwargs)
    name, wanted = task.model.type, f"float32[2, {n_outputs}]"
    if missing := sorted(getattr(own, "__abstractmethods__", ())):
        raise TianJiError(f"model.type: {name!r} lacks {missing[0]}(): define it")
    key = own, shape, dtype, n_outputs, repr(options)
    try:
        made: Network = own(shape, n_outputs, **options)
        found = wanted if key in _SOUND else _found(made, shape, dtype)
    except Exception as error:  # whatever a user's class may raise
        words = traceback.format_exc().rstrip()
        raise TianJiError(
            f"model.type: {name!r} failed when it was tried out with inputs {dtype}"
            f"{[2, *shape]}, n_outputs={n_outputs} and options {options}, which are the keys of "
            f"`model` that are its own: mend it, or the keys:\n{words}"
        ) from error
    if found != wanted:
        raise TianJiError(
            f"model.type: {name!r}: want {wanted} for inputs {dtype}{[2, *shape]}, got {found}: "
            "build() returns a torch.nn.Module whose last layer has self.n_outputs outputs"
        )
    _SOUND.add(key)
    return made


_SOUND: set[tuple[object, ...]] = set()  # what was tried out, and gave what it should


def _found(network: Network, shape: tuple[int, ...], dtype: str) -> str:
    """What a network answers to zeros for two environments, as `float32[2, 3]`."""
    import torch

    with torch.random.fork_rng(), torch.no_grad():
        module = network.build()
        if not isinstance(module, torch.nn.Module):
            return f"{type(module).__name__} from build()"
        out = module(torch.zeros(2, *shape, dtype=getattr(torch, dtype)))
    if not isinstance(out, torch.Tensor):
        return type(out).__name__
    return f"{str(out.dtype).removeprefix('torch.')}{list(out.shape)}"


def _conv(numbers: Sequence[int]) -> tuple[int, int, int]:
    if len(numbers) != 3 or min(numbers) < 1:
        raise TianJiError(
            f"model.convs: want (channels, kernel, stride) for each convolution, got {numbers}"
        )
    channels, kernel, stride = numbers
    return channels, kernel, stride


def views_of(flat: Floats, shapes: Sequence[tuple[int, ...]]) -> list[Floats]:
    """Arrays of these shapes that lie one after the other in a flat vector."""
    parts = np.split(flat, np.cumsum([math.prod(shape) for shape in shapes])[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


class NumpyMLP:
    """The forward pass of an `MLPLayout`; cheaper than torch at an actor's batch sizes."""

    def __init__(self, layout: MLPLayout) -> None:
        self.layout = layout
        self.flat = np.zeros(layout.n_weights, np.float32)
        views = views_of(self.flat, layout.shapes)
        n = 4 if layout.norm else 2
        self._layers = [(views[i].T, *views[i + 1 : i + n]) for i in range(0, len(views), n)]
        self._tanh = layout.act == "tanh"

    def load(self, flat: Floats) -> None:
        """Copies a flat vector of weights."""
        self.flat[...] = flat

    def __call__(self, inputs: npt.NDArray[Any]) -> Floats:
        """Outputs [E, n_outputs] for inputs [E, ...]."""
        x = np.asarray(inputs.reshape(len(inputs), -1), np.float32)
        *inner, (weight, bias) = self._layers
        for w, b, *norm in inner:
            x = x @ w
            x += b
            if norm:
                x = _normed(x, *norm)
            if self._tanh:
                np.tanh(x, out=x)
            else:
                np.maximum(x, 0.0, out=x)
        x = x @ weight
        x += bias
        if self.layout.dueling:
            parts = x.reshape(len(x), -1, self.layout.atoms)
            advantage = parts[:, 1:]
            x = parts[:, :1] + advantage - advantage.mean(1, keepdims=True)
        return x.reshape(len(x), -1)


def _normed(x: Floats, weight: Floats, bias: Floats) -> Floats:
    """A LayerNorm, as torch's."""
    x = x - x.mean(1, keepdims=True)
    x /= np.sqrt(np.square(x).mean(1, keepdims=True) + NORM_EPS)
    return x * weight + bias
