"""Actors of an MPI job that are lost: who is replaced, when, how often, and what is said of it."""

from types import SimpleNamespace

import numpy as np
import pytest
from commands import TASKS

from tianji import __version__
from tianji.config import load
from tianji.core.counts import Count
from tianji.core.errors import SAYS_MISTAKE, TianJiError
from tianji.engines import rank_supervisor as module
from tianji.engines.rank_supervisor import RankSupervisor, command, replaced_homes
from tianji.engines.restart_budget import BUDGET_SECONDS, RestartBudget
from tianji.observe.watch import Progress

HOME, OTHER = "actor-0.0", "actor-0.1"


class Newcomer:
    """A process that has come up, and what it hears."""

    def __init__(self, *said):
        self.said, self.heard = list(said), []

    def hear(self, rank, seconds):
        return self.said.pop(0) if self.said else None

    def say(self, rank, words):
        self.heard.append(words)

    def settle(self):
        pass


HELLO = {"version of tianji": __version__, "meeting": "there"}


class World:
    def __init__(self):
        self.meetings, self.newcomers, self.refusal = ["door"] * 4, [], None
        self.answers = [HELLO, {"trouble": ""}]

    def start_newcomer(self, words, rank):
        if self.refusal:
            raise TianJiError(self.refusal)
        self.newcomers.append(Newcomer(*self.answers))
        return self.newcomers[-1]


class Transport:
    """Rank 0's: it lets everybody in at once."""

    def __init__(self):
        self.invited, self.given_up, self.said = [], [], []
        self.courier = SimpleNamespace(
            heard_at={},
            run=lambda errand: errand(),
            close_for_good=self.given_up.append,
            say=lambda rank, note: self.said.append((rank, note)),
        )

    def bridge_of(self, home):
        return [0, 1]

    def machine(self, rank):
        return "a" if rank < 2 else "b"

    def invite(self, home, number):
        self.invited.append((home, number))

    def let_in(self, home, number, newcomer):
        self.courier.heard_at[number] = 0.0

    def hand_out(self):
        pass


class Ranks:
    def __init__(self):
        self.ranks = {"launcher": 0, "learner-0.0": 1, HOME: 2, OTHER: 3}
        self.guarded, self.given_up, self.gone = set(), set(), {}
        self.orders = {HOME: {"home": HOME}, OTHER: {"home": OTHER}}
        self.description = {"checkpoints": "/run/checkpoints"}

    def departure(self, home):
        return self.gone.get(home, (None, ""))

    def named(self, home):
        return f"{home} (rank {self.ranks[home]} on b)"

    def last_words(self, home):
        return ""

    def is_there(self, home):
        return home not in self.gone

    def skip_log(self, home):
        pass

    def follow(self, home, rank):
        self.ranks[home] = rank
        self.gone.pop(home, None)


class Watch:
    def __init__(self):
        self.progress = Progress({name: np.zeros(len(Count)) for name in (HOME, OTHER)})
        self.heard = dict.fromkeys((HOME, OTHER), 1)
        self.replaced = []

    def poll(self):
        return self.progress

    def replace(self, home, counts, fault):
        self.replaced.append((home, fault))

    def give_up(self, fault):
        self.replaced = [each for each in self.replaced if each[1] is not fault]


def made(*overrides):
    return load(TASKS / "echo_dqn.py", ["actor_cfg.num=2", *overrides])


class Case:
    def __init__(self, monkeypatch, *overrides):
        self.now = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        self.world, self.ranks, self.transport = World(), Ranks(), Transport()
        self.watch = Watch()
        parts = (self.world, made(*overrides), self.ranks, self.transport, self.watch)
        self.supervisor = RankSupervisor(*parts)

    def look(self, ended=lambda home: False):
        told = self.supervisor.look(ended)
        for charge in self.supervisor._charges:
            if charge.replacing is not None:
                charge.replacing.join(10)
        return told

    def lose(self, home=HOME, status=None):
        words = "was lost" if status is None else f"failed with exit status {status}"
        self.ranks.gone[home] = (status, words)

    def made_something(self, home=HOME):
        self.watch.progress.counts[home][Count.PUSHED] += 1


@pytest.fixture
def case(monkeypatch):
    return lambda *overrides: Case(monkeypatch, *overrides)


def test_a_lost_actor_is_replaced_at_once_if_it_had_come_to_something(case):
    run = case()
    run.made_something()
    run.lose()
    assert run.look() == ["actor-0.0 (rank 2 on b) was lost; it is replaced"]
    assert run.look() == []  # another one is on its way
    assert run.transport.invited == [(HOME, 4)]
    run.look()
    assert run.ranks.ranks[HOME] == 4
    assert HOME in run.ranks.guarded
    [order, brief, begin] = run.world.newcomers[0].heard
    assert (order["home"], begin) == (HOME, {"begin": True})
    told = brief["brief"]
    assert (told["life"], told["ranks"][HOME], told["newcomer"]["number"]) == (1, 4, 4)
    assert told["counts"][HOME][Count.PUSHED] == 1


def test_its_memory_comes_from_a_process_of_its_machine_that_lives(case):
    run = case()
    run.made_something()
    run.lose()
    run.look()
    run.look()
    about = run.world.newcomers[0].heard[1]["brief"]["newcomer"]
    assert (about["host"], about["meetings"]) == (OTHER, {3: "door"})


