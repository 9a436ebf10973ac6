"""Who is replaced, when, and how often: the launcher's part, with processes that are played."""

import signal
import threading

import numpy as np
import pytest
from commands import TASKS

from tianji.config import load
from tianji.core.counts import WORDS_BYTES, Count
from tianji.core.errors import SAYS_MISTAKE, SAYS_SPENT
from tianji.engines import supervise
from tianji.engines.live_counts import counts_channels, live_counts
from tianji.engines.lost_process import RoleFailed
from tianji.engines.supervise import Supervisor
from tianji.engines.worker_loop import shared_channels
from tianji.job.factory import make_env
from tianji.job.job import prepare
from tianji.observe.watch import Watch
from tianji.roles.role_specs import homes_of
from tianji.transports.shm import ShmTransport

NO_WORDS = np.zeros(WORDS_BYTES, np.uint8)  # of mishaps


class Process:
    """A child that lives until it is told how it ended."""

    def __init__(self):
        self.status, self.signals = None, []

    def poll(self):
        return self.status

    def send_signal(self, number):
        self.signals.append(number)

    def kill(self):
        self.status = -signal.SIGKILL


class Crew:
    def __init__(self, homes):
        self.processes = {home: Process() for home in homes}
        self.away, self.guarded, self.replaced, self.words = set(), set(), [], ""
        self.refuses = False

    def replace(self, home, life, seen):
        if self.refuses:
            raise OSError(11, "Resource temporarily unavailable")
        self.processes[home] = Process()
        self.replaced.append((home, life, seen))
        self.away.discard(home)

    def last_words(self, home):
        return self.words


class Stage:
    """A supervisor, and a clock that stands still between two looks."""

    def __init__(self, monkeypatch, *overrides):
        config = load(TASKS / "walk_ppo.py", overrides)
        job = prepare(config, make_env(config).spec)
        self.now = 1000.0
        monkeypatch.setattr(supervise.time, "monotonic", lambda: self.now)
        homes = homes_of(config)
        specs = shared_channels(job) + counts_channels(job)
        self.transport = ShmTransport.create(specs, homes)
        self.crew = Crew({home for home in homes.values() if home != "launcher"})
        self.watch = Watch(job, self.transport)
        self.supervisor = Supervisor(job, self.crew, self.transport, self.watch)
        self.ended = False

    def counts(self, name="actor-0.0"):
        return live_counts(self.transport, name)

    def pushes(self, n=1, name="actor-0.0"):
        self.counts(name)[Count.PUSHED] += n
        self.counts(name)[Count.PRODUCED] += 128 * n

    def report(self, *names):
        for name in names or ("actor-0.0", "actor-0.1"):
            self.transport.outbox(f"report {name}").push(
                {"counts": self.counts(name), "mishap": NO_WORDS}, 0
            )
        self.watch.poll()

    def look(self, seconds=0.02, n=1):
        told = []
        for _ in range(n):
            self.now += seconds
            told += self.supervisor.look(lambda home: self.ended)
        return told

    def loses(self, home="actor-0.0", status=-signal.SIGKILL):
        self.crew.processes[home].status = status
        return self.look()


@pytest.fixture
def stage(monkeypatch):
    made = []

    def make(*overrides):
        made.append(Stage(monkeypatch, *overrides))
        made[-1].report()
        made[-1].look()
        return made[-1]

    yield make
    for each in made:
        each.transport.close()


def test_one_that_is_killed_is_replaced_at_the_next_look_with_its_counts(stage):
    stage = stage()
    stage.pushes(3)
    stage.supervisor.ordered = 7
    told = stage.loses()
    assert told == ["actor-0.0 was killed by SIGKILL; it is replaced"]
    assert stage.watch.progress.counts["actor-0.0"][Count.PRODUCED] == 384  # as it was at its end
    assert stage.watch.progress.restarts == 1
    assert stage.crew.replaced == []
    stage.supervisor.ordered = 8  # while it was away: for the next one to take part in
    assert stage.look() == []
    assert stage.crew.replaced == [("actor-0.0", 1, 7)]
    fault = stage.watch.progress.faults[0]
    assert (fault.process, fault.away_seconds) == ("actor-0.0", None)
    stage.now += 1.5
    stage.report("actor-0.0")
    stage.look()
    assert fault.away_seconds is not None


def test_a_report_that_was_on_its_way_neither_takes_counts_back_nor_counts_as_a_return(stage):
    stage = stage()
    outbox = stage.transport.outbox("report actor-0.0")
    stage.pushes(1)
    outbox.push({"counts": stage.counts(), "mishap": NO_WORDS}, 0)  # read by nobody yet
    stage.pushes(2)
    stage.loses()
    assert stage.watch.poll().counts["actor-0.0"][Count.PUSHED] == 3
    stage.look(n=3)
    assert stage.watch.progress.faults[0].away_seconds is None


