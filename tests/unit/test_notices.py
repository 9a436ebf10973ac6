"""What is said about a layout before it runs."""

import pytest

from tianji import config as configs
from tianji.machine.notices import apart, crowding, large_store
from tianji.machine.resources import Share, assign

FOUR = (0, 1, 2, 3)


@pytest.fixture
def config(root):
    def load(*overrides):
        return configs.load(root / "configs/cartpole_dqn.py", list(overrides))

    return load


def crowded(config, cores, alternates=False, usable=None):
    return crowding(assign(config, cores, alternates), alternates, usable)


def test_more_roles_than_cores_are_counted_with_what_each_gets(config):
    words = crowded(config("actor_cfg.num=40"), (0, 1))
    assert "41 processes (40 actors, 1 learner) share 2 cores" in words
    assert "at most 0.049 of one" in words and "tianji plan CONFIG" in words
    assert "sleep or wait" in words  # it is for the user to judge


def test_a_core_for_each_role_is_no_news(config):
    assert crowded(config("actor_cfg.num=3"), FOUR) is None
    assert "5 processes" in crowded(config("actor_cfg.num=4"), FOUR)


def test_roles_that_take_turns_do_not_crowd_each_other(config):
    assert crowded(config("actor_cfg.num=4"), FOUR, alternates=True) is None
    words = crowded(config("actor_cfg.num=8"), FOUR, alternates=True)
    assert "which take turns" in words and "at most 0.5 of one" in words


def test_those_who_share_the_fewest_cores_are_named(config):
    words = crowded(config("actor_cfg.num=6", "learner_cfg.cores=3"), FOUR)
    assert "6 processes (6 actors) share 1 core:" in words


def test_cores_whose_time_is_limited_count_as_fewer(config):
    words = crowded(config("actor_cfg.num=3"), FOUR, usable=2)
    assert "4 processes (3 actors, 1 learner) share 2 cores" in words


def test_a_host_with_nobody_at_work_is_not_crowded():
    assert crowding({"launcher": Share((0,), 1)}, alternates=False) is None


def test_a_single_core_is_always_shared(config):
    assert crowded(config(), (0,)) is None
    assert "share 1 core" in crowded(config("actor_cfg.num=2"), (0,))


def test_a_learner_that_has_all_cores_is_told_who_shares_them(config):
    words = crowded(config("learner_cfg.cores=2"), (0, 1))
    assert "learner_cfg.cores=2 gives 1 learner all of 2 cores" in words
    assert "1 actor will compute on the same ones" in words and "learner_cfg.cores=1," in words
    words = crowded(config("learner_cfg.cores=4", "actor_cfg.num=3"), FOUR)
    assert "3 actors" in words and "learner_cfg.cores=3 or less" in words
    both = ("learner_cfg.num=2", "learner_cfg.cores=2")
    assert "gives 2 learners all of 4 cores" in crowded(config(*both), FOUR)


def test_a_learner_with_cores_of_its_own_is_no_news(config):
    assert crowded(config("learner_cfg.cores=1"), (0, 1)) is None
    assert crowded(config("learner_cfg.cores=3"), FOUR) is None
    assert crowded(config("learner_cfg.cores=2", "actor_cfg.cores=1"), FOUR) is None
    assert crowded(config("learner_cfg.cores=4"), FOUR, alternates=True) is None  # one at a time


def test_groups_that_are_never_averaged_are_pointed_out(config):
    words = apart(config("global_cfg.group_num=4", "global_cfg.use_group_parallel=False"))
    assert "4 groups" in words and "1/4 of the samples" in words and "group 0" in words
    assert apart(config("global_cfg.group_num=4")) is None
    assert apart(config("global_cfg.use_group_parallel=False")) is None


def test_a_large_store_is_worth_a_line_with_what_it_takes_and_what_is_free():
    words = large_store(7 << 30, 1_000_000, 9 << 30, "; not saved")
    assert "1,000,000 samples take 7.00 GiB" in words and "9.00 GiB are free; not saved" in words
    assert "free" not in large_store(7 << 30, 1_000_000, None, "")


def test_a_small_store_is_not():
    assert large_store(1 << 20, 1_000, 9 << 30, "") is None
    assert large_store(7 << 30, None, 9 << 30, "") is None  # as many as are needed
