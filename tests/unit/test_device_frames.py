"""A replay whose frames lie on a device draws what one in the CPU's memory draws."""

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import TASKS
from film import Recorder, film_spec
from hypothesis import given, settings
from hypothesis import strategies as st

from tianji.config import load
from tianji.core.errors import TianJiError
from tianji.core.frames import TICKET
from tianji.core.state import state_of
from tianji.job.validate import check_device, on_device
from tianji.job.wiring import n_device_bytes_of
from tianji.models import device_frames
from tianji.models.device_frames import BATCHES, observed
from tianji.runs import start
from tianji.stores.prioritised import Prioritised
from tianji.stores.replay import Replay
from tianji.stores.rollouts import Rollouts

CUDA = "buffer_cfg.device='cuda'"


def both(sampling, schema, n_sources):
    """The same store in the CPU's memory and, as on a GPU, in torch's."""
    made = []
    for kind in (sampling, dataclasses.replace(sampling, device="cpu")):
        batch = kind.batch_schema(schema).empty()
        made.append((kind.build(schema, n_sources, 0, 7), batch))
    return made


@settings(max_examples=40, deadline=None)
@given(
    prioritised=st.booleans(),
    stack=st.integers(1, 4),
    shape=st.sampled_from([(2, 2), (3, 2, 2)]),
    n_envs=st.integers(1, 3),
    n_step=st.integers(1, 3),
    capacity=st.integers(10, 60),
    restarts=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 2**32),
)
def test_both_draw_the_same_stacks(
    prioritised, stack, shape, n_envs, n_step, capacity, restarts, seed
):
    random = np.random.default_rng(seed)
    spec = film_spec(stack, n_envs, shape=shape)
    sampling = (Prioritised if prioritised else Replay)(8, capacity, 0, 0.9, n_step)
    actors = [Recorder(spec, 5, i, random) for i in range(2)]
    (here, batch), (there, tickets) = both(sampling, actors[0].schema, 2)
    for _ in range(20):
        source = int(random.integers(2))
        if random.random() < restarts:
            actors[source].restart()
        rows, _ = actors[source].record(5)
        for store in (here, there):
            store.add(source, rows, 0)
        if here.ready():
            here.draw(batch)
            there.draw(tickets)
            pairs = zip(observed(batch, spec, "cpu"), observed(tickets, spec, "cpu"), strict=True)
            assert all((one == other).all() and one.shape == other.shape for one, other in pairs)
            shared = batch.keys() & tickets.keys()
            assert all((batch[name] == tickets[name]).all() for name in shared)
    assert batch.keys() - tickets.keys() == {"obs", "next_obs"}
    assert tickets.keys() - batch.keys() == {TICKET}


def filled(capacity=40):
    actor = Recorder(film_spec(3, 2), 5)
    (_, _), (store, batch) = both(Replay(4, capacity, 0), actor.schema, 1)
    rows, _ = actor.record(5)
    store.add(0, rows, 0)
    return store, batch, actor


def test_a_batch_stays_as_it_was_drawn_while_others_wait_and_frames_are_overwritten():
    store, batch, actor = filled(capacity=8)
    store.draw(batch)
    seen = [each.clone() for each in observed(batch, actor.film.spec, "cpu")]
    later = {name: array.copy() for name, array in batch.items()}
    for _ in range(BATCHES - 1):
        store.add(0, actor.record(5)[0], 0)
        store.draw(later)
    now = observed(batch, actor.film.spec, "cpu")
    assert all((one == other).all() for one, other in zip(seen, now, strict=True))


def test_frames_on_a_device_are_in_no_checkpoint_and_take_no_memory_of_the_cpu():
    store, _, actor = filled()
    assert state_of(store) is None
    sampling = Replay(4, 1000, 0)
    less = dataclasses.replace(sampling, device="cpu")
    n = sampling.n_rows(actor.schema, 1)
    frames = sampling.n_bytes(actor.schema, 1, 0) - less.n_bytes(actor.schema, 1, 0)
    assert frames == n * 2 * 2 * 4


