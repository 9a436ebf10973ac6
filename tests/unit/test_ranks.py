"""The ranks of a job as rank 0 sees them: who may take part, and who may go."""

import time
from types import SimpleNamespace

import pytest
from commands import TASKS

from tianji.config import load
from tianji.core.errors import SAYS_MISTAKE, SAYS_SPENT, TianJiError
from tianji.engines import ranks as module
from tianji.engines.lost_process import RoleFailed
from tianji.engines.ranks import Ranks
from tianji.machine.resources import Share

ABOUT = {"version of tianji": "1.0", "command line": ["train", "job.py"], "configuration": {}}
HELLO = ABOUT | {"cores": [0, 1], "usable": 2}


class World:
    """Four ranks on two machines, and what each of them says at first."""

    def __init__(self, *said):
        self.size = 4
        self.hosts, self.host_names = ["a/1", "a/1", "b/1", "b/1"], ["a", "a", "b", "b"]
        self._said = [[words] for words in said or [HELLO] * 3]
        self.dismissed = False

    def hear(self, rank, seconds):
        words = self._said[rank - 1]
        return words[0] if words else None

    def dismiss(self):
        self.dismissed = True


class Courier:
    def __init__(self):
        self.left, self.lost, self.quiet, self.given_up = {}, set(), {}, []

    def silence(self, rank):
        return self.quiet.get(rank, 0.0)

    def is_silent(self, rank, seconds):
        return self.silence(rank) > seconds

    def give_up(self, rank):
        self.given_up.append(rank)


@pytest.fixture
def config():
    return load(TASKS / "echo_dqn.py", ["actor_cfg.num=2"])


@pytest.fixture
def gathered(config, tmp_path):
    """Ranks that are at work, and the courier that tells of them."""
    ranks = Ranks(World(), config)
    ranks.gather(ABOUT)
    ranks._logs = tmp_path
    courier = Courier()
    ranks.watch(SimpleNamespace(courier=courier, failure=None))
    return ranks, courier


def ended(home):
    return True


def goes_on(home):
    return False


# ---------------------------------------------------------------------------------- who takes part


def test_ranks_that_say_the_same_are_placed(config):
    ranks = Ranks(World(HELLO, HELLO, HELLO), config)
    ranks.gather(ABOUT)
    assert sorted(ranks.ranks.values()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("differs", "words"),
    [
        ({"version of tianji": "0.9"}, "its version of tianji is 0.9, that of rank 0 is 1.0"),
        ({"command line": ["train", "other.py"]}, "its command line is ['train', 'other.py']"),
        ({"configuration": {"job.py": "abc"}}, "its configuration is {'job.py': 'abc'}"),
    ],
)
def test_a_rank_of_another_run_is_refused_and_named(config, differs, words):
    ranks = Ranks(World(HELLO, HELLO | differs, HELLO), config)
    with pytest.raises(TianJiError) as refused:
        ranks.gather(ABOUT)
    assert str(refused.value).startswith("rank 2 on b: ")
    assert words in str(refused.value)
    assert "start the same command with the same files and packages" in str(refused.value)


def test_a_version_that_says_less_of_itself_is_refused_too(config):
    other = {"version of tianji": "9.0", "cores": [0], "usable": 1}
    less = {what: said for what, said in HELLO.items() if what != "version of tianji"}
    for hello in (other, less):
        with pytest.raises(TianJiError, match="rank 1 on a: its version of tianji is"):
            Ranks(World(hello, HELLO, HELLO), config).gather(ABOUT)


def test_a_rank_that_says_nothing_is_named(config):
    world = World(HELLO, HELLO, HELLO)
    world._said[2] = []
    with pytest.raises(TianJiError, match="rank 3 on b said nothing"):
        Ranks(world, config).gather(ABOUT)


def test_a_wrong_number_is_refused_before_anybody_is_heard(config):
    world = World()
    world.size, world._said = 3, []
    with pytest.raises(TianJiError, match="mpirun -n 4, not 3"):
        Ranks(world, config).gather(ABOUT)


def test_the_tightest_time_of_a_machine_bounds_its_threads_and_is_told(monkeypatch):
    """A container limits the time and not the cores: so it is in the process engine too."""
    config = load(TASKS / "echo_dqn.py", ["actor_cfg.num=2"])
    monkeypatch.setattr(module.resources, "usable_here", lambda: 8)
    eight = ABOUT | {"cores": list(range(8))}
    world = World(eight | {"usable": 8}, eight | {"usable": 8}, eight | {"usable": 2})
    world.hosts, world.host_names = ["a/1", "b/1", "b/1", "b/1"], ["a", "b", "b", "b"]
    ranks = Ranks(world, config)
    ranks.gather(ABOUT)
    given = ranks.shares(alternates=False)
    assert given["learner-0.0"] == Share(tuple(range(8)), 1)
    [words] = ranks.crowding(given, alternates=False)
    assert words.startswith("b: 3 processes (2 actors, 1 learner) share 2 cores")


