"""Every frame is kept once, and every stack is one that a policy saw."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from film import Recorder, check_stack, film_spec
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tianji.core.env import EnvSpec
from tianji.core.errors import TianJiError
from tianji.core.frames import BEFORE, STACKED, places_of, stacked_shape
from tianji.core.schema import Field
from tianji.core.store import feedback_schema, stack_of, trajectory_schema
from tianji.models.frame_stack import FrameStack, RolloutPlaces
from tianji.models.inputs import RolloutInputs
from tianji.models.staging import Stage
from tianji.stores.prioritised import Prioritised
from tianji.stores.replay import Replay
from tianji.stores.rollouts import Rollouts

GAMMA = 0.5
SHAPES = [(2, 2), (1, 2, 2), (3, 2, 2)]


def test_a_stack_is_filled_with_an_episodes_first_frame_and_then_moves_on():
    stack = FrameStack(film_spec(3, 2))
    frames = [np.full((2, 2, 2), t, np.int32) for t in range(5)]
    first = np.zeros((5, 2), bool)
    first[0], first[3, 1] = True, True
    seen = [stack.see(frames[t], first[t])[:, :, 0, 0].tolist() for t in range(5)]
    assert [each[0] for each in seen] == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert [each[1] for each in seen] == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [3, 3, 3], [3, 3, 4]]


def test_without_a_stack_frames_pass_through():
    frames = np.ones((2, 2, 2), np.int32)
    assert FrameStack(film_spec(1, 2)).see(frames, np.ones(2, bool)) is frames


def test_a_restored_stack_goes_on_after_the_same_frames():
    spec = film_spec(4, 1)
    one, other = FrameStack(spec), FrameStack(spec)
    no = np.zeros(1, bool)
    for t in range(3):
        one.see(np.full((1, 2, 2), t, np.int32), no)
    other.restore(one.state())
    for t in range(3, 6):
        frames = np.full((1, 2, 2), t, np.int32)
        assert (one.see(frames, no) == other.see(frames, no)).all()


@pytest.mark.parametrize(
    ("shape", "seen"), [((5,), (4, 5)), ((84, 84), (4, 84, 84)), ((3, 8, 9), (12, 8, 9))]
)
def test_what_a_network_reads_has_the_shape_of_a_stack(shape, seen):
    spec = EnvSpec((Field("obs", "uint8", shape),), Field("action", "int64"), (2,), stack=4)
    assert spec.input_shape == seen == stacked_shape(4, shape)
    assert spec.n_inputs == np.prod(seen)
    assert EnvSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("names", [("obs.a", "obs.b"), ("obs.a",)])
def test_only_one_array_can_be_stacked(names):
    fields = tuple(Field(name, "uint8", (2, 2)) for name in names)
    with pytest.raises(TianJiError, match=r"EnvSpec\.stack"):
        EnvSpec(fields, Field("action", "int64"), (2,), stack=2)


def test_trajectories_without_stacks_hold_nothing_more():
    plain, stacked = (trajectory_schema(film_spec(k, 2), (), 5) for k in (1, 4))
    more = {f.name: f.shape for f in stacked.fields if f not in plain.fields}
    assert more == {"first": (6, 2), "before": (3, 2, 2, 2)}
    assert (stack_of(plain), stack_of(stacked)) == (1, 4)


def test_places_lead_no_further_back_than_an_episodes_beginning():
    first = np.array([0, 0, 1, 0, 0, 0], bool)[:, None]
    rows = (places_of(first, 4)[:, 0] - 3).tolist()
    assert rows[:3] == [[-3, -2, -1, 0], [-2, -1, 0, 1], [2, 2, 2, 2]]
    assert rows[3:] == [[2, 2, 2, 3], [2, 2, 3, 4], [2, 3, 4, 5]]


def rollout_stacks(batch, places):
    """Stacks [n, k, H, W] in numpy: what `stacks` must give on any device."""
    frames = np.concatenate((batch[BEFORE], batch[STACKED]), 1)
    frames = frames.reshape(-1, *frames.shape[3:])
    if (final := batch.get(f"final_{STACKED}")) is not None:
        frames = np.concatenate((frames, final.reshape(-1, *final.shape[3:])))
    n, k = places.shape
    return frames[places].reshape(n, *stacked_shape(k, frames.shape[1:]))


@settings(max_examples=80, deadline=None)
@given(
    stack=st.integers(2, 5),
    n_envs=st.integers(1, 3),
    length=st.integers(1, 7),
    same_step=st.booleans(),
    shape=st.sampled_from(SHAPES),
    restarts=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 2**32),
)
def test_stacks_of_rollouts_are_what_the_policy_saw(
    stack, n_envs, length, same_step, shape, restarts, seed
):
    random = np.random.default_rng(seed)
    spec = film_spec(stack, n_envs, same_step, shape)
    frames = FrameStack(spec)
    actor = Recorder(
        spec, length, random=random, see=lambda obs, first: frames.see(obs, first).copy()
    )
    n = 3
    store = Rollouts(n, n, length * n_envs).build(actor.schema, 1, 0, 0)
    batch = Rollouts(n, n, length * n_envs).batch_schema(actor.schema).empty()
    seen, last = [], []
    for _ in range(n):
        if random.random() < restarts:
            actor.restart()
        rows, shown = actor.record(length)
        store.add(0, rows, 0)
        seen.append(shown)
        last.append(rows["obs"][length])
    store.draw(batch)
    places = RolloutPlaces(batch)
    picked = random.permutation(n * length * n_envs)
    found = rollout_stacks(batch, places.rows(picked))
    expected = np.array(seen).reshape(-1, *spec.input_shape)[picked]
    assert (found == expected).all()
    on_device = RolloutInputs(spec, batch, Stage("cpu"), None)
    assert (on_device(torch.from_numpy(picked)).numpy() == expected).all()
    every = rollout_stacks(batch, places.all()).reshape(n, length + 1, n_envs, *spec.input_shape)
    assert (every[:, :-1] == np.array(seen)).all()
    for i, t, e in np.ndindex(every.shape[:3]):
        check_stack(every[i, t, e], shape)
    if same_step:
        finals = rollout_stacks(batch, places.finals()).reshape(
            n, length, n_envs, *spec.input_shape
        )
        for i, t, e in np.ndindex(finals.shape[:3]):
            if batch["valid"][i, t, e]:
                before, after = (
                    check_stack(every[i, t, e], shape),
                    check_stack(finals[i, t, e], shape),
                )
                assert after == (*before[:3], before[3] + 1)


def test_a_trajectory_given_up_leaves_the_frames_that_were_seen():
    spec = film_spec(4, 2)
    actor = Recorder(spec, 6)
    actor.film.ending = 0
    actor.record(6)
    actor.writer.begin(actor.obs, actor.first, 0)
    for _ in range(2):
        step = actor.film.step()
        actor.obs = actor.writer.add({"action": np.zeros(2, int)}, step)
        actor.first = step.first
    state, obs = actor.writer.state(), {"obs": actor.obs["obs"].copy()}
    other = Recorder(spec, 6)  # resumed, while what was in flight is lost
    other.writer.restore(state)
    other.writer.give_up()
    other.obs, other.first, other.film = obs, actor.first, actor.film
    rows, _ = other.record(3)
    assert rows["before"][:, 0, 1, 1].tolist() == [5, 6, 7]
    assert rows["obs"][0, 0, 1, 1] == 8


class Watched:
    """Several actors, a store, and what may be drawn from it."""

    def __init__(self, sampling, spec, length, n_sources, random):
        self.spec, self.random, self.sampling = spec, random, sampling
        self.actors = [Recorder(spec, length, i, random) for i in range(n_sources)]
        self.length, schema = length, self.actors[0].schema
        self.store = sampling.build(schema, n_sources, 0, int(random.integers(2**31)))
        self.batch = sampling.batch_schema(schema).empty()

    def record(self, source, lost=False, restart=False):
        actor = self.actors[source]
        if restart:
            actor.restart()
        rows, _ = actor.record(int(self.random.integers(1, self.length + 1)))
        if not lost:
            self.store.add(source, rows, 0)

    def draw(self):
        """Draws and checks a batch; returns what the newest frames tell."""
        self.store.draw(self.batch)
        shape, found = self.spec.inputs[0].shape, []
        for i in range(self.sampling.batch):
            who = check_stack(self.batch["obs"][i], shape)
            after = check_stack(self.batch["next_obs"][i], shape)
            if discount := self.batch["discount"][i]:
                steps = round(np.log(discount) / np.log(GAMMA))
                assert 1 <= steps <= self.sampling.n_step
                assert after == (*who[:3], who[3] + steps)
                reward = sum(GAMMA**j for j in range(steps))
                assert self.batch["reward"][i] == pytest.approx(reward)
            found.append(who)
        return found


def sampling_of(prioritised, *facts):
    return Prioritised(*facts) if prioritised else Replay(*facts)


@settings(max_examples=150, deadline=None)
@given(
    prioritised=st.booleans(),
    stack=st.integers(2, 5),
    n_envs=st.integers(1, 3),
    n_sources=st.integers(1, 3),
    length=st.integers(1, 7),
    capacity=st.integers(1, 60),
    n_step=st.integers(1, 4),
    same_step=st.booleans(),
    shape=st.sampled_from(SHAPES),
    trouble=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 2**32),
)
def test_every_drawn_stack_is_a_true_stack(
    prioritised,
    stack,
    n_envs,
    n_sources,
    length,
    capacity,
    n_step,
    same_step,
    shape,
    trouble,
    seed,
):
    random = np.random.default_rng(seed)
    sampling = sampling_of(prioritised, 16, capacity, 0, GAMMA, n_step)
    spec = film_spec(stack, n_envs, same_step, shape)
    watched = Watched(sampling, spec, length, n_sources, random)
    silent = int(random.integers(n_sources + 1))  # its ring goes to another actor some day
    for round_ in range(30):
        source = int(random.integers(n_sources))
        if round_ > 8 and source == silent and n_sources > 1:
            source = (source + 1) % n_sources
        lost, restart = random.random(2) < trouble
        watched.record(source, lost, restart)
        if random.random() < trouble / 5:
            watched.store.clear()
        assert watched.store.size() == watched.store._rows["valid"].sum()
        if watched.store.ready():
            watched.draw()


@settings(max_examples=60, deadline=None)
@given(
    prioritised=st.booleans(),
    stack=st.integers(2, 5),
    n_envs=st.integers(1, 3),
    length=st.integers(1, 7),
    capacity=st.integers(1, 40),
    seed=st.integers(0, 2**32),
)
def test_all_of_the_capacity_can_be_drawn(prioritised, stack, n_envs, length, capacity, seed):
    """The frames that only older stacks need take no sample's place."""
    sampling = sampling_of(prioritised, 64, capacity, 0, GAMMA)
    watched = Watched(sampling, film_spec(stack, n_envs), length, 1, np.random.default_rng(seed))
    steps = []  # whether each was valid, and what it began with
    kept = sampling.steps_per_source(watched.actors[0].schema, 1)
    for _ in range(20):
        rows, _ = watched.actors[0].record(length)
        watched.store.add(0, rows, 0)
        for t in range(length):
            valid = rows["valid"][t]
            steps.append({tuple(rows["obs"][t, e].ravel().tolist()) for e in np.flatnonzero(valid)})
    expected = set().union(*steps[-kept:])
    assert watched.store.size() == len(expected)
    found = set()
    for _ in range(40):
        found |= set(watched.draw()) if expected else set()
    assert found == expected


