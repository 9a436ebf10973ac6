"""What is captured and replayed is what would have been computed; without a GPU nothing changes."""

import pytest
import torch

from tianji.models.cuda_graph import WARMUP, Graphed
from tianji.models.flat import FlatParameters
from tianji.models.optimisers import Adam

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


class Small:
    """A layer that is stepped, with a counter of calls in Python."""

    def __init__(self, device):
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3, 1)
        self.flat = FlatParameters([*self.layer.parameters()], device)
        self.adam, self.calls = Adam(self.flat, 0.1), 0

    def step(self, batch):
        self.calls += 1
        loss = self.layer(batch["x"]).square().mean()
        self.flat.backward(loss, 0.5)
        self.adam.step()
        return {"loss": loss.detach()}


def ways(device, sizes, rates):
    """Parameters and losses with `Graphed` and without; how often Python was called with it."""
    made = []
    for wraps in (True, False):
        small = Small(device)
        step, losses = Graphed(small.step, device) if wraps else small.step, []
        for i, (size, rate) in enumerate(zip(sizes, rates, strict=True)):
            small.adam.lr = rate
            x = torch.linspace(-1, 1, 3 * size, device=device).view(size, 3) + i
            losses.append(step({"x": x})["loss"])
        made.append((small.flat.vector.cpu(), torch.stack(losses).cpu(), small.calls))
    return made


def test_on_a_cpu_it_is_the_function_itself():
    (one, losses, calls), (other, expected, _) = ways("cpu", [4] * 8, [0.1] * 8)
    assert calls == 8
    assert torch.equal(one, other) and torch.equal(losses, expected)
    assert not Graphed(Small("cpu").step, "cpu").captured


@NEEDS_GPU
def test_a_graph_follows_the_learning_rate_and_leaves_other_shapes_alone():
    sizes, rates = [4] * 8 + [5, 4], [0.1] * 6 + [0.01] * 4
    (one, losses, calls), (other, expected, _) = ways("cuda", sizes, rates)
    assert calls == WARMUP + 1 + 1  # those before it, the capture, and the other shape
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(losses, expected)


def test_a_rate_that_changes_is_the_one_that_steps():
    small = Small("cpu")
    before = small.flat.vector.clone()
    small.adam.lr = 0.0
    small.step({"x": torch.ones(2, 3)})
    assert torch.equal(small.flat.vector, before)
    small.adam.lr = 0.1
    small.step({"x": torch.ones(2, 3)})
    assert not torch.equal(small.flat.vector, before)
    assert small.adam.lr == 0.1
