"""An update as a CUDA graph: its hundreds of small kernels are launched as one."""

from __future__ import annotations

from collections.abc import Callable

import torch

Tensors = dict[str, torch.Tensor]

WARMUP = 3  # calls before one is captured: libraries choose their kernels and take their memory


class Graphed:
    """A function of named tensors; on a GPU it is captured once its shapes are known, and replayed.

    The function may read and change only tensors that stay where they are, and must not wait for
    the GPU. Numbers of Python that it reads are frozen. What it returns is copied. Tensors of other
    shapes than those of the capture, every device but a GPU, and a function that cannot be captured
    (said in the role's log) are computed as they come.
    """

    def __init__(self, function: Callable[[Tensors], Tensors], device: str) -> None:
        self._function, self._enabled = function, device.startswith("cuda")
        self._n_calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: Tensors = {}
        self._outputs: Tensors = {}

    @property
    def captured(self) -> bool:
        """Whether there is a graph."""
        return self._graph is not None

    def __call__(self, tensors: Tensors) -> Tensors:
        """What the function returns."""
        if not self._enabled:
            return self._function(tensors)
        if self._graph is None:
            self._n_calls += 1
            if self._n_calls <= WARMUP:
                return self._aside(tensors)
            self._capture(tensors)
        if self._graph is None or not self._fits(tensors):
            return self._function(tensors)
        for name, tensor in tensors.items():
            self._inputs[name].copy_(tensor)
        self._graph.replay()
        return {name: tensor.clone() for name, tensor in self._outputs.items()}

    def _aside(self, tensors: Tensors) -> Tensors:
        """A call on a stream of its own, as a capture needs those before it to be."""
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]  # not annotated
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            found = self._function(tensors)
        here.wait_stream(aside)
        return found

    def _capture(self, tensors: Tensors) -> None:
        """Records the kernels of one call; none of them runs."""
        self._inputs = {name: tensor.clone() for name, tensor in tensors.items()}
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._outputs = self._function(self._inputs)
        except RuntimeError as error:
            self._enabled = False
            print(f"updates are not captured in a CUDA graph: {error}", flush=True)
            return
        self._graph = graph
        print("updates are replayed from a CUDA graph", flush=True)

    def _fits(self, tensors: Tensors) -> bool:
        return tensors.keys() == self._inputs.keys() and all(
            tensor.shape == self._inputs[name].shape for name, tensor in tensors.items()
        )
