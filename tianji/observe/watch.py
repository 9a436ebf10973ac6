"""What a run has done so far, put together from what the roles publish about themselves."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tianji.core.channel import Inbox
from tianji.core.counts import Count, Histogram, Vector
from tianji.core.mishaps import said
from tianji.core.schema import Arrays
from tianji.core.state import State
from tianji.core.wording import number
from tianji.job.factory import Ports
from tianji.job.job import Job
from tianji.observe.episode_file import Line
from tianji.roles.episodes import Ended
from tianji.roles.role_specs import Kind, group_of, is_first_learner, roles_of

WINDOW = 100  # episodes that a mean return is taken over
MOST_FAULTS = 100  # that are kept in words, the last ones
BROKEN = (Count.ENV_RESTARTS, Count.NOT_FINITE, Count.LOST_EPISODES)  # told as mishaps
LOOKS = 20  # at the newest batch, over which effective sample sizes are averaged


@dataclass
class ProcessFault:
    """A process that was lost, and replaced."""

    process: str
    how: str  # it was lost
    words: str  # the last ones in its log
    seconds: float  # of training, when it was seen
    away_seconds: float | None = None  # from then until the next one was ready


@dataclass
class Progress:
    """The state of a run; `Watch.poll` keeps it up to date."""

    counts: dict[str, Vector]  # by role
    staleness: Histogram = field(default_factory=Histogram)
    age: Histogram = field(default_factory=Histogram)
    new_percent: Histogram = field(default_factory=Histogram)  # of each batch
    scalars: dict[str, float] = field(default_factory=dict)
    recent_ess: deque[float] = field(default_factory=lambda: deque(maxlen=LOOKS))
    lowest_ess: float = math.inf  # of the means over LOOKS looks, in all of the run
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    learned: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))  # per life
    won: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))  # nan: nobody can win
    lengths: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))
    ended_at: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    n_episodes: int = 0
    unwritten: list[Line] = field(default_factory=list)  # with exp.keep_episodes
    base: dict[str, Vector] = field(default_factory=dict)  # of a resumed run: where counts began
    solved_at: float | None = None  # clock of the last of the 100 episodes that reached the target
    started_at: float | None = None  # clock at which all roles were ready
    earlier_seconds: float = 0.0  # of training, before the run was resumed
    lost: list[str] = field(default_factory=list)  # roles that died; training goes on without them
    lives: Counter[str] = field(default_factory=Counter)  # how often each role was lost, and back
    faults: list[ProcessFault] = field(default_factory=list)  # the last ones that were mended
    restarts: int = 0  # of processes, before a resume too
    missing_steps: int | None = None  # that were sent and not counted; known when all have ended

    def elapsed(self, now: float) -> float:
        """Seconds of training until the moment `now` of the clock."""
        here = 0.0 if self.started_at is None else max(0.0, now - self.started_at)
        return self.earlier_seconds + here

    def total(self, count: Count, kind: Kind) -> float:
        """The sum of one counter over all roles of a kind."""
        prefix = f"{kind.name.lower()}-"
        return float(sum(c[count] for name, c in self.counts.items() if name.startswith(prefix)))

    @property
    def produced(self) -> int:
        """Valid environment steps that actors pushed."""
        return int(self.total(Count.PRODUCED, Kind.ACTOR))

    @property
    def received(self) -> int:
        """Valid environment steps that the buffers took."""
        return int(self.total(Count.RECEIVED, Kind.BUFFER))

    @property
    def consumed(self) -> int:
        """Valid samples that the learners learned from."""
        return int(self.total(Count.CONSUMED, Kind.LEARNER))

    @property
    def updates(self) -> int:
        """Calls of `learn`, of all groups; the learners of one group make each of them together."""
        return sum(updates_by_group(self.counts).values())

    @property
    def version(self) -> int:
        """Updates behind the weights of the first group, which are those that are kept."""
        return updates_by_group(self.counts).get(0, 0)

    @property
    def fusions(self) -> int:
        """Means of the groups' parameters that were made."""
        return int(self.total(Count.FUSIONS, Kind.REDUCER))

    @property
    def distance(self) -> float | None:
        """How far the groups were apart before the last fusion; None before the first."""
        return self.total(Count.DISTANCE, Kind.REDUCER) if self.fusions else None

    @property
    def fusion_kl(self) -> float | None:
        """How far the last fusion moved the groups' policies, their mean; None: not measured."""
        firsts = (c for name, c in self.counts.items() if is_first_learner(name))
        moved = [float(c[Count.FUSION_KL]) for c in firsts if c[Count.FUSION_KL]]
        return sum(moved) / len(moved) if moved else None

    @property
    def dropped(self) -> int:
        """Samples refused for their age."""
        return int(self.total(Count.DROPPED, Kind.BUFFER))

    @property
    def late_priorities(self) -> int:
        """Priorities that no sample was given: it was gone, or its learner's channel was full."""
        kinds = (Kind.BUFFER, Kind.LEARNER)
        return int(sum(self.total(Count.LATE_PRIORITIES, kind) for kind in kinds))

    @property
    def env_restarts(self) -> int:
        """Environments that raised and were made anew."""
        return int(self.total(Count.ENV_RESTARTS, Kind.ACTOR))

    @property
    def not_finite(self) -> int:
        """Episodes that were discarded for NaN or Inf."""
        return int(self.total(Count.NOT_FINITE, Kind.ACTOR))

    @property
    def lost_episodes(self) -> int:
        """Episodes that games of several agents broke and began anew by themselves."""
        return int(self.total(Count.LOST_EPISODES, Kind.ACTOR))

    @property
    def skipped(self) -> int:
        """Updates that were skipped, of all groups; the learners of one skip the same."""
        firsts = (c for name, c in self.counts.items() if is_first_learner(name))
        return int(sum(c[Count.SKIPPED] for c in firsts))

    @property
    def mended(self) -> dict[str, int]:
        """What broke and cost no more than itself, by its names in `summary.json`."""
        return {
            "env_restarts": self.env_restarts,
            "not_finite": self.not_finite,
            "lost_episodes": self.lost_episodes,
            "skipped_updates": self.skipped,
        }

    @property
    def freshness(self) -> float:
        """P of equation 2 as it was: batch size over samples in the store, mean of all batches."""
        batches = self.total(Count.PUSHED, Kind.BUFFER)
        return self.total(Count.FRESHNESS, Kind.BUFFER) / max(1.0, batches)

    @property
    def new(self) -> float:
        """Share of the consumed samples that were consumed for the first time."""
        return self.total(Count.NEW, Kind.LEARNER) / max(1, self.consumed)

    @property
    def ess(self) -> float | None:
        """Effective samples of the last batches, as a share; None where nobody measures them."""
        return sum(self.recent_ess) / len(self.recent_ess) if self.recent_ess else None

    @property
    def least_ess(self) -> float | None:
        """The least that it ever was; of a run with few updates the mean over all."""
        return None if self.ess is None else min(self.ess, self.lowest_ess)

    @property
    def mean_return(self) -> float | None:
        """Mean return of the last 100 episodes, or of all if there are fewer."""
        return float(np.mean(self.returns)) if self.returns else None

    @property
    def win_ratio(self) -> float | None:
        """Share of the last 100 episodes that were won; None where nobody can win."""
        won = [value for value in self.won if not math.isnan(value)]
        return float(np.mean(won)) if won else None

    @property
    def learned_return(self) -> float | None:
        """Mean of what was learned from in the same games: per life, and maybe clipped."""
        return float(np.mean(self.learned)) if self.learned else None


