"""Which rank is which process: groups stay together, and everybody gets a rank."""

from collections import Counter

import pytest
from commands import TASKS
from hypothesis import given
from hypothesis import strategies as st

from tianji.config import load
from tianji.core.errors import TianJiError
from tianji.machine.placement import Offer, n_ranks, place, refuse_wrong_number, shares, table
from tianji.machine.resources import Share
from tianji.roles.role_specs import LAUNCHER, group_of, homes_of

A, B, C = "a/1", "b/2", "c/3"


def job(*overrides, task="echo_dqn.py"):
    return load(TASKS / task, list(overrides))


def hosts_of(config, hosts):
    return {home: hosts[rank] for home, rank in place(config, hosts).items()}


def test_rank_0_is_the_launcher():
    assert place(job(), [A, A, A])[LAUNCHER] == 0


def test_a_group_that_fits_a_machine_stays_there():
    config = job("global_cfg.group_num=2", "actor_cfg.num=2")
    where = hosts_of(config, [A, A, B, B, B, A, A, A])
    del where[LAUNCHER], where["reducer-0.0"]
    by_group = {group: {where[h] for h in where if group_of(h) == group} for group in (0, 1)}
    assert sorted(map(len, by_group.values())) == [1, 1]
    assert by_group[0] != by_group[1]


def test_a_group_takes_the_machine_with_just_enough_room():
    where = hosts_of(job("actor_cfg.num=2"), [A, C, C, C, C, B, B, B])
    assert {where["learner-0.0"], where["actor-0.0"], where["actor-0.1"]} == {B}


def test_a_group_that_fits_nowhere_begins_with_its_learner_where_most_room_is_and_goes_on():
    where = hosts_of(job("actor_cfg.num=5"), [A, A, A, B, B, B, B])
    assert where["learner-0.0"] == B
    assert Counter(where.values()) == {A: 3, B: 4}
    assert [where[f"actor-0.{i}"] for i in range(5)] == [B, B, B, A, A]


def test_the_reducer_and_the_evaluator_are_near_the_launcher():
    config = job("global_cfg.group_num=2", "exp.eval_step=100")
    where = hosts_of(config, [A, A, A, A, A, B, B])
    assert where["reducer-0.0"] == where["evaluator-0.0"] == A


def test_the_reducer_goes_elsewhere_where_the_launcher_has_no_room():
    where = hosts_of(job("global_cfg.group_num=2"), [A, B, B, B, C, C])
    assert where["reducer-0.0"] == B


def test_a_run_on_one_machine_has_its_ranks_in_the_order_of_its_roles():
    ranks = place(job("actor_cfg.num=2", "exp.eval_step=100"), [A] * 5)
    assert ranks == {
        "launcher": 0,
        "learner-0.0": 1,
        "actor-0.0": 2,
        "actor-0.1": 3,
        "evaluator-0.0": 4,
    }


@pytest.mark.parametrize(
    ("overrides", "n"),
    [
        ((), 3),
        (("actor_cfg.num=4",), 6),
        (("buffer_cfg.cores=1",), 4),
        (("exp.eval_step=10",), 4),
        (("global_cfg.group_num=2",), 6),
        (("global_cfg.group_num=2", "learner_cfg.num=2", "actor_cfg.num=3"), 12),
    ],
)
def test_there_is_a_rank_for_every_process(overrides, n):
    config = job(*overrides)
    assert n_ranks(config) == n
    refuse_wrong_number(config, n)


@pytest.mark.parametrize("n", [1, 5, 7])
def test_a_wrong_number_of_ranks_is_answered_with_the_right_one(n):
    with pytest.raises(TianJiError) as refused:
        refuse_wrong_number(job("actor_cfg.num=4"), n)
    text = str(refused.value)
    assert f"mpirun -n 6, not {n}" in text
    assert "1 launcher, 1 learner with its buffer, 4 actors" in text


