"""Networks of a config: convolutions, networks of one's own, and what normalises their inputs."""

import math
from dataclasses import replace
from itertools import accumulate, count
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fields import spec_of
from hypothesis import given
from hypothesis import strategies as st
from sharing import exchanged

from tianji.algorithms.scales import Scales
from tianji.config.keys import ModelConfig
from tianji.core.algorithm import Task
from tianji.core.errors import TianJiError
from tianji.core.schema import Field
from tianji.models import precision
from tianji.models.cnn import CNN
from tianji.models.layout import CNNLayout, MLPLayout, Network, network_of
from tianji.models.normaliser import Normaliser
from tianji.models.precision import CANDIDATES, Precision, choose

SMALL = CNNLayout((2, 12, 12), 3, ((4, 4, 2), (8, 3, 1)), (16,))
LAYOUTS = [
    SMALL,
    CNNLayout((4, 84, 84), 6),
    CNNLayout((1, 8, 8), 3, ((4, 3, 1),), (16, 8), "tanh", norm=True),
    CNNLayout((2, 12, 12), 4, ((4, 4, 2),), (16,), dueling=True),
    CNNLayout((2, 12, 12), 6, ((4, 4, 2),), (), dueling=True, atoms=2),
    CNNLayout((2, 12, 12), 3, ((4, 4, 2), (8, 3, 1)), (16,), norm=True, norm_convs=True),
]


def made(layout, seed=0, last_gain=None):
    return layout.module(torch.Generator().manual_seed(seed), last_gain)


def frames(layout, n=5, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, *layout.input_shape), np.uint8)


def flat_of(module):
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_counts_the_networks_weights_in_its_order(layout):
    module = made(layout)
    assert [tuple(p.shape) for p in module.parameters()] == layout.shapes
    assert len(flat_of(module)) == layout.n_weights
    assert module(torch.from_numpy(frames(layout))).shape == (5, layout.n_outputs)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_actors_network_says_nearly_what_the_learners_says(layout):
    module, forward, seen = made(layout), layout.forward("auto"), frames(layout)
    forward.load(flat_of(module))
    with torch.no_grad():
        expected = module(torch.from_numpy(seen)).numpy()
    np.testing.assert_allclose(forward(seen), expected, atol=0.02)  # it may compute in bfloat16


@pytest.mark.parametrize("fast", [True, False])
def test_an_actor_computes_in_the_format_that_the_model_names(monkeypatch, fast):
    monkeypatch.setattr(precision, "has_bf16", lambda: fast)
    env = spec_of(Field("obs", "uint8", SMALL.input_shape), Field("action", "int64"), 3)
    seen, outputs = frames(SMALL, 64), {}
    for name in ("float32", "bfloat16", "auto"):
        model = ModelConfig(type="CNN", convs=SMALL.convs, hidden=SMALL.hidden, precision=name)
        network = network_of(Task(env, model, None), 3)
        module, forward = made(network), network.forward("cpu")
        forward.load(flat_of(module))
        outputs[name] = forward(seen)
    with torch.no_grad():
        expected = module(torch.from_numpy(seen)).numpy()
    np.testing.assert_allclose(outputs["float32"], expected, atol=1e-6)
    assert np.abs(outputs["bfloat16"] - expected).max() > 1e-4
    np.testing.assert_array_equal(outputs["auto"], outputs["bfloat16" if fast else "float32"])


@pytest.mark.parametrize("precision", CANDIDATES, ids=str)
def test_every_number_format_has_nearly_the_same_gradient(precision):
    module, seen = made(SMALL, last_gain=1.0), torch.from_numpy(frames(SMALL))
    parameters = list(module.parameters())
    expected = torch.autograd.grad(module(seen).square().mean(), parameters)
    module.precision = precision
    out = module(seen)
    assert out.dtype == torch.float32
    found = torch.autograd.grad(out.square().mean(), parameters)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, atol=0.02 * float(other.abs().max()) + 1e-4, rtol=0)


