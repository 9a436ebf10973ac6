"""A store of one's own, with names of the front door: each rollout is learned from twice."""

from dataclasses import dataclass

from tianji import PPO, Amount, Field, Schema


@dataclass(frozen=True)
class Twice:
    """One rollout makes a batch; the newest one, then the one before."""

    steps: int
    batch: int = 1
    unit: str = "rollouts"
    once: bool = False
    room: int | None = None
    placeable: bool = False
    reweighs: bool = False
    serial_ratio: float = 2.0
    per_version: int | None = None
    max_lag: int | None = None
    freshness: float = 0.5

    @property
    def batch_units(self):
        return self.steps

    @property
    def warmup(self):
        return 2 * self.steps

    def batch_schema(self, trajectory):
        about = (Field("version", "int64"), Field("age", "int64"), Field("new", "bool"))
        return Schema((*trajectory.fields, *about)).stacked(1)

    def build(self, trajectory, n_sources, slack, seed):
        return TwiceStore(trajectory, self.steps)

    def n_bytes(self, trajectory, n_sources, slack):
        return 2 * trajectory.n_bytes


class TwiceStore:
    __slots__ = ("kept", "n", "n_drawn", "steps", "versions")  # nobody may hang others on it

    def __init__(self, trajectory, steps):
        self.kept = [trajectory.empty() for _ in range(2)]
        self.steps, self.n, self.n_drawn = steps, 0, 0
        self.versions = [0, 0]

    def add(self, source, trajectory, version):
        place = self.n % 2
        for name, array in self.kept[place].items():
            array[...] = trajectory[name]
        self.versions[place] = version
        self.n += 1
        return Amount(int(trajectory["valid"].sum()), self.steps)

    def size(self):
        return min(self.n, 2) * self.steps

    def ready(self):
        return self.n >= 2

    def expire(self, learner_version):
        return Amount(0, 0)

    def clear(self):
        self.n = 0
        return Amount(0, 0)

    def rejoin(self, n_lost):
        return Amount(0, 0)

    def draw(self, out):
        place = (self.n + self.n_drawn + 1) % 2
        for name, array in self.kept[place].items():
            out[name][0] = array
        out["version"][0], out["age"][0] = self.versions[place], 0
        out["new"][0] = self.n_drawn % 2 == 0
        self.n_drawn += 1

    def reweigh(self, feedback):
        raise NotImplementedError


class PPOTwice(PPO):
    """PPO, from a store of that kind."""

    @classmethod
    def sampling(cls, task):
        return Twice(task.hyp.step_len * task.env.n_envs)