def test_a_step_whose_frames_are_lost_is_not_drawn_and_those_after_it_are():
    spec = film_spec(4, 1)
    watched = Watched(Replay(64, 100, 0, GAMMA), spec, 5, 1, np.random.default_rng(0))
    actor = watched.actors[0]
    actor.film.ending = 0
    for lost in (False, True, False):
        rows, _ = actor.record(5)
        if not lost:
            watched.store.add(0, rows, 0)
    times = {who[3] for _ in range(20) for who in watched.draw()}
    assert times == {0, 1, 2, 3, 13, 14}  # 4 has no successor, 10 to 12 lack frames


def test_a_screen_that_stands_still_does_not_hide_a_gap():
    """The newest frame looks like the next trajectory's first; the frames before it do not."""
    spec = film_spec(3, 1)
    schema = trajectory_schema(spec, (), 3)
    store = Replay(8, 50, 0).build(schema, 1, 0, 0)
    for before, shown in (((0, 0), (0, 1, 2, 3)), ((3, 3), (3, 4, 5, 6))):
        rows = schema.empty()
        rows["length"][...], rows["valid"][...] = 3, True
        rows["before"][:] = np.reshape(before, (2, 1, 1, 1))
        rows["obs"][:] = np.reshape(shown, (4, 1, 1, 1))
        rows["first"][0] = before == (0, 0)
        store.add(0, rows, 0)
    assert store.size() == 2 + 1  # 2 -> 3 did not happen, and 3 and 4 lack frames