def test_the_choice_of_a_number_format_leaves_the_network_as_it_was():
    module = made(SMALL)
    before = flat_of(module)
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    assert choose(module, 4) in CANDIDATES
    for wanted in ("float32", "bfloat16"):
        chosen = choose(made(replace(SMALL, precision=wanted)), 4)
        assert chosen.bf16 == (wanted == "bfloat16")
    assert module.precision == Precision()
    np.testing.assert_array_equal(flat_of(module), before)
    assert all(bool((p.grad == 1).all()) for p in module.parameters())


def test_a_noisy_moment_decides_no_number_format(monkeypatch):
    """The formats take turns: here the fastest one is slow in two rounds of three."""
    took = iter([3.0, 2.0, 9.0, 3.0, 2.0, 9.0, 3.0, 2.0, 1.0])
    now = accumulate(x for seconds in took for x in (0.0, seconds))
    clock = SimpleNamespace(thread_time=lambda: next(now), perf_counter=count().__next__)
    monkeypatch.setattr(precision, "time", clock)
    found = precision._seconds(made(SMALL), torch.from_numpy(frames(SMALL)), CANDIDATES)
    assert found == dict(zip(CANDIDATES, (3.0, 2.0, 1.0), strict=True))


def test_a_small_last_layer_decides_little():
    small, large = (made(SMALL, last_gain=gain) for gain in (0.01, 1.0))
    seen = torch.from_numpy(frames(SMALL))
    with torch.no_grad():
        assert float(large(seen).abs().max() / small(seen).abs().max()) == pytest.approx(100)


@pytest.mark.parametrize(
    ("shape", "convs"), [((4,), None), ((4, 6, 6), ((8, 8, 4),)), ((4, 20, 20), None)]
)
def test_what_is_no_picture_or_too_small_is_refused(shape, convs):
    env = spec_of(Field("obs", "uint8", shape), Field("action", "int64"), 2)
    with pytest.raises(TianJiError, match=r"model\.(type|convs)"):
        network_of(Task(env, ModelConfig(type="CNN", convs=convs), None), 2)


class Own(Network):
    """A network of one's own, as its docstring shows."""

    def build(self):
        n = math.prod(self.input_shape)
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(n, self.options["width"]), torch.nn.Tanh(),
            torch.nn.Linear(self.options["width"], self.n_outputs),
        )  # fmt: skip


class Running(Network):
    """Has running statistics, which are no weights."""

    def build(self):
        return torch.nn.BatchNorm1d(3)


OWN = Task(
    spec_of(Field("obs", "float32", (3,)), Field("action", "int64"), 2),
    ModelConfig(type="my_net:Own", kwargs={"width": 5}),
    None,
    own_network=Own,
)


def test_a_network_of_ones_own_acts_as_it_learns():
    network = network_of(OWN, 2)
    module, forward = made(network, seed=1), network.forward("auto")
    assert network.n_weights == 5 * 3 + 5 + 2 * 5 + 2
    np.testing.assert_array_equal(flat_of(module), flat_of(made(network, seed=1)))
    forward.load(flat_of(module))
    obs = np.random.default_rng(0).standard_normal((4, 3), np.float32)
    with torch.no_grad():
        np.testing.assert_allclose(forward(obs), module(torch.from_numpy(obs)).numpy())


def test_a_network_with_running_statistics_is_refused():
    with pytest.raises(TianJiError, match="running_mean"):
        _ = Running((3,), 3).n_weights


def test_only_convolutions_need_torch_to_act():
    assert isinstance(network_of(OWN, 2).module(torch.Generator()), torch.nn.Sequential)
    assert isinstance(made(SMALL), CNN)
    assert type(MLPLayout(3, (4,), 2).forward("auto")).__name__ == "NumpyMLP"


# -------------------------------------------------------------------------------------- normalisers


