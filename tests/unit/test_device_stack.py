"""A policy that stacks where its network computes sees what one sees that stacks in numpy."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from film import film_spec
from hypothesis import given, settings
from hypothesis import strategies as st

from tianji.config.keys import ModelConfig
from tianji.core.algorithm import Task
from tianji.core.env import EnvSpec
from tianji.core.schema import Field
from tianji.models.acting_module import ModuleForward
from tianji.models.device import device_for
from tianji.models.device_stack import DeviceStack
from tianji.models.frame_stack import FrameStack
from tianji.models.layout import network_of
from tianji.models.normaliser import Normaliser
from tianji.models.policies import Acting, CategoricalPolicy

N = 3  # environments
PICTURES = EnvSpec((Field("obs", "uint8", (12, 12)),), Field("action", "int64"), (4,), N, stack=3)


def frames_of(random, shape=(12, 12)):
    return random.integers(0, 255, (N, *shape)).astype(np.uint8)


def fitted(env, random):
    """A normaliser that has seen something."""
    normaliser = Normaliser.of_inputs(env)
    normaliser.add(normaliser.sums(random.integers(0, 255, (9, *env.inputs[0].shape))))
    return normaliser


@settings(max_examples=40, deadline=None)
@given(
    stack=st.integers(2, 5),
    shape=st.sampled_from([(2, 2), (1, 2, 2), (3, 2, 2)]),
    seed=st.integers(0, 2**32),
)
def test_stacks_are_those_of_numpy(stack, shape, seed):
    random = np.random.default_rng(seed)
    spec = film_spec(stack, N, shape=shape)
    there, here = DeviceStack(spec, "cpu"), FrameStack(spec)
    for _ in range(9):
        frames, first = frames_of(random, shape), random.random(N) < 0.2
        assert (there.see(frames, first).numpy() == here.see(frames, first)).all()


def test_what_is_normalised_is_what_numpy_normalises():
    random = np.random.default_rng(1)
    there, here, normaliser = DeviceStack(PICTURES, "cpu"), FrameStack(PICTURES), None
    for t in range(9):
        if t % 3 == 2:  # statistics come with weights
            normaliser = fitted(PICTURES, random)
            there.normalise_with(normaliser)
        frames, first = frames_of(random), random.random(N) < 0.2
        expected = here.see(frames, first)
        if normaliser is not None:
            expected = normaliser(expected)
        assert (there.see(frames, first).numpy() == expected).all()


def acting(random, monkeypatch, in_numpy):
    task = Task(
        PICTURES, ModelConfig(type="CNN", convs=((4, 4, 2),), hidden=(8,)), SimpleNamespace()
    )
    network = network_of(task, 4)
    if in_numpy:
        monkeypatch.setattr("tianji.models.acting._stack_of", lambda env, _: FrameStack(env))
    made = Acting(task, network, normalise=True)
    weights = random.standard_normal(network.n_weights).astype(np.float32) * 0.1
    made.load(np.concatenate([weights, fitted(PICTURES, random).numbers]))
    return made


def test_a_network_decides_as_with_stacks_of_numpy(monkeypatch):
    one = acting(np.random.default_rng(3), monkeypatch, False)
    other = acting(np.random.default_rng(3), monkeypatch, True)
    assert isinstance(one._frames, DeviceStack)
    assert isinstance(other._frames, FrameStack)
    random = np.random.default_rng(4)
    for _ in range(6):
        obs, first = {"obs": frames_of(random)}, random.random(N) < 0.3
        assert (one(obs, first) == other(obs, first)).all()


@pytest.mark.parametrize("saved_by_numpy", [False, True])
def test_a_restored_policy_goes_on_after_the_same_frames(monkeypatch, saved_by_numpy):
    other = acting(np.random.default_rng(5), monkeypatch, False)
    one = acting(np.random.default_rng(3), monkeypatch, saved_by_numpy)
    random, no = np.random.default_rng(6), np.zeros(N, np.bool_)
    for _ in range(4):
        one({"obs": frames_of(random)}, no)
    other.restore(one.state())
    for _ in range(4):
        obs = {"obs": frames_of(random)}
        assert (one(obs, no) == other(obs, no)).all()


@pytest.mark.parametrize(
    ("device", "has_gpu", "found"),
    [("auto", True, "cuda"), ("auto", False, "cpu"), ("cpu", True, "cpu"), ("cuda", True, "cuda")],
)
def test_where_a_network_of_torch_acts(monkeypatch, device, has_gpu, found):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert device_for(device, "actor_cfg.device") == found
    wanted = []

    def cpu(*asked):
        wanted.append(asked)
        return "cpu"

    monkeypatch.setattr("tianji.models.acting_module.device_for", cpu)
    env = EnvSpec((Field("obs", "float32", (3,)),), Field("action", "int64"), (4,), N)
    task = Task(env, ModelConfig(), SimpleNamespace())
    ModuleForward(network_of(task, 4), device)
    assert wanted == [(device, "actor_cfg.device")]  # left to the machine where it is left open


def test_a_policy_of_vectors_stacks_nowhere():
    env = EnvSpec((Field("obs", "float32", (3,)),), Field("action", "int64"), (4,), N)
    task = Task(env, ModelConfig(), SimpleNamespace())
    assert isinstance(
        CategoricalPolicy(task, network_of(task, 4), 4, 0).outputs._frames, FrameStack
    )