def test_one_that_fails_before_its_first_trajectory_is_left_to_the_crew(stage):
    stage = stage()
    assert stage.loses(status=2) == []
    assert "actor-0.0" not in stage.crew.away
    assert stage.watch.progress.restarts == 0


def test_one_that_fails_later_is_replaced_with_its_first_words_told_once(stage):
    stage = stage()
    stage.pushes()
    stage.crew.words = "ValueError: no more marbles"
    [told] = stage.loses(status=1)
    assert told.endswith(
        "failed with exit status 1; it is replaced; its last words:\nValueError: no more marbles"
    )
    stage.look()
    stage.pushes()
    assert stage.loses(status=1) == ["actor-0.0 failed with exit status 1; it is replaced"]


def test_the_first_words_are_told_where_the_first_loss_left_none(stage):
    stage = stage()
    stage.pushes()
    assert stage.loses() == ["actor-0.0 was killed by SIGKILL; it is replaced"]
    stage.look()
    stage.pushes()
    stage.crew.words = "ValueError: no more marbles"
    [told] = stage.loses(status=1)
    assert told.endswith("it is replaced; its last words:\nValueError: no more marbles")
    stage.look()
    stage.pushes()
    assert stage.loses(status=1) == ["actor-0.0 failed with exit status 1; it is replaced"]


def test_one_in_which_too_much_broke_is_not_replaced(stage):
    stage = stage()
    stage.pushes()
    stage.loses(status=SAYS_SPENT)
    assert not stage.crew.replaced and not stage.crew.away


def test_one_that_ends_by_a_mistake_of_the_users_is_not_replaced_whenever_it_is_found(stage):
    stage = stage()
    stage.pushes()
    assert stage.loses(status=SAYS_MISTAKE) == []
    assert not stage.crew.replaced and not stage.crew.away | stage.crew.guarded & {"actor-0.0"}


@pytest.mark.parametrize("status", [2, 3])
def test_one_that_an_environment_has_ended_is_replaced_whatever_the_status(stage, status):
    stage = stage()
    stage.pushes()
    assert stage.loses(status=status) == [
        f"actor-0.0 failed with exit status {status}; it is replaced"
    ]
    stage.look()
    assert stage.crew.replaced == [("actor-0.0", 1, 0)]


@pytest.mark.parametrize("home", ["learner-0.0", "buffer-0.0"])
def test_a_learner_and_a_buffer_are_replaced_like_an_actor_and_never_taken_to_hang(stage, home):
    stage = stage("buffer_cfg.cores=1", "environment.step_seconds=5")
    for _ in range(400):
        stage.report()
        assert stage.look(0.5) == []
    assert stage.loses(home) == [f"{home} was killed by SIGKILL; it is replaced"]
    assert stage.watch.progress.restarts == 1
    began = stage.now
    while not stage.crew.replaced:
        stage.look()
    assert stage.crew.replaced == [(home, 1, 0)]
    assert stage.now - began > 0.4  # nothing had come of it


def test_a_learner_that_fails_before_its_first_update_is_left_to_the_crew(stage):
    stage = stage()
    stage.counts("learner-0.0")[Count.PUSHED] += 1  # its first weights
    assert stage.loses("learner-0.0", 1) == []
    stage.crew.processes["learner-0.0"].status = None
    stage.counts("learner-0.0")[Count.CONSUMED] += 32
    assert stage.loses("learner-0.0", 1) != []


@pytest.mark.parametrize("override", ["learner_cfg.num=2", "exp.record=True"])
def test_learners_that_share_a_batch_or_are_recorded_are_left_to_the_crew(stage, override):
    stage = stage(override)
    assert stage.loses("learner-0.0") == []
    assert not stage.crew.away
    stage.pushes()
    assert stage.loses("actor-0.0") != []


def test_a_run_waits_for_who_comes_back_if_everyone_is_gone(stage):
    stage = stage()
    assert stage.supervisor.awaits(lambda home: False)
    assert not stage.supervisor.awaits(lambda home: True)
    stage.supervisor.close()
    assert not stage.supervisor.awaits(lambda home: False)


def test_who_is_away_at_the_end_is_told_of_and_a_learner_may_yet_save(stage):
    stage = stage()
    stage.loses("learner-0.0")
    while not stage.crew.replaced:
        stage.look()
    stage.pushes()
    stage.loses("actor-0.0")
    assert stage.supervisor.close() == ["actor-0.0"]
    assert stage.crew.processes["learner-0.0"].status is None


def test_one_more_than_the_budget_within_an_hour_ends_the_run_with_the_first_words(stage):
    stage = stage("global_cfg.restarts=2")
    for words in ("the first", "the second"):
        stage.crew.words = words
        stage.pushes()
        assert stage.loses(status=1)
        stage.look()
    with pytest.raises(RoleFailed, match=r"replaced 2 times within an hour.*\n.*the first") as end:
        stage.loses(status=1)
    assert not end.value.users_mistake