@given(st.integers(0, 10_000), st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_running_statistics_are_those_of_all_samples(seed, sizes):
    random, normaliser = np.random.default_rng(seed), Normaliser((3,))
    parts = [random.normal(5.0, 2.0, (n, 3)) for n in sizes]
    for part in parts:
        normaliser.add(normaliser.sums(part))
    seen = np.concatenate(parts)
    np.testing.assert_allclose(normaliser.mean, seen.mean(0), rtol=1e-3)
    if len(seen) > 2:
        np.testing.assert_allclose(1 / normaliser.scale, seen.std(0), rtol=1e-2, atol=1e-3)


def test_sums_of_several_learners_add_up_to_those_of_one():
    random, one, two = np.random.default_rng(0), Normaliser((2,)), Normaliser((2,))
    for _ in range(3):
        samples = random.normal(size=(20, 2))
        one.add(one.sums(samples))
        two.add(two.sums(samples[:5]) + two.sums(samples[5:]))
    np.testing.assert_allclose(one.numbers, two.numbers, rtol=1e-5)


def carried(numbers):
    vector = np.asarray(numbers, np.float32).copy()
    yield vector
    return vector.tolist()


def scales_of(shape, pictures=False):
    """Scales of inputs of a shape alone."""
    scales = Scales(spec_of(Field("obs", "float32", (2,)), Field("action", "int64"), 2))
    scales.normalisers = [Normaliser(shape, pictures)]
    return scales


def learned_together(many, parts):
    """Each learns from a part of the samples, and from what the others tell of theirs."""
    updates = []
    for scales, part in zip(many, parts, strict=True):
        sums = [each.sums(part) for each in scales.normalisers]
        updates.append(scales.pooled(sums, carried))
    for scales, found in zip(many, exchanged(updates)[0], strict=True):
        scales.add([len(many) * sums for sums in found])


@pytest.mark.parametrize("pictures", [False, True])
@pytest.mark.parametrize("far", [0.0, 300.0, 1000.0, -1e4])
def test_sums_travel_in_float32_and_keep_a_small_spread_far_from_0(far, pictures):
    random, one = np.random.default_rng(0), Normaliser((2, 1), pictures)
    many = [scales_of((2, 1), pictures) for _ in range(3)]
    for _ in range(3):
        samples = random.normal(far, 0.1, size=(90, 2, 1))
        one.add(one.sums(samples))
        learned_together(many, np.split(samples, [30, 35]))  # of different size
    for [each] in (scales.normalisers for scales in many):
        assert each.numbers.tobytes() == many[0].normalisers[0].numbers.tobytes()
        np.testing.assert_allclose(each.scale, one.scale, rtol=1e-2)
        np.testing.assert_allclose(each.mean, one.mean, rtol=1e-6, atol=1e-6)


def test_samples_beyond_float32_teach_nothing():
    one = Normaliser((2,))
    one.add(one.sums(np.array([[1.0, 2.0], [3.0, 4.0]])))
    before = one.numbers.tobytes()
    one.add(one.sums(np.array([[0.0, 1e25]])))
    assert one.numbers.tobytes() == before


def test_nobody_s_samples_teach_nothing():
    many = [scales_of((2,)) for _ in range(2)]
    before = many[0].normalisers[0].numbers.tobytes()
    learned_together(many, [np.empty((0, 2))] * 2)
    assert [scales.normalisers[0].numbers.tobytes() for scales in many] == [before] * 2


def test_groups_move_to_their_mean_and_no_variance_falls_below_0():
    random, groups = np.random.default_rng(0), [Normaliser((2,)) for _ in range(4)]
    for i, group in enumerate(groups):
        group.add(group.sums(random.normal(i, 1.0 if i else 100.0, (50, 2))))
    sent = [group.averageable() for group in groups]
    mean = np.mean(sent, axis=0)
    for group in groups:  # meanwhile they learn on, and what was rare is rare
        group.add(group.sums(random.normal(1.0, 1.0, (50_000, 2))))
    before = [group.averageable() for group in groups]
    for group, old, was in zip(groups, before, sent, strict=True):
        group.shift(mean - was)
        np.testing.assert_allclose(group.averageable(), old + mean - was, rtol=1e-4, atol=1e-4)
        assert (group.scale > 0.005).all() and (group.scale < 50).all()


def test_pictures_have_a_mean_for_each_pixel_and_one_deviation():
    random = np.random.default_rng(0)
    pictures = random.integers(0, 200, (500, 4, 4)).astype(np.uint8)
    pictures[:, 0, 0] = 200  # a background that never changes must not be divided by nothing
    normaliser = Normaliser((4, 4), pictures=True)
    np.testing.assert_allclose(normaliser(pictures), pictures / 255, rtol=1e-6)
    normaliser.add(normaliser.sums(pictures))
    seen = normaliser(pictures)
    assert abs(seen.mean()) < 1e-3
    assert 4 * seen.std() == pytest.approx(1.0, rel=1e-3)
    assert not seen[:, 0, 0].any()


def test_what_is_far_off_is_limited():
    normaliser = Normaliser((1,))
    normaliser.add(normaliser.sums(np.array([[0.0], [1.0]])))
    assert normaliser(np.array([[1e6], [-1e6]])).ravel().tolist() == [10.0, -10.0]


class Wrong(Network):
    """A network of one's own that makes the mistake that its option names."""

    def build(self):
        n, outputs = math.prod(self.input_shape), self.n_outputs
        linear = torch.nn.Linear
        return {
            "few": lambda: linear(n, outputs - 1),
            "many": lambda: linear(n, outputs + 1),
            "flat": lambda: torch.nn.Sequential(linear(n, 1), torch.nn.Flatten(0)),
            "pair": lambda: torch.nn.LSTM(n, outputs),
            "double": lambda: linear(n, outputs).double(),
            "double out": lambda: torch.nn.Sequential(linear(n, outputs), Doubled()),
            "inputs": lambda: linear(n + 1, outputs),
            "nothing": lambda: None,
            "sound": lambda: linear(n, outputs),
        }[self.options["mistake"]]()


class Doubled(torch.nn.Module):
    def forward(self, x):
        return x.double()


class Unbuilt(Network):
    """Lacks what it needs."""


@pytest.mark.parametrize(
    ("mistake", "found"),
    [
        ("few", "float32[2, 1]"),
        ("many", "float32[2, 3]"),
        ("flat", "float32[2]"),
        ("pair", "tuple"),
        ("double", "Float"),  # torch's own words
        ("double out", "float64[2, 2]"),
        ("inputs", "2x3 and 4x2"),  # torch's own words
        ("nothing", "NoneType"),
        (None, "KeyError"),  # its option is missing
    ],
)
def test_a_network_of_ones_own_that_gives_something_else_is_refused(mistake, found):
    model = ModelConfig(type="my_net:Wrong", kwargs={} if mistake is None else {"mistake": mistake})
    with pytest.raises(TianJiError) as caught:
        network_of(replace(OWN, model=model, own_network=Wrong), 2)
    for word in (model.type, found, "float32[2, 3]", str(dict(model.kwargs)) * (mistake is None)):
        assert word in str(caught.value)


def test_a_network_without_build_is_refused():
    with pytest.raises(TianJiError, match=r"my_net:Own.*build\(\)"):
        network_of(replace(OWN, own_network=Unbuilt), 2)


class Counted(Own):
    """Says how often it was built."""

    n = 0

    def build(self):
        Counted.n += 1
        return super().build()


def test_a_network_of_ones_own_is_tried_out_once():
    before = torch.random.get_rng_state()
    for _ in range(3):
        network_of(replace(OWN, own_network=Counted), 2)
    assert Counted.n == 1
    assert torch.equal(torch.random.get_rng_state(), before)