# --------------------------------------------------------------------------------------- who may go


def test_nothing_is_wrong_while_all_are_there(gathered):
    ranks, _ = gathered
    ranks.check(goes_on)
    assert ranks.lost() == []
    assert set(ranks.still_running()) == {"learner-0.0", "actor-0.0", "actor-0.1"}


def test_a_lost_actor_is_told_once_and_training_goes_on(gathered):
    ranks, courier = gathered
    courier.lost.add(ranks.ranks["actor-0.1"])
    ranks.check(goes_on)
    [(home, words)] = ranks.lost()
    assert home == "actor-0.1"
    assert words == f"{_where(ranks, home)} was lost; training goes on without it"
    assert ranks.lost() == []
    assert "actor-0.1" not in ranks.still_running()


def test_the_loss_of_all_actors_ends_the_run(gathered):
    ranks, courier = gathered
    courier.lost |= {ranks.ranks["actor-0.0"], ranks.ranks["actor-0.1"]}
    with pytest.raises(RoleFailed, match=r"actor-0\.0 .*, the last actor of its group, was lost"):
        ranks.check(goes_on)


def test_the_loss_of_a_learner_ends_the_run_and_nobody_is_waited_for(gathered, tmp_path):
    ranks, courier = gathered
    (tmp_path / "learner-0.0.log").write_text("Segmentation fault\n")
    courier.lost.add(ranks.ranks["learner-0.0"])
    with pytest.raises(RoleFailed) as failed:
        ranks.check(goes_on)
    assert str(failed.value).startswith(f"learner-0.0 {_where(ranks, 'learner-0.0')} was lost")
    assert "Segmentation fault" in str(failed.value)
    assert ranks.still_running() == []


@pytest.mark.parametrize(
    ("status", "meant", "users_mistake"),
    [(1, 1, False), (SAYS_SPENT, 1, False), (SAYS_MISTAKE, 2, True)],
)
def test_a_rank_that_has_failed_ends_the_run_with_its_last_words(
    gathered, tmp_path, status, meant, users_mistake
):
    ranks, courier = gathered
    (tmp_path / "actor-0.0.log").write_text("ValueError: no\n")
    courier.left[ranks.ranks["actor-0.0"]] = status
    with pytest.raises(RoleFailed) as failed:
        ranks.check(ended)
    where = _where(ranks, "actor-0.0")
    assert (
        str(failed.value) == f"actor-0.0 {where} failed with exit status {meant}:\nValueError: no"
    )
    assert failed.value.users_mistake == users_mistake


def test_a_goodbye_may_overtake_the_news_that_the_stream_has_ended(gathered, monkeypatch):
    ranks, courier = gathered
    courier.left[ranks.ranks["actor-0.0"]] = 0
    ranks.check(goes_on)
    now = time.monotonic()
    monkeypatch.setattr(module.time, "monotonic", lambda: now + module.OVERTAKE_SECONDS + 1)
    ranks.check(ended)
    with pytest.raises(RoleFailed, match="ended before the run did"):
        ranks.check(goes_on)


def test_an_evaluator_that_has_failed_is_told_and_training_goes_on(tmp_path):
    config = load(TASKS / "echo_dqn.py", ["exp.eval_step=100"])
    ranks, courier = Ranks(World(), config), Courier()
    ranks.gather(ABOUT)
    ranks._logs = tmp_path
    ranks.watch(SimpleNamespace(courier=courier, failure=None))
    (tmp_path / "evaluator-0.0.log").write_text("ValueError: stage fright\n")
    courier.left[ranks.ranks["evaluator-0.0"]] = 1
    ranks.check(goes_on)
    [(home, words)] = ranks.lost()
    assert home == "evaluator-0.0"
    assert "failed with exit status 1; training goes on without it" in words
    assert words.endswith("its last words:\nValueError: stage fright")


def fused(folder, *overrides):
    """Two groups with a reducer, and the courier that tells of them."""
    config = load(TASKS / "echo_dqn.py", ["global_cfg.group_num=2", "actor_cfg.num=1", *overrides])
    world, courier = World(*[HELLO] * 5), Courier()
    world.size, world.hosts, world.host_names = 6, ["a/1"] * 6, ["a"] * 6
    ranks = Ranks(world, config)
    ranks.gather(ABOUT)
    ranks._logs = folder
    ranks.watch(SimpleNamespace(courier=courier, failure=None))
    return ranks, courier