def test_a_restored_store_draws_the_same_stacks():
    for prioritised in (False, True):
        made = []
        for _ in range(2):
            sampling = sampling_of(prioritised, 16, 60, 0, GAMMA, 3)
            random = np.random.default_rng(3)
            made.append(Watched(sampling, film_spec(4, 2), 5, 2, random))
        one, other = made
        for source in (0, 1, 0, 0):
            one.record(source)
        other.store.restore(one.store.state())
        other.actors = one.actors
        rows, _ = one.actors[1].record(5)
        for each in made:
            each.store.add(1, rows, 0)
            each.draw()
        names = one.batch.keys() - {"generation"}  # begins anew: nothing is in flight
        assert all((one.batch[name] == other.batch[name]).all() for name in names)


def test_stacks_are_drawn_as_often_as_their_priorities_say():
    sampling = Prioritised(32, 48, 0, GAMMA, 2, alpha=0.5)
    watched = Watched(sampling, film_spec(4, 2), 6, 1, np.random.default_rng(1))
    for _ in range(20):
        watched.record(0)
    feedback = feedback_schema(32).empty()
    for _ in range(80):
        found = watched.draw()
        feedback["priority"][...] = [1 + who[3] for who in found]
        for name in ("row", "generation"):
            feedback[name][...] = watched.batch[name]
        assert watched.store.reweigh(feedback) == 0
    counts = Counter(who for _ in range(600) for who in watched.draw())
    assert len(counts) == watched.store.size()
    expected = np.sqrt([1.0 + who[3] for who in counts])
    found = np.array(list(counts.values()))
    assert stats.chisquare(found, expected / expected.sum() * found.sum()).pvalue > 0.001