def apart(mean: float, learned: float | None) -> str:
    """What was learned from, in words, where that is not what the games were worth."""
    if learned is None or math.isclose(mean, learned, abs_tol=1e-6) or math.isnan(learned):
        return ""
    return f", learned {number(learned)}"


def updates_by_group(counts: Mapping[str, Vector]) -> dict[int, int]:
    """The version of each group."""
    firsts = {name: c for name, c in counts.items() if is_first_learner(name)}
    return {group_of(name): int(c[Count.VERSION]) for name, c in firsts.items()}


class Watch:
    """Reads the channels on which roles report, without ever making them wait."""

    def __init__(self, job: Job, ports: Ports) -> None:
        roles = roles_of(job.config)
        self._homes = {role.name: role.home for role in roles}
        self._target, self._win_target = job.stop_return, job.config.stop_win_ratio
        self._per_life = job.config.exp.stop_return_of == "life"
        self._keeps_episodes = job.config.exp.keep_episodes
        self._scalar_names = job.algorithm.scalars
        self._reports: dict[str, Inbox] = {
            role.name: ports.inbox(f"report {role.name}") for role in roles
        }
        self._episodes = [
            ports.inbox(f"episodes {role.name}") for role in roles if role.kind is Kind.ACTOR
        ]
        self.progress = Progress({role.name: np.zeros(len(Count)) for role in roles})
        self._learners: dict[str, Arrays] = {}  # what each of them said last
        self._said: dict[str, str] = {}  # of mishaps, by each actor at last
        self.mishaps: list[str] = []  # what broke and was mended, for whoever looks on
        self._seen = 0  # updates by the last look at their effective samples
        self.heard: Counter[str] = Counter()  # reports of each role

    def poll(self) -> Progress:
        """Takes whatever has come."""
        for name in self._reports:
            self._hear(name)
        self._read_episodes()
        self._see_start()
        return self.progress

    def _hear(self, name: str) -> None:
        """Takes the newest report of a role, if there is a new one."""
        if (message := self._reports[name].take()) is None:
            return
        counts, before = message.arrays["counts"].copy(), self.progress.counts[name]
        self.progress.counts[name] = counts
        self.heard[name] += 1
        self._see_mishaps(name, before, message.arrays)
        if self.progress.earlier_seconds:  # its first word: before any waiting for others
            self.progress.base.setdefault(name, counts.copy())
        if "staleness" in message.arrays:
            self._learners[name] = {n: a.copy() for n, a in message.arrays.items()}
            self._read_learners()

    def _see_mishaps(self, name: str, before: Vector, arrays: Arrays) -> None:
        """What broke, and was mended, since the role reported last."""
        after = arrays["counts"]
        if any(after[each] > before[each] for each in BROKEN):
            words = f"{name}: {said(arrays['mishap'])}"
            if words != self._said.get(name, f"{name}: "):  # none: it was in another process
                self.mishaps.append(words)
            self._said[name] = words
        if after[Count.GONE_BACK] > before[Count.GONE_BACK] and before[Count.READY_AT]:
            self.mishaps.append(
                f"{name}: too many updates in a row were skipped: weights and optimiser are those "
                "of the newest checkpoint again"
            )
        if after[Count.SKIPPED] and not before[Count.SKIPPED] and before[Count.READY_AT]:
            version = int(after[Count.VERSION])
            self.mishaps.append(
                f"{name}: an update was skipped, its loss or gradient is not finite (of the first "
                f"{version:,}); the weights stay as they were, summary.json counts such updates"
            )

    def _see_start(self) -> None:
        """Training has started when all roles were ready, but for those that never will be."""
        counts, lost = self.progress.counts, self.progress.lost
        ready = [c[Count.READY_AT] for name, c in counts.items() if name not in lost]
        if self.progress.started_at is None and all(ready):
            self.progress.started_at = max(ready)

    def lose(self, home: str) -> None:
        """A process has died, and training goes on without the roles that lived in it."""
        self.progress.lost += [name for name, place in self._homes.items() if place == home]

    def replace(self, home: str, counts: Mapping[str, Vector], fault: ProcessFault) -> None:
        """A process was lost and is replaced; its roles go on with these `counts`."""
        progress = self.progress
        for name in counts:
            self._hear(name)  # its last word, before what it has counted since
        progress.counts |= counts
        progress.lives.update(name for name, place in self._homes.items() if place == home)
        progress.restarts += 1
        progress.faults.append(fault)
        del progress.faults[:-MOST_FAULTS]

    def give_up(self, fault: ProcessFault) -> None:
        """Nobody came in the place of a process that was to be replaced."""
        self.progress.restarts -= 1
        self.progress.faults = [each for each in self.progress.faults if each is not fault]

    def state(self) -> State:
        """What the roles do not know: the last episodes, and how long training has lasted."""
        progress = self.progress
        return {
            "returns": list(progress.returns),
            "learned": list(progress.learned),
            "won": [None if math.isnan(value) else value for value in progress.won],
            "lengths": list(progress.lengths),
            "episodes": progress.n_episodes,
            "fusions": progress.fusions,
            "restarts": progress.restarts,
            "lowest_ess": None if math.isinf(progress.lowest_ess) else progress.lowest_ess,
            "elapsed_seconds": progress.elapsed(time.monotonic()),
        }

    def restore(self, state: State) -> None:
        """Goes on with the same window of episodes; when they ended is a thing of the past."""
        progress = self.progress
        progress.returns.extend(state["returns"])
        progress.learned.extend(state["learned" if "learned" in state else "returns"])
        won = state.get("won", [None] * len(state["returns"]))
        progress.won.extend(math.nan if value is None else value for value in won)
        progress.lengths.extend(state["lengths"])
        progress.ended_at.extend(-math.inf for _ in state["returns"])
        progress.n_episodes = state["episodes"]
        progress.restarts = int(state.get("restarts") or 0)
        if (lowest := state.get("lowest_ess")) is not None:
            progress.lowest_ess = lowest
        progress.earlier_seconds = state["elapsed_seconds"]

    def _read_learners(self) -> None:
        """Puts together what all learners measured; scalars are means over those that learned."""
        progress, said = self.progress, list(self._learners.values())
        progress.staleness = Histogram(_sum([arrays["staleness"] for arrays in said]))
        progress.age = Histogram(_sum([arrays["age"] for arrays in said]))
        progress.new_percent = Histogram(_sum([arrays["new"] for arrays in said]))
        learned = [arrays for arrays in said if arrays["counts"][Count.VERSION]] or said[:1]
        values = _sum([arrays["scalars"] for arrays in learned]) / len(learned)
        progress.scalars = dict(zip(self._scalar_names, values.tolist(), strict=True))
        ess = progress.scalars.get("staleness/ess")
        if ess is not None and progress.updates > self._seen:
            self._seen = progress.updates
            progress.recent_ess.append(ess)
            if len(progress.recent_ess) == LOOKS:
                progress.lowest_ess = min(progress.lowest_ess, sum(progress.recent_ess) / LOOKS)

    def _read_episodes(self) -> None:
        finished: list[tuple[int, Ended]] = []
        for actor, inbox in enumerate(self._episodes):
            while (message := inbox.take()) is not None:
                arrays, n = message.arrays, int(message.arrays["n"])
                columns = [arrays[name][:n].tolist() for name in Ended._fields]
                finished += [(actor, Ended(*each)) for each in zip(*columns, strict=True)]
        for actor, episode in sorted(finished, key=_in_time):
            self._add_episode(actor, episode)

    def _add_episode(self, actor: int, episode: Ended) -> None:
        progress = self.progress
        progress.n_episodes += 1
        if self._keeps_episodes:
            progress.unwritten.append(_line(progress.elapsed(episode.ended_at), actor, episode))
        if progress.solved_at is not None:  # the window stays as it was when the target was reached
            return
        progress.returns.append(episode.returned)
        progress.learned.append(episode.learned)
        progress.won.append(episode.won)
        progress.lengths.append(episode.length)
        progress.ended_at.append(episode.ended_at)
        if len(progress.returns) == WINDOW and self._reached():
            progress.solved_at = max(progress.ended_at)

    def _reached(self) -> bool:
        """Whether the mean return, or the share of won games, is what was asked for."""
        progress = self.progress
        returns = progress.learned if self._per_life else progress.returns
        if self._target is not None and np.mean(returns) >= self._target:
            return True
        won = None if self._win_target is None else progress.win_ratio
        return won is not None and self._win_target is not None and won >= self._win_target


def _in_time(finished: tuple[int, Ended]) -> tuple[float, float, int]:
    _, episode = finished
    return episode.ended_at, episode.returned, episode.length


def _line(seconds: float, actor: int, episode: Ended) -> Line:
    returned, length, _, steps, version, learned, _ = episode
    return Line(round(seconds, 6), actor, steps, version, returned, length, learned)


def _sum(vectors: list[Vector]) -> Vector:
    """Of one vector it is that vector; with one learner there is nothing to add."""
    total: Vector = vectors[0] if len(vectors) == 1 else np.sum(vectors, axis=0)
    return total