@pytest.mark.parametrize("capacity", [40, 1000])
def test_what_it_takes_of_a_device_is_known_before(capacity):
    actor = Recorder(film_spec(3, 2), 5)
    on_cpu = Replay(4, capacity, 0)
    sampling = dataclasses.replace(on_cpu, device="cpu")
    held = sampling.build(actor.schema, 1, 0, 0)._rings.frames
    tensors = [value for value in vars(held).values() if isinstance(value, torch.Tensor)]
    assert sum(t.nbytes for t in tensors) == sampling.n_device_bytes(actor.schema, 1) > 0
    assert on_cpu.n_device_bytes(actor.schema, 1) == 0


@pytest.fixture
def on_gpu(monkeypatch):
    """A run that keeps frames of 2 x 2 bytes there, where `free` bytes are; what it notes."""

    def try_out(free, capacity=1000):
        job = SimpleNamespace(
            sampling=Replay(4, capacity, 0, device="cuda"),
            trajectory=Recorder(film_spec(3, 2), 5).schema,
            task=SimpleNamespace(n_actors=1),
            config=SimpleNamespace(n_groups=1),
        )
        said = []
        monkeypatch.setattr("tianji.job.preflight.try_out", lambda _: job)
        monkeypatch.setattr("tianji.job.wiring.n_bytes_of", lambda _: {"channels": 1, "store": 1})
        monkeypatch.setattr(start.resources, "free_gpu_bytes", lambda: free)
        monkeypatch.setattr(start, "_note", said.append)
        start._try_out(load(TASKS / "walk_dqn.py", []))
        return [each for each in said if each], n_device_bytes_of(job)[0]

    return try_out


def test_a_replay_larger_than_the_gpu_is_refused_with_what_fits(on_gpu):
    notes, needed = on_gpu(1 << 20)
    assert needed < 1 << 20 and not notes
    for free in (needed - 1, needed // 2):
        with pytest.raises(TianJiError, match=r"buffer_cfg\.device='cuda'.*GPU") as error:
            on_gpu(free)
        fits = int(re.search(r"hyp\.buffer_size=(\d+)", str(error.value))[1])
        assert fits < 1000 and on_gpu(free, fits)
    assert on_gpu(needed) and on_gpu(None)


def test_a_large_one_is_told(on_gpu, monkeypatch):
    monkeypatch.setattr(start.notices, "LARGE", 1000)
    (note,), _ = on_gpu(1 << 31)
    assert "1,000 samples" in note and "GPU" in note and "2.00 GiB" in note


def test_a_store_that_is_gone_leaves_nothing_behind():
    before = len(device_frames._held)
    store, _, _ = filled()
    assert len(device_frames._held) == before + 1
    del store
    assert len(device_frames._held) == before


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("learner_cfg.device=cuda", "buffer_cfg.cores=1"), "process of its own"),
        (("learner_cfg.device=cuda", "learner_cfg.num=2"), "num=1"),
        ((), "learner_cfg.device is 'cpu'"),
    ],
)
def test_a_buffer_on_a_gpu_rides_with_one_learner_that_is_there_too(overrides, words):
    with pytest.raises(TianJiError, match=words):
        check_device(load(TASKS / "walk_dqn.py", [CUDA, *overrides]))


@pytest.mark.parametrize("engine", ["local", "process"])
def test_without_a_gpu_it_is_refused_before_there_is_a_folder(tmp_path, monkeypatch, engine):
    monkeypatch.setattr(start.resources, "gpu_of", lambda device: None)
    config = load(TASKS / "walk_dqn.py", [CUDA, "learner_cfg.device=cuda"])
    with pytest.raises(TianJiError, match=r"_cfg\.device='cuda': torch sees no GPU"):
        start.refuse(config, engine)


def test_only_a_replay_of_one_array_can_lie_there():
    spec, replay = film_spec(3, 2), Replay(4, 40, 0)
    assert on_device(replay, spec, "cuda").device == "cuda"
    assert on_device(replay, spec, "cpu") is replay
    with pytest.raises(TianJiError, match="only a replay"):
        on_device(Rollouts(1, 1, 5), spec, "cuda")
    with pytest.raises(TianJiError, match="reset within the step"):
        on_device(replay, film_spec(3, 2, same_step=True), "cuda")