def test_a_priority_of_which_only_the_frame_is_left_comes_too_late():
    """Its frame is still part of newer stacks; the sample itself is not kept any more."""
    sampling = Prioritised(32, 6, 0, GAMMA)
    watched = Watched(sampling, film_spec(4, 1), 1, 1, np.random.default_rng(1))
    actor = watched.actors[0]
    actor.film.ending = 0
    for _ in range(6):
        watched.record(0)
    watched.draw()
    feedback = {name: watched.batch[name].copy() for name in ("row", "generation")}
    feedback["priority"] = np.full(32, 50.0, np.float32)
    oldest = np.count_nonzero(watched.batch["obs"][:, -1, 1, 1] == 0)
    watched.record(0)
    assert watched.store.reweigh(feedback) == oldest > 0
    assert {who[3] for _ in range(20) for who in watched.draw()} == {1, 2, 3, 4, 5, 6}


def test_memory_is_committed_only_as_frames_come():
    schema = trajectory_schema(film_spec(4, 2, shape=(84, 84)), (), 16)
    before = resident()
    store = Prioritised(32, 200_000, 0).build(schema, 2, 0, 0)
    rows = schema.empty()
    rows["length"][...], rows["valid"][...], rows["first"][0] = 16, True, True
    store.add(0, rows, 0)
    store.clear()
    assert resident() - before < 100 << 20  # of 5.6 GB


def resident():
    """Bytes of this process that lie in memory."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_million_atari_transitions_take_less_than_eight_gigabytes():
    obs = Field("obs", "uint8", (84, 84))
    spec = EnvSpec((obs,), Field("action", "int64"), (6,), 16, stack=4)
    schema = trajectory_schema(spec, (), 16)
    for kind in (Replay, Prioritised):
        assert kind(32, 1_000_000, 0).n_bytes(schema, 4, 0) < 7.2e9 < 8e9


@pytest.mark.parametrize("kind", [Replay, Prioritised])
def test_the_bytes_that_are_foretold_are_the_bytes_that_are_taken(kind):
    schema = trajectory_schema(film_spec(4, 3), (), 5)
    sampling = kind(4, 64, 1)
    store = sampling.build(schema, 2, 0, 0)
    arrays = [*store._by_time.values()]
    if kind is Prioritised:
        arrays += [store._generation, store._tree._nodes]
    assert sum(array.nbytes for array in arrays) == sampling.n_bytes(schema, 2, 0)