def test_of_two_that_were_alone_on_their_machine_the_second_waits_for_the_memory_of_the_first(case):
    run = case()
    for home in (HOME, OTHER):
        run.made_something(home)
        run.lose(home)
    for _ in range(5):
        run.look()
    first, second = (each.heard[1]["brief"]["newcomer"] for each in run.world.newcomers)
    assert (first["host"], first["meetings"]) == (HOME, {})
    assert (second["host"], second["meetings"]) == (HOME, {4: "there"})
    assert run.transport.invited == [(HOME, 4), (OTHER, 5)]


def test_it_is_back_when_it_reports(case, capsys):
    run = case()
    run.made_something()
    run.lose()
    for _ in range(3):
        run.look()
    [(home, fault)] = run.watch.replaced
    assert (home, fault.away_seconds) == (HOME, None)
    run.watch.progress.started_at = 100.0
    run.now += 1.5
    run.watch.heard[HOME] += 1
    run.look()
    assert fault.away_seconds == 1.5
    assert "actor-0.0 (rank 4 on b) is back after 1.5 s" in capsys.readouterr().err


@pytest.mark.parametrize("status", [1, SAYS_MISTAKE])
def test_one_that_fails_at_once_or_by_a_mistake_is_left_to_the_rest(case, status):
    run = case()
    if status == SAYS_MISTAKE:
        run.made_something()
    run.lose(status=status)
    assert run.look() == []
    assert HOME not in run.ranks.guarded
    assert OTHER in run.ranks.guarded


def test_where_mpi_starts_no_process_training_goes_on_without_it(case):
    run = case()
    run.world.refusal = "MPI starts no other process: MPI_ERR_SPAWN"
    run.made_something()
    run.lose()
    run.look()
    run.look()
    [words] = run.look()
    assert words == "actor-0.0 could not be replaced: MPI starts no other process: MPI_ERR_SPAWN"
    assert run.transport.given_up == [2]
    assert [rank for rank, _ in run.transport.said] == [1]
    assert run.watch.replaced == []
    assert HOME not in run.ranks.guarded


def test_a_newcomer_that_dies_is_a_loss_like_another(case):
    run = case("global_cfg.restarts=2")
    run.world.answers = []
    run.made_something()
    run.lose()
    run.look()
    run.look()
    assert run.look() == []  # it is tried once more, after a pause
    run.now += 1.0
    run.look()
    [words] = run.look()
    assert "could not be replaced: the new process did not come up" in words
    assert len(run.world.newcomers) == 2


def test_a_budget_that_is_spent_leaves_the_group_smaller(case):
    run = case("global_cfg.restarts=1")
    run.made_something()
    run.lose()
    for _ in range(3):
        run.look()
    run.made_something()
    run.lose()
    [words] = run.look()
    assert words.startswith("actor-0.0 was replaced as often as global_cfg.restarts allows")
    assert HOME not in run.ranks.guarded
    assert run.transport.given_up == [4]


def test_nobody_waits_at_the_end_for_those_who_are_away(case):
    run = case()
    run.lose()
    run.look()
    assert run.supervisor.awaits(lambda home: False)
    assert not run.supervisor.awaits(lambda home: True)
    assert run.supervisor.close() == []
    assert run.transport.given_up == [2, 3]  # who is lost from now on is not replaced either
    assert HOME in run.ranks.guarded  # its loss is no failure of the run
    assert not run.supervisor.awaits(lambda home: False)


def test_the_loss_of_one_whose_stream_has_ended_is_none(case):
    run = case()
    run.lose()
    assert run.look(lambda home: True) == []
    assert run.watch.replaced == []


def test_without_a_budget_nobody_is_looked_after():
    assert replaced_homes(made()) == [HOME, OTHER]
    assert replaced_homes(made("global_cfg.restarts=0")) == []


def test_a_new_process_has_the_environment_of_the_ranks_and_never_says_how_the_run_ended(
    monkeypatch,
):
    monkeypatch.setenv("TIANJI_STATUS", "/tmp/status")
    monkeypatch.setenv("OMPI_MCA_btl", "tcp,self")
    words = command({"checkpoints": "/run/checkpoints"})
    assert words[:3] == ["env", "-u", "TIANJI_STATUS"]
    assert "OMPI_MCA_btl=tcp,self" in words
    assert not any(word.startswith("TIANJI_STATUS=") for word in words)
    assert words[-2:] == ["tianji.engines.newcomer", "/run"]


def test_a_newcomer_that_is_of_no_use_is_told_to_go(case):
    run = case()
    run.world.answers = [HELLO, {"trouble": "there is no such folder here"}]
    run.made_something()
    run.lose()
    run.look()
    run.look()
    assert run.world.newcomers[0].heard[-1] == {"leave": True}


def test_a_budget_counts_the_losses_of_an_hour():
    budget = RestartBudget(2)
    assert [budget.spend(now, True) for now in (0.0, 10.0, 20.0)] == [True, True, False]
    assert budget.spend(BUDGET_SECONDS + 5.0, True)


def test_the_more_lives_come_to_nothing_the_longer_is_the_pause():
    budget, pauses = RestartBudget(100), []
    for came_to_something in (True, False, False, False, *[False] * 9, True):
        budget.spend(0.0, came_to_something)
        pauses.append(budget.pause)
    assert pauses[:4] == [0.0, 0.5, 1.0, 2.0]
    assert pauses[-2:] == [30.0, 0.0]
