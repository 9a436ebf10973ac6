"""Small networks: one flat vector, the same numbers in numpy and in torch."""

import numpy as np
import pytest
import torch

from tianji.models.flat import FlatParameters
from tianji.models.layout import MLPLayout, NumpyMLP
from tianji.models.mlp import MLP
from tianji.models.optimisers import Adam, RAdam, RMSProp

LAYOUTS = [
    MLPLayout(4, (64, 64), 2, "tanh"),
    MLPLayout(4, (256, 256), 2, "relu"),
    MLPLayout(3, (16,), 5, "relu", dueling=True),
    MLPLayout(3, (16, 8), 1, "tanh", dueling=True),
    MLPLayout(6, (), 3),
    MLPLayout(4, (16, 8), 2, "tanh", norm=True),
    MLPLayout(3, (16,), 5, "relu", dueling=True, norm=True),
]


def network(layout, seed=0):
    return MLP(layout).uniform(torch.Generator().manual_seed(seed))


def flat_of(module):
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()


def plain_forward(layout, weights, x):
    """The network as a textbook would write it, for autograd."""
    act = torch.tanh if layout.act == "tanh" else torch.relu
    for i in range(0, len(weights) - 2, 4 if layout.norm else 2):
        x = torch.nn.functional.linear(x, weights[i], weights[i + 1])
        if layout.norm:
            x = torch.nn.functional.layer_norm(x, x.shape[1:], weights[i + 2], weights[i + 3])
        x = act(x)
    x = torch.nn.functional.linear(x, weights[-2], weights[-1])
    if layout.dueling:
        x = x[:, :1] + x[:, 1:] - x[:, 1:].mean(1, keepdim=True)
    return x


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numpy_computes_what_torch_computes(layout):
    obs = np.random.default_rng(0).standard_normal((9, layout.n_inputs), np.float32)
    ours, theirs = NumpyMLP(layout), network(layout)
    ours.load(flat_of(theirs))
    with torch.no_grad():
        np.testing.assert_allclose(ours(obs), theirs(torch.from_numpy(obs)).numpy(), atol=1e-5)


def test_a_norm_has_a_gain_and_a_shift():
    layout = MLPLayout(4, (16, 8), 2, norm=True)
    ours, theirs = NumpyMLP(layout), network(layout)
    flat = flat_of(theirs) + np.random.default_rng(1).normal(0, 0.3, layout.n_weights).astype("f4")
    FlatParameters(list(theirs.parameters())).vector.copy_(torch.from_numpy(flat))
    ours.load(flat)
    obs = np.random.default_rng(0).standard_normal((9, 4), np.float32)
    with torch.no_grad():
        np.testing.assert_allclose(ours(obs), theirs(torch.from_numpy(obs)).numpy(), atol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_counts_the_networks_weights_in_its_order(layout):
    module = network(layout)
    assert [tuple(p.shape) for p in module.parameters()] == layout.shapes
    assert len(flat_of(module)) == layout.n_weights


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_are_those_of_the_textbook(layout):
    module = network(layout)
    copies = [p.detach().clone().requires_grad_() for p in module.parameters()]
    flat = FlatParameters(list(module.parameters()))
    obs = torch.randn(11, layout.n_inputs, generator=torch.Generator().manual_seed(1))
    module(obs).square().mean().backward()
    plain_forward(layout, copies, obs).square().mean().backward()
    expected = torch.cat([p.grad.reshape(-1) for p in copies])
    torch.testing.assert_close(flat.gradient, expected, atol=1e-6, rtol=1e-4)


def test_gradients_of_two_passes_add_up():
    layout = LAYOUTS[0]
    module = network(layout)
    flat = FlatParameters(list(module.parameters()))
    obs = torch.ones(2, layout.n_inputs)
    module(obs).sum().backward()
    once = flat.gradient.clone()
    module(obs).sum().backward()
    torch.testing.assert_close(flat.gradient, 2 * once)


def test_the_gradient_reaches_the_input_where_it_is_asked_for():
    layout = LAYOUTS[0]
    module = network(layout)
    copies = [p.detach().clone() for p in module.parameters()]
    obs, same = (torch.ones(2, layout.n_inputs, requires_grad=True) for _ in range(2))
    module(obs).sum().backward()
    plain_forward(layout, copies, same).sum().backward()
    torch.testing.assert_close(obs.grad, same.grad)


def test_observations_of_any_shape_and_dtype_are_flattened():
    layout = MLPLayout(12, (8,), 2)
    ours, theirs = NumpyMLP(layout), network(layout)
    ours.load(flat_of(theirs))
    pictures = np.random.default_rng(0).integers(0, 255, (5, 3, 4), np.uint8)
    with torch.no_grad():
        expected = theirs(torch.from_numpy(pictures)).numpy()
    np.testing.assert_allclose(ours(pictures), expected, rtol=1e-4, atol=1e-3)


def test_dueling_advantages_have_no_say_in_the_mean():
    layout = MLPLayout(2, (), 3, dueling=True)
    ours = NumpyMLP(layout)
    value, advantage = 5.0, [1.0, 2.0, 6.0]
    ours.load(np.array([0] * 8 + [value, *advantage], np.float32))
    np.testing.assert_allclose(ours(np.zeros((1, 2))), [[3.0, 4.0, 8.0]])


def test_loading_copies():
    layout, flat = LAYOUTS[0], np.ones(LAYOUTS[0].n_weights, np.float32)
    ours = NumpyMLP(layout)
    ours.load(flat)
    flat[...] = 0
    assert ours.flat.all()


def test_a_modules_parameters_become_views_of_one_vector():
    module = network(LAYOUTS[0])
    before = flat_of(module)
    flat = FlatParameters(list(module.parameters()))
    np.testing.assert_array_equal(flat.vector.numpy(), before)
    flat.vector.zero_()
    assert not any(p.any() for p in module.parameters())


@pytest.mark.parametrize(("length", "expected"), [(10.0, 0.5), (0.1, 0.1)])
def test_only_a_gradient_that_is_too_long_is_shortened(length, expected):
    parameter = torch.nn.Parameter(torch.zeros(4))
    flat = FlatParameters([parameter])
    flat.backward(length * parameter[1], 0.5)
    assert float(flat.gradient.norm()) == pytest.approx(expected, rel=1e-4)


def test_the_same_generator_seed_gives_the_same_weights():
    one, two, other = (flat_of(network(LAYOUTS[0], seed)) for seed in (1, 1, 2))
    assert (one == two).all()
    assert (one != other).any()


@pytest.mark.parametrize(
    ("ours", "theirs", "options"),
    [
        (Adam, torch.optim.Adam, {}),
        (RAdam, torch.optim.RAdam, {}),
        (RMSProp, torch.optim.RMSprop, {"alpha": 0.99}),
    ],
)
@pytest.mark.parametrize("on_device", [False, True])
def test_optimisers_step_as_torchs_own_do(ours, theirs, options, on_device):
    random = torch.Generator().manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(20, generator=random))
    copy = torch.nn.Parameter(parameter.detach().clone())
    flat = FlatParameters([parameter])
    one, two = ours(flat, 0.01, eps=1e-5), theirs([copy], 0.01, eps=1e-5, **options)
    if on_device:
        one._sound._array = None  # as on a GPU, where nobody looks at a gradient
    for _ in range(12):  # RAdam begins to adapt at the sixth
        flat.gradient.copy_(torch.randn(20, generator=random))
        copy.grad = flat.gradient.clone()
        one.step()
        two.step()
    torch.testing.assert_close(parameter.detach(), copy.detach())


