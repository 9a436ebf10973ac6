"""Environments whose frames tell who showed them: source, environment, episode and time."""

import numpy as np
from fields import spec_of

from tianji.core.env import Step
from tianji.core.schema import Field
from tianji.core.store import trajectory_schema
from tianji.roles.trajectory import TrajectoryWriter


def film_spec(stack, n_envs, same_step=False, shape=(2, 2)):
    """Frames of `shape`, whose last two axes are [[source, env], [episode, time]]."""
    action = Field("action", "int64")
    frame = Field("obs", "int32", shape)
    return spec_of(frame, action, 2, n_envs=n_envs, same_step=same_step, stack=stack)


class Film:
    """E environments; an episode ends by chance, is cut off, or goes on as another life."""

    def __init__(self, spec, source, random, ending=0.15):
        self.spec, self.source, self.random, self.ending = spec, source, random, ending
        self.episode = np.arange(spec.n_envs) * 0
        self.time = np.zeros(spec.n_envs, int)
        self.over = np.zeros(spec.n_envs, bool)

    def frames(self):
        shape = self.spec.inputs[0].shape
        shown = np.empty((self.spec.n_envs, *shape), np.int32)
        shown[..., 0, 0], shown[..., 1, 0] = self.source, self.each(self.episode)
        shown[..., 0, 1], shown[..., 1, 1] = (
            self.each(np.arange(len(shown))),
            self.each(self.time),
        )
        return shown

    def each(self, values):
        return np.asarray(values).reshape(-1, *(1,) * (len(self.spec.inputs[0].shape) - 2))

    def reset(self):
        self.episode, self.time = self.episode + 1, self.time * 0
        self.over[:] = False
        return {"obs": self.frames()}

    def begin(self, where):
        self.episode[where] += 1
        self.time[where] = 0

    def step(self, action=None):
        n = self.spec.n_envs
        valid, draw = ~self.over, self.random.random(n)
        self.time[valid] += 1
        self.begin(~valid)
        first = ~valid
        ends = valid & (draw < self.ending)
        truncated = ends & (draw < self.ending / 3)
        terminated = ends & ~truncated
        final = {"obs": self.frames()} if self.spec.same_step else None
        if self.spec.same_step:
            self.begin(ends)
            first = ends
        else:
            life = terminated & (draw > self.ending * 2 / 3)  # the game goes on
            self.begin(life)
            first = first | life
            self.over = ends & ~life
        reward = np.ones(n, np.float32)
        return Step({"obs": self.frames()}, reward, terminated, truncated, valid, first, final)


class Sent:
    """An outbox that keeps what is committed, in memory that is used again at once."""

    def __init__(self, schema):
        self.rows, self.messages, self.refused = schema.empty(), [], 0

    def slot(self):
        return self.rows

    def commit(self, version):
        self.messages.append({name: array.copy() for name, array in self.rows.items()})
        for array in self.rows.values():
            array[...] = True if array.dtype == bool else 99  # what nobody may rely on


class Recorder:
    """An actor that writes a film down, and what a policy was shown meanwhile."""

    def __init__(self, spec, length, source=0, random=None, see=None):
        self.film = Film(spec, source, random or np.random.default_rng(source))
        self.schema = trajectory_schema(spec, (), length)
        self.sent = Sent(self.schema)
        self.writer = TrajectoryWriter(self.sent)
        self.see = see or (lambda frames, first: None)
        self.restart()

    def restart(self):
        self.obs = self.film.reset()
        self.first = np.ones(self.film.spec.n_envs, bool)

    def record(self, length, version=0):
        """A trajectory of `length` steps, and the stacks seen before each."""
        self.writer.begin(self.obs, self.first, version)
        seen = []
        for _ in range(length):
            seen.append(self.see(self.obs["obs"], self.first))
            step = self.film.step()
            decision = {"action": np.zeros(self.film.spec.n_envs, int)}
            self.obs, self.first = self.writer.add(decision, step), step.first.copy()
        self.obs = {name: array.copy() for name, array in self.obs.items()}
        self.writer.send()
        return self.sent.messages.pop(), seen


def check_stack(stack, shape):
    """That frames [k, ...] follow each other in one episode; returns what the newest one tells."""
    frames = stack.reshape(-1, *shape)
    flat = frames.reshape(len(frames), -1, 4)
    assert (flat == flat[:, :1]).all()
    who = flat[:, 0]
    assert (who[:, :3] == who[-1, :3]).all(), f"several episodes in one stack: {who}"
    expected = np.maximum(who[-1, 3] - np.arange(len(who))[::-1], 0)
    assert (who[:, 3] == expected).all(), f"no true stack: {who}"
    return tuple(who[-1].tolist())