def test_a_buffer_of_its_own_a_reducer_and_an_evaluator_are_counted_by_name():
    config = job("global_cfg.group_num=2", "buffer_cfg.cores=1", "exp.eval_step=10")
    with pytest.raises(TianJiError) as refused:
        refuse_wrong_number(config, 2)
    counted = "1 launcher, 2 learners, 2 buffers, 2 actors, 1 reducer, 1 evaluator"
    assert counted in str(refused.value)


def test_every_machine_shares_out_its_own_cores():
    config = job("learner_cfg.cores=2", "actor_cfg.cores=1", "actor_cfg.num=2")
    hosts = [A, B, B, B]
    ranks = place(config, hosts)
    offers = {A: Offer((0, 1), 2), B: Offer((4, 5, 6, 7), 4)}
    given = shares(config, ranks, hosts, offers, alternates=False)
    assert given["learner-0.0"] == Share((4, 5), 2)
    assert [given[f"actor-0.{i}"].cores for i in (0, 1)] == [(6,), (7,)]
    assert given[LAUNCHER] == Share((0, 1), 1)


def test_a_learner_has_no_more_threads_than_its_machine_can_keep_busy():
    config, hosts = job(), [A, B, B]
    for usable, threads in ((8, 4), (3, 2), (1, 1)):
        offers = {A: Offer((0, 1), 2), B: Offer(tuple(range(8)), usable)}
        given = shares(config, place(config, hosts), hosts, offers, alternates=False)
        assert given["learner-0.0"] == Share(tuple(range(8)), threads)


def test_cores_that_a_machine_has_not_are_refused_with_its_name():
    config = job("learner_cfg.cores=4")
    hosts = [A, B, B]
    with pytest.raises(TianJiError, match=r"^b: .*want 4 cores.*offers 2"):
        offers = {A: Offer((0,), 1), B: Offer((0, 1), 2)}
        shares(config, place(config, hosts), hosts, offers, alternates=False)


def test_the_table_has_a_line_for_every_role():
    config = job("actor_cfg.num=2")
    ranks = place(config, [A, A, B, B])
    given = {home: Share((0, 1, 2, 3, 6), 1) for home in ranks} | {LAUNCHER: Share((0,), 1)}
    hosts = ["a", "a", "node-b", "node-b"]
    places = {home: (rank, hosts[rank]) for home, rank in ranks.items()}
    lines = table(config, "rank", places, given).splitlines()
    assert [line.split(maxsplit=3) for line in lines] == [
        ["role", "rank", "host", "cores"],
        ["launcher", "0", "a", "0"],
        ["actor-0.1", "1", "a", "0-3, 6"],
        ["learner-0.0", "2", "node-b", "0-3, 6"],
        ["buffer-0.0", "2", "node-b", "0-3, 6"],
        ["actor-0.0", "3", "node-b", "0-3, 6"],
    ]
    assert (
        len(
            {
                line.index(word)
                for line in lines
                for word in ("  a  ", "  node-b  ", "  host  ")
                if word in line
            }
        )
        == 1
    )


@given(
    n_groups=st.integers(1, 3),
    n_actors=st.integers(1, 4),
    n_learners=st.integers(1, 2),
    evaluates=st.booleans(),
    data=st.data(),
)
def test_every_process_gets_one_rank_and_no_rank_is_given_twice(
    n_groups, n_actors, n_learners, evaluates, data
):
    overrides = [f"global_cfg.group_num={n_groups}", f"actor_cfg.num={n_actors}"]
    overrides += [f"learner_cfg.num={n_learners}"] + ["exp.eval_step=10"] * evaluates
    config = job(*overrides)
    n = n_ranks(config)
    hosts = data.draw(st.lists(st.sampled_from([A, B, C]), min_size=n, max_size=n))
    ranks = place(config, hosts)
    assert set(ranks) == set(homes_of(config).values())
    assert sorted(ranks.values()) == list(range(n))
    assert ranks[LAUNCHER] == 0
