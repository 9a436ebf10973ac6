"""Networks of agents: numpy and torch compute the same, memories are kept and forgotten."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from agents_tasks import Field, agents_env, task_of

from tianji.core.errors import TianJiError
from tianji.models.gru import AgentsNetworks
from tianji.models.recurrent import (
    ActingAgents,
    RecurrentLayout,
    agents_layout,
    any_possible,
    best_possible,
)

TEAMS = {"one team": (0, 0, 0), "two teams": (0, 1, 0)}


def both(shared=True, teams=(0, 0, 0), n_envs=4, **model):
    """The same networks in numpy and in torch."""
    task = task_of(agents_env(3, n_envs=n_envs, teams=teams), **model)
    layout = agents_layout(task, "QMIX", 5, shared)
    networks = AgentsNetworks(layout, torch.Generator().manual_seed(0))
    acting = ActingAgents(layout, n_envs)
    acting.load(torch.cat([p.detach().reshape(-1) for p in networks.parameters()]).numpy())
    return acting, networks


@pytest.mark.parametrize("teams", TEAMS.values(), ids=TEAMS)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("model", [dict(), dict(type="MLP"), dict(act="tanh", hidden=(9, 6))])
def test_an_actor_computes_step_by_step_what_the_learner_does_at_once(teams, shared, model):
    acting, networks = both(shared, teams, **{"type": "GRU", "gru": 7, **model})
    random = np.random.default_rng(1)
    obs = random.standard_normal((4, 9, 3, 6)).astype("f4")
    first = random.random((4, 9)) < 0.2
    for t in range(3):  # so that something is remembered
        acting(obs[:, t], np.zeros(4, bool))
    steps = [acting(obs[:, t], first[:, t]) for t in range(9)]
    memory = torch.from_numpy(steps[0][1])
    with torch.no_grad():
        outputs = networks(torch.from_numpy(obs), memory, torch.from_numpy(first))
    stepwise = np.stack([out for out, _ in steps], 1)
    np.testing.assert_allclose(outputs.numpy(), stepwise, atol=2e-6)


def test_bytes_are_read_from_0_to_1():
    acting, networks = both(type="MLP")
    obs = np.random.default_rng(1).integers(256, size=(4, 1, 3, 6), dtype=np.uint8)
    none = np.zeros(4, bool)
    want, _ = acting((obs[:, 0] / 255).astype("f4"), none)
    with torch.no_grad():
        outputs = networks(torch.from_numpy(obs))[:, 0]
    for got in (acting(obs[:, 0], none)[0], outputs.numpy()):
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_a_memory_is_what_was_there_before_and_nothing_where_an_episode_begins():
    acting, _ = both(type="GRU", gru=7)
    obs = np.ones((4, 3, 6), "f4")
    _, before = acting(obs, np.ones(4, bool))
    assert (before == 0).all()
    _, before = acting(obs, np.array([False, True, False, False]))
    assert (before[1] == 0).all() and (before[[0, 2, 3]] != 0).any((1, 2)).all()
    kept = before.copy()
    acting(obs, np.zeros(4, bool))
    assert (before == kept).all()


def test_the_unrolled_gru_is_torch_s_cell_and_so_is_its_gradient():
    layout = RecurrentLayout(4, 0, (), 5, 2)
    network = layout.module(torch.Generator().manual_seed(3)).double()
    cell = torch.nn.GRUCell(4, 5).double()
    last = torch.nn.Linear(5, 2).double()
    ours, theirs = [*network.parameters()], [*cell.parameters(), *last.parameters()]
    for one, other in zip(theirs, ours, strict=True):
        one.data = other.data.clone()
    inputs = torch.randn(6, 3, 4, dtype=torch.double, requires_grad=True)
    first = torch.rand(6, 3, generator=torch.Generator().manual_seed(0)) < 0.3
    start = torch.randn(3, 5, dtype=torch.double)
    outputs, h = [], start
    for t in range(6):
        h = cell(inputs[t], h * ~first[t, :, None])
        outputs.append(last(h))
    wanted = torch.stack(outputs)
    found = network(inputs, start, (~first).double())
    torch.testing.assert_close(found, wanted)
    weight = torch.randn_like(wanted)
    expected = torch.autograd.grad((wanted * weight).sum(), [inputs, *theirs])
    got = torch.autograd.grad((found * weight).sum(), [inputs, *ours])
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_agents_that_share_weights_are_told_apart():
    acting, _ = both(type="MLP")
    out, _ = acting(np.ones((4, 3, 6), "f4"), np.ones(4, bool))
    assert (out[:, 0] != out[:, 1]).any() and (out[:, 1] != out[:, 2]).any()
    assert (out[0] == out[1]).all()


def test_agents_that_share_nothing_have_as_many_weights_more():
    alike, apart = both(True)[0].layout, both(False)[0].layout
    assert len(alike.groups) == 1 and len(apart.groups) == 3
    assert apart.n_weights == 3 * apart.network.n_weights
    assert (alike.network.n_ids, apart.network.n_ids) == (3, 0)


def test_first_weights_are_orthogonal_where_a_gain_is_given():
    layout = RecurrentLayout(6, 0, (8,), 8, 4)
    made = layout.module(torch.Generator().manual_seed(0), 0.01).weights
    weights = [weight.detach().numpy() for weight in made]
    np.testing.assert_allclose(weights[0].T @ weights[0], 2 * np.eye(6), atol=1e-5)
    for gate in np.split(weights[3], 3):
        np.testing.assert_allclose(gate @ gate.T, np.eye(8), atol=1e-5)
    np.testing.assert_allclose(weights[-2] @ weights[-2].T, 1e-4 * np.eye(4), atol=1e-8)
    assert all((weight == 0).all() for weight in weights if weight.ndim == 1)


def test_only_possible_options_are_chosen():
    random = np.random.default_rng(0)
    mask = random.random((5_000, 3, 6)) < 0.3
    mask[..., 4] |= ~mask.any(-1)
    for chosen in (any_possible(random, mask), best_possible(random.random(mask.shape), mask)):
        assert np.take_along_axis(mask, chosen[..., None], -1).all()
    three = np.broadcast_to(np.array([False, True, True, False, True]), (30_000, 5))
    share = np.bincount(any_possible(random, three), minlength=5) / 30_000
    assert share == pytest.approx([0, 1 / 3, 1 / 3, 0, 1 / 3], abs=0.02)


def test_environments_without_agents_are_refused():
    task = task_of(agents_env(3))
    env = task.env.__class__((Field("obs", "float32", (3,)),), Field("action", "int64"), (2,))
    with pytest.raises(TianJiError, match=r"^QMIX is for several agents"):
        agents_layout(task.__class__(env, task.model, None), "QMIX", 2, True)


WITHOUT_TORCH = """
import sys
import numpy as np
from tianji.models.recurrent import ActingAgents
assert "torch._C" not in sys.modules, "torch was loaded"
"""


def test_acting_needs_no_torch(root, child_env):
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], cwd=root, env=child_env, check=True)