def go(ranks, courier, home, how):
    """Has a process go without having ended its work."""
    if how == "killed":
        courier.lost.add(ranks.ranks[home])
    else:
        courier.left[ranks.ranks[home]] = 1


@pytest.mark.parametrize(
    ("how", "words"), [("killed", "was lost"), ("raises", "failed with exit status 1")]
)
def test_a_reducer_that_is_gone_is_told_once_and_training_goes_on(tmp_path, how, words):
    """As docs/cluster.md and docs/faults.md have it."""
    ranks, courier = fused(tmp_path)
    go(ranks, courier, "reducer-0.0", how)
    ranks.check(goes_on)
    then = "training goes on without it, and the groups are not averaged any more"
    assert ranks.lost() == [("reducer-0.0", f"{_where(ranks, 'reducer-0.0')} {words}; {then}")]
    assert ranks.lost() == []
    assert "reducer-0.0" not in ranks.still_running()


@pytest.mark.parametrize("how", ["killed", "raises"])
def test_a_reducer_whose_fusions_end_the_run_is_needed(tmp_path, how):
    ranks, courier = fused(tmp_path, "global_cfg.exit_val.fusion_step=100")
    go(ranks, courier, "reducer-0.0", how)
    with pytest.raises(RoleFailed, match=r"reducer-0\.0 "):
        ranks.check(goes_on)


def test_a_courier_that_has_failed_ends_the_run_and_nobody_is_waited_for(gathered):
    ranks, courier = gathered
    failure = "Traceback\nKeyError: (3, 1)\n"
    ranks.watch(SimpleNamespace(courier=courier, failure=failure))
    with pytest.raises(RoleFailed, match=r"launcher \(rank 0 on a\) carries no messages") as failed:
        ranks.check(goes_on)
    assert str(failed.value).endswith("KeyError: (3, 1)")
    assert ranks.still_running() == []


def test_silent_ranks_are_named_and_given_up(gathered):
    ranks, courier = gathered
    limit = ranks._config.parallel.global_cfg.link_seconds
    for home in ("learner-0.0", "actor-0.0"):
        courier.quiet[ranks.ranks[home]] = limit + 1
    with pytest.raises(RoleFailed, match="did not answer for 20 s") as failed:
        ranks.check(goes_on)
    assert all(_where(ranks, home) in str(failed.value) for home in ("learner-0.0", "actor-0.0"))
    assert len(courier.given_up) == 2
    assert ranks.still_running() == []  # without a learner nobody is waited for


def test_those_who_answer_are_waited_for_when_an_actor_does_not(gathered):
    ranks, courier = gathered
    courier.quiet[ranks.ranks["actor-0.0"]] = 1e9
    with pytest.raises(RoleFailed, match="did not answer"):
        ranks.check(goes_on)
    assert "learner-0.0" in ranks.still_running()


def test_whoever_has_left_or_was_lost_is_not_silent(gathered):
    ranks, courier = gathered
    courier.left[ranks.ranks["actor-0.0"]] = 0
    courier.lost.add(ranks.ranks["actor-0.1"])
    courier.quiet = {ranks.ranks[home]: 1e9 for home in ("actor-0.0", "actor-0.1")}
    ranks.check(ended)


@pytest.mark.parametrize(
    ("quiet", "words"),
    [(None, "it was killed"), ("one", "it was killed"), ("host", "a machine was lost: ")],
)
def test_an_mpirun_that_has_gone_ends_the_run_and_says_what_it_took_along(
    gathered, monkeypatch, quiet, words
):
    ranks, courier = gathered
    away = [rank for rank, host in ranks.hosts.items() if host != ranks.hosts[0]]
    assert len(away) > 1
    for rank in {None: [], "one": away[:1], "host": away}[quiet]:
        courier.quiet[rank] = module.QUIET_SECONDS + 1
    monkeypatch.setattr(module.os, "getppid", lambda: -1)
    ranks.check(goes_on)  # those who do not answer are told apart first
    now = time.monotonic()
    monkeypatch.setattr(module.time, "monotonic", lambda: now + module.ORPHAN_SECONDS + 1)
    with pytest.raises(RoleFailed, match=f"mpirun has ended although the run had not: {words}"):
        ranks.check(goes_on)


def _where(ranks, home):
    rank = ranks.ranks[home]
    return f"(rank {rank} on {ranks.hosts[rank]})"