def test_after_an_hour_it_may_be_lost_again(stage):
    stage = stage("global_cfg.restarts=1")
    for _ in range(3):
        stage.pushes()
        assert stage.loses()
        stage.look()
        stage.now += 3601


def test_each_has_a_budget_of_its_own(stage):
    stage = stage("global_cfg.restarts=1")
    for name in ("actor-0.0", "actor-0.1"):
        stage.pushes(name=name)
        assert stage.loses(name)


def test_one_that_comes_to_nothing_is_replaced_later_and_later(stage):
    stage = stage()
    stage.pushes()
    pauses = []
    for _ in range(5):
        stage.loses()
        began, n = stage.now, len(stage.crew.replaced)
        while len(stage.crew.replaced) == n:
            stage.look()
        pauses.append(round(stage.now - began, 1))
    assert pauses == [0.0, 0.5, 1.0, 2.0, 4.0]


def test_one_that_cannot_be_started_is_tried_again(stage):
    stage = stage()
    stage.pushes()
    stage.crew.refuses = True
    stage.loses()
    stage.look(n=3)
    assert stage.crew.away == {"actor-0.0"}
    stage.crew.refuses = False
    stage.look(seconds=31)
    assert stage.crew.replaced == [("actor-0.0", 1, 0)]


def test_who_dies_just_after_a_look_is_left_to_the_next_one(stage):
    stage = stage()
    stage.pushes()
    assert stage.crew.guarded == {"actor-0.0", "actor-0.1", "learner-0.0"}
    assert stage.loses() and stage.crew.guarded == {"actor-0.1", "learner-0.0"}
    stage.loses("actor-0.1", 1)  # at once: that is a mistake
    assert stage.crew.guarded == {"learner-0.0"}


def test_nobody_is_guarded_when_the_stream_ends(stage):
    stage = stage()
    stage.supervisor.close()
    assert stage.crew.guarded == set()


def test_nobody_is_replaced_when_the_stream_has_ended(stage):
    stage = stage()
    stage.pushes()
    stage.ended = True
    assert stage.loses() == []
    stage.supervisor.close()
    stage.ended = False
    assert stage.look() == []


def test_who_is_not_ready_at_the_end_is_not_waited_for(stage):
    stage = stage()
    stage.pushes()
    stage.loses()
    stage.look()
    stage.supervisor.close()
    assert stage.crew.processes["actor-0.0"].status == -signal.SIGKILL
    assert stage.crew.away == {"actor-0.0"}


def hangs(stage, seconds):
    """Only the other actor reports."""
    for _ in range(round(seconds / 0.1)):
        stage.report("actor-0.1")
        told = stage.look(0.1)
        if told:
            return told
    return []


def test_one_that_does_not_come_out_of_a_step_is_asked_for_its_stack_and_replaced(stage):
    stage = stage("environment.step_seconds=5")
    stage.pushes()
    process = stage.crew.processes["actor-0.0"]
    assert hangs(stage, 4.9) == []
    assert process.signals == []
    [told] = hangs(stage, 2)
    assert process.signals == [signal.SIGUSR2]
    assert told.startswith("actor-0.0 hung: a step took more than 5 s (environment.step_seconds)")


def test_steps_that_are_only_slow_are_learned(stage):
    stage = stage("environment.step_seconds=5")
    assert hangs(stage, 40) == []  # before its first trajectory
    stage.report()
    stage.look()
    stage.pushes()
    assert hangs(stage, 100) == []
    assert hangs(stage, 30) != []


def test_one_that_is_never_ready_is_replaced_too_but_much_later(monkeypatch):
    stage = Stage(monkeypatch, "environment.step_seconds=5")
    process = stage.crew.processes["actor-0.0"]
    assert hangs(stage, 10 * 5 + 119) == []
    assert process.signals == []
    [told] = hangs(stage, 3)
    assert process.signals == [signal.SIGUSR2]
    assert told.startswith("actor-0.0 hung: it was not ready after more than 170 s")
    stage.look(n=30)  # after a pause: it had come to nothing
    assert stage.crew.replaced == [("actor-0.0", 1, 0)]
    stage.transport.close()


def test_a_launcher_that_was_stopped_takes_nobody_to_hang(stage):
    stage = stage("environment.step_seconds=5")
    stage.pushes()
    for _ in range(3):
        assert stage.look(seconds=600) == []
    assert stage.crew.processes["actor-0.0"].signals == []


def test_counters_outlive_who_counts(stage):
    stage = stage()
    counts = stage.counts()
    thread = threading.Thread(target=lambda: stage.pushes(5))
    thread.start()
    thread.join()
    assert counts[Count.PUSHED] == 5
    assert np.shares_memory(counts, live_counts(stage.transport, "actor-0.0"))
