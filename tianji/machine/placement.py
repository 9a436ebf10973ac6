"""Which rank of an MPI job is which process of the run, so that a group stays on one machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tianji.config import Config
from tianji.core.columns import aligned
from tianji.core.errors import TianJiError
from tianji.core.wording import count_of
from tianji.machine.resources import Share, assign
from tianji.roles.role_specs import LAUNCHER, Kind, evaluator_of, homes_of, kind_of, roles_of


def n_ranks(config: Config) -> int:
    """Processes that a configuration needs, with the launcher."""
    return len(set(homes_of(config).values()))


def refuse_wrong_number(config: Config, n: int) -> None:
    """Raises unless there are as many ranks as processes."""
    wanted = n_ranks(config)
    if n != wanted:
        raise TianJiError(
            f"this configuration has {wanted} processes ({_counted(config)}): "
            f"run it with mpirun -n {wanted}, not {n}, or let tianji start it: "
            "tianji train CONFIG --engine mpi"
        )


def _counted(config: Config) -> str:
    """As in `1 launcher, 1 learner with its buffer, 4 actors`."""
    of = Counter(kind_of(home) for home in set(homes_of(config).values()))
    words = [f"1 {LAUNCHER}"]
    for kind in (Kind.LEARNER, Kind.BUFFER, Kind.ACTOR, Kind.REDUCER, Kind.EVALUATOR):  # as placed
        rides = " with its buffer" if kind is Kind.LEARNER and not of[Kind.BUFFER] else ""
        if n := of[kind]:
            words.append(f"{count_of(n, kind.word)}{rides}")
    return ", ".join(words)


def place(config: Config, hosts: Sequence[str]) -> dict[str, int]:
    """The rank of every process; `hosts` are the machines of the ranks, rank 0 is the launcher.

    A group goes to the machine that it fits best; one that fits nowhere begins where most room is,
    with its learners, and goes on from there.
    """
    room = _Room(hosts)
    ranks = {LAUNCHER: room.take(hosts[0])}
    for group in _groups(config):
        host = room.best_for(len(group))
        for home in group:
            ranks[home] = room.take(host)
    for home in _alone(config):
        ranks[home] = room.take(hosts[0])
    return ranks


def _groups(config: Config) -> list[list[str]]:
    """The processes of each group, the learners first."""
    groups: dict[int, list[str]] = {}
    for role in roles_of(config):
        if role.home not in _alone(config):
            groups.setdefault(role.group, []).append(role.home)
    return [list(dict.fromkeys(homes)) for homes in groups.values()]


def _alone(config: Config) -> list[str]:
    """Processes that belong to no group: they go where the launcher is, if there is room."""
    evaluator = evaluator_of(config)
    reducers = [role.home for role in roles_of(config) if role.kind is Kind.REDUCER]
    return reducers + ([] if evaluator is None else [evaluator.home])


class _Room:
    """The ranks that nobody has yet, by machine."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._free: dict[str, list[int]] = {host: [] for host in hosts}
        for rank, host in enumerate(hosts):
            self._free[host].append(rank)

    def best_for(self, n: int) -> str:
        """The machine with just enough room, or with the most."""
        enough = [host for host, ranks in self._free.items() if len(ranks) >= n]
        if enough:
            return min(enough, key=lambda host: len(self._free[host]))
        return max(self._free, key=lambda host: len(self._free[host]))

    def take(self, host: str) -> int:
        """The next rank of a machine, or of the one with the most room where that is full."""
        if not self._free[host]:
            host = max(self._free, key=lambda other: len(self._free[other]))
        return self._free[host].pop(0)


@dataclass(frozen=True)
class Offer:
    """What a machine has for the processes on it."""

    cores: tuple[int, ...]  # that they may run on
    usable: int  # how many of them can be kept busy: a container may limit the time


def shares(
    config: Config,
    ranks: Mapping[str, int],
    hosts: Sequence[str],
    offers: Mapping[str, Offer],
    alternates: bool,
) -> dict[str, Share]:
    """What every process may use of what its machine offers."""
    found: dict[str, Share] = {}
    for host, offered in offers.items():
        here = [home for home, rank in ranks.items() if hosts[rank] == host]
        try:
            found |= assign(config, offered.cores, alternates, here, offered.usable)
        except TianJiError as error:
            raise TianJiError(f"{name_of(host)}: {error}") from error
        found |= {home: Share(offered.cores, 1) for home in here if home not in found}
    return found


def name_of(host: str) -> str:
    """As people call a machine, without the number of its network."""
    return host.partition("/")[0]


def table(
    config: Config,
    what: str,
    places: Mapping[str, tuple[int, str]],
    given: Mapping[str, Share],
) -> str:
    """Role, number of its rank or process (`what`), machine and cores, one line per role."""
    rows = [("role", what, "host", "cores")]
    homes = sorted(homes_of(config).items(), key=lambda item: item[0] != LAUNCHER)
    for role, home in sorted(homes, key=lambda item: places[item[1]][0]):
        number, host = places[home]
        rows.append((role, str(number), host, _spans(given[home].cores)))
    return "\n".join(aligned(rows, left=range(len(rows[0]))))


def _spans(cores: Iterable[int]) -> str:
    """As in `0-3, 6`."""
    spans: list[list[int]] = []
    for core in sorted(cores):
        if spans and core == spans[-1][1] + 1:
            spans[-1][1] = core
        else:
            spans.append([core, core])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)