def test_a_target_network_follows_a_share_of_the_way():
    one, two = (FlatParameters([torch.nn.Parameter(torch.full((3,), x))]) for x in (0.0, 1.0))
    one.follow(two, 0.25)
    assert one.vector.tolist() == [0.25] * 3
    one.follow(two)
    assert one.vector.tolist() == [1.0] * 3


@pytest.mark.parametrize("act", ["relu", "tanh"])
def test_autograd_sees_the_network_as_any_other(act):
    layout = MLPLayout(3, (8,), 2, act)
    module = network(layout)
    copies = [p.detach().clone().requires_grad_() for p in module.parameters()]
    obs = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    found = torch.autograd.grad(module(obs).square().sum(), list(module.parameters()))
    expected = torch.autograd.grad(plain_forward(layout, copies, obs).square().sum(), copies)
    torch.testing.assert_close(found, expected)
    assert all(p.grad is None for p in module.parameters())


def test_hooks_see_the_gradient_and_may_change_it():
    module = network(LAYOUTS[0])
    weight = next(iter(module.parameters()))
    weight.register_hook(lambda gradient: gradient * 0)
    module(torch.ones(2, 4)).sum().backward()
    assert not weight.grad.any()


def test_a_critics_gradient_goes_through_an_actor():
    actor, critic = MLPLayout(3, (8,), 2, "tanh"), MLPLayout(5, (8,), 1)
    modules = [network(actor, 0), network(critic, 1)]
    copies = [[p.detach().clone().requires_grad_() for p in m.parameters()] for m in modules]
    obs = torch.randn(4, 3, generator=torch.Generator().manual_seed(2))
    flat = FlatParameters(list(modules[0].parameters()))
    flat.backward(-modules[1](torch.cat([obs, modules[0](obs)], 1)).mean())
    action = plain_forward(actor, copies[0], obs)
    (-plain_forward(critic, copies[1], torch.cat([obs, action], 1)).mean()).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in copies[0]])
    torch.testing.assert_close(flat.gradient, expected)


@pytest.mark.parametrize("act", ["relu", "tanh"])
def test_the_gradient_of_a_gradient_is_the_textbooks(act):
    layout = MLPLayout(3, (8, 8), 1, act)
    module = network(layout)
    copies = [p.detach().clone().requires_grad_() for p in module.parameters()]
    random = torch.Generator().manual_seed(1)
    one = torch.randn(5, 3, generator=random).requires_grad_()
    two = one.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(module(one).sum(), one, create_graph=True)
    slope.square().sum().backward()
    (expected,) = torch.autograd.grad(
        plain_forward(layout, copies, two).sum(), two, create_graph=True
    )
    expected.square().sum().backward()
    for ours, theirs in zip(list(module.parameters())[:-1], copies[:-1], strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
