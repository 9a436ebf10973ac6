"""Who lives where among the processes of several machines, and who talks to whom, seen from one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tianji.core.channel import ChannelSpec, Delivery


@dataclass(frozen=True)
class Map:
    """Who lives where, seen from one process."""

    homes: dict[str, str]  # of roles: the name of the process that each lives in
    ranks: dict[str, int]  # of processes
    hosts: dict[int, str]  # of ranks
    home: str  # this process

    def rank(self, role: str) -> int:
        """The rank that a role lives in."""
        return self.ranks[self.homes[role]]

    def host(self, role: str) -> str:
        """The machine that a role lives on."""
        return self.hosts[self.rank(role)]

    @property
    def here(self) -> str:
        """This machine."""
        return self.hosts[self.ranks[self.home]]

    def mates(self) -> list[str]:
        """The processes on this machine, by rank."""
        by_rank = sorted(self.ranks, key=lambda home: self.ranks[home])
        return [home for home in by_rank if self.hosts[self.ranks[home]] == self.here]

    def roles_of(self, spec: ChannelSpec) -> tuple[str, ...]:
        """Everybody at either end of a channel."""
        return (spec.source, *spec.targets, *spec.readers)

    def is_shared(self, spec: ChannelSpec) -> bool:
        """Whether a channel has memory that the processes of this machine share."""
        hosts = {self.host(role) for role in self.roles_of(spec)}
        return self.here in hosts and (spec.delivery is Delivery.LATEST or hosts == {self.here})

    def is_mine(self, role: str) -> bool:
        """Whether a role lives in this process."""
        return self.homes[role] == self.home

    def peers_of(self, home: str, spec: ChannelSpec) -> set[int]:
        """The ranks that a process talks to about a channel that it has an end of."""
        if home not in {self.homes[role] for role in self.roles_of(spec)}:
            return set()
        there = self.roles_of(spec) if self.homes[spec.source] == home else (spec.source,)
        return {self.rank(role) for role in there} - {self.ranks[home]}

    def moved(self, home: str, rank: int) -> Map:
        """The same with another process in the place of one, on the same machine."""
        host = self.hosts[self.ranks[home]]
        return replace(self, ranks=self.ranks | {home: rank}, hosts=self.hosts | {rank: host})

    def readers_by_host(self, spec: ChannelSpec) -> dict[str, list[int]]:
        """The ranks that read a channel, by machine, each machine's in order."""
        by_host: dict[str, list[int]] = {}
        for rank in sorted({self.rank(role) for role in (*spec.targets, *spec.readers)}):
            by_host.setdefault(self.hosts[rank], []).append(rank)
        return by_host
