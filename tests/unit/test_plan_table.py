"""A plan in words and numbers."""

import dataclasses
import re

import pytest
from profiles import graded

from tianji.core.wording import per_second
from tianji.strategy.plan.plan_text import describe
from tianji.strategy.plan.solver import PlanRequest, solve
from tianji.strategy.plan.split import Bound

COSTS = graded()
CHOICES = solve(COSTS, PlanRequest(8))


def test_the_plan_and_its_numbers_are_said():
    text = describe(COSTS, CHOICES, None)
    assert f"{CHOICES[0].split.name}: " in text
    assert f"produced {CHOICES[0].prediction.production:,.0f} steps/s" in text


def test_what_larger_batches_would_bring_is_said_where_it_was_measured():
    assert "samples/s in batches" not in describe(COSTS, CHOICES, None)
    first = COSTS.learners[0]
    larger = dataclasses.replace(first, batch=400, update_seconds=0.019)
    costs = dataclasses.replace(COSTS, learners=(first, larger, *COSTS.learners[1:]))
    text = describe(costs, solve(costs, PlanRequest(8, learner_cores=1)), None)
    assert (
        "9,091 samples/s in batches of 100, 20,000 samples/s in batches of 400 (--batch-scale 4)"
    ) in " ".join(text.split())


def test_who_acts_for_the_actors_has_a_line():
    costs = graded(inference=True)
    acting = [dataclasses.replace(cost, act_seconds=cost.envs * 1e-4) for cost in costs.actors]
    costs = dataclasses.replace(costs, actors=tuple(acting), waking_seconds=5e-5)
    text = describe(costs, solve(costs, PlanRequest(3, envs=4)), None)
    words = "once for all of them in 400 us, 10,000 steps/s; it and an actor wake each other in 50"
    assert f"acts for the actors of its group on a core of its own: {words}" in " ".join(
        text.split()
    )
    assert "inference" not in describe(COSTS, CHOICES, None)


@pytest.mark.parametrize("width", [None, 120])
def test_every_row_ends_with_what_limits_its_split(width):
    """Whatever the limits are: here each row is given another one."""
    bounds = list(Bound)
    rows = [
        dataclasses.replace(
            choice,
            prediction=dataclasses.replace(choice.prediction, bound=bounds[i % len(bounds)]),
        )
        for i, choice in enumerate(CHOICES)
    ]
    lines = describe(COSTS, rows[:-1], rows[-1], width).splitlines()
    table = lines[lines.index("") + 1 :]
    assert table[0].endswith("  limit") and len(table) == 1 + len(rows)
    assert "could make" in table[0]
    for line, row in zip(table[1:], rows, strict=True):
        assert line.endswith(f"  {row.prediction.bound}")
    assert table[1].startswith("plan ") and table[-1].startswith("config ")


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.8, "L9A9 would be nearer to equal, -20 %"),
        (1.0, "L9A9 would be nearer to equal, +0 %"),
        (1.02, "L9A9 would be nearer to equal, +2 %"),
    ],
)
def test_a_split_nearer_to_equal_is_said_to_be_as_fast_as_it_is(share, words):
    chosen = CHOICES[0]
    made = chosen.prediction.production
    lopsided = dataclasses.replace(chosen.prediction, could_produce=made, could_take=2 * made)
    equal = dataclasses.replace(
        chosen.prediction, production=share * made, could_produce=made, could_take=made
    )
    nearer = dataclasses.replace(chosen.split, groups=9, learners=1, actors=1, buffer_alone=False)
    choices = [
        dataclasses.replace(chosen, prediction=lopsided),
        dataclasses.replace(chosen, split=nearer, prediction=equal),
    ]
    assert words in describe(COSTS, choices, None, width=400)


def test_no_split_is_named_where_none_is_nearer_to_equal():
    slow = graded(step=0.1)
    for cores in (2, 4):
        text = describe(slow, solve(slow, PlanRequest(cores)), None, width=400)
        assert "sample-bound" in text and "nearer to equal" not in text


def test_what_groups_cost_is_said():
    costs = graded(step=1e-5, update=0.1, speedup=1.0)
    assert "a result takes more steps" in describe(
        costs, solve(costs, PlanRequest(16)), None, width=400
    )
    assert "more steps" not in describe(
        costs, solve(costs, PlanRequest(16, groups=1)), None, width=400
    )


def test_groups_that_nobody_averages_are_not_said_to_have_a_reducer():
    choices = solve(COSTS, PlanRequest(16, groups=2))
    assert "averaged by a reducer" in describe(COSTS, choices, None, width=400)
    text = describe(COSTS, choices, None, width=400, is_fused=False)
    assert "reducer" not in text and "use_group_parallel" in text


@pytest.mark.parametrize(("groups", "advised"), [(4, False), (8, True)])
def test_fewer_groups_are_advised_only_where_hosts_can_have_them(groups, advised):
    """Each of four hosts has one at least: `--groups 1` would be refused."""
    text = describe(COSTS, solve(COSTS, PlanRequest(16, hosts=4, groups=groups)), None, width=400)
    assert "a result takes more steps than with one" in text and "group_num=1" not in text
    assert ("global_cfg.group_num=4" in text) is advised


def test_memory_of_several_hosts_is_told_in_all_and_for_each():
    one = describe(
        COSTS, solve(COSTS, PlanRequest(4, groups=1, actors=1, buffer_alone=False)), None
    )
    assert "memory      120 MiB\n" in one
    wish = PlanRequest(4, hosts=3, groups=3, actors=1, buffer_alone=False)
    assert "memory      360 MiB in all, 120 MiB on each host\n" in describe(
        COSTS, solve(COSTS, wish), None
    )


@pytest.mark.parametrize("alternates", [True, False])
@pytest.mark.parametrize("groups", [1, 3])
def test_the_numbers_of_equation_1_go_together(groups, alternates):
    """Where roles take turns they depend on how many groups do, all three of them."""
    costs = graded(
        step=0.01, receive=1e-5, contention=3.0, on_policy=True, alternates=alternates,
        ratio=1.0, batch=40, pool=40,
    )  # fmt: skip
    text = describe(costs, solve(costs, PlanRequest(16, groups=groups)), None, width=400)
    number = r"([\d.]+) (s|ms|us)"
    found = re.search(rf"T_sp {number}, T_sd {number}, T_rv {number} .* beyond ([\d,]+) act", text)
    words, units = found.groups(), {"s": 1, "ms": 1e-3, "us": 1e-6}
    making, sending, receiving = (float(words[i]) * units[words[i + 1]] for i in (0, 2, 4))
    assert (making + sending) / receiving == pytest.approx(
        float(words[6].replace(",", "")), rel=0.01
    )


def test_what_was_measured_on_fewer_cores_is_said_to_be_extrapolated():
    """The costs are of 16 cores."""
    for cores, hosts, beyond in ((8, 1, False), (64, 1, True), (16, 4, False), (32, 2, True)):
        text = describe(COSTS, solve(COSTS, PlanRequest(cores, hosts)), None)
        assert ("extrapolated: 16 cores were measured" in text) is beyond


@pytest.mark.parametrize("width", [60, 80, 100])
def test_in_a_terminal_no_line_is_longer_than_it(width):
    large = solve(graded(), PlanRequest(64))
    text, whole = (describe(COSTS, large, large[-1], w) for w in (width, None))
    assert max(map(len, text.splitlines())) <= width < max(map(len, whole.splitlines()))
    prose, table = text.split("\n\n")
    assert prose.split() == whole.split("\n\n")[0].split()  # not a word is missing, none is cut
    assert "left out: could make" in table and "limit" in table.splitlines()[0]
    assert "left out" not in whole


def test_more_environments_than_the_configuration_has_are_pointed_out():
    few = dataclasses.replace(COSTS, work=dataclasses.replace(COSTS.work, envs=1))
    assert "actor_cfg.envs=1" in describe(few, CHOICES, None)
    assert "actor_cfg.envs" not in describe(
        COSTS, solve(COSTS, PlanRequest(2, actors=1, envs=1)), None
    )


def test_cores_that_stay_idle_are_counted():
    one, all_ = (
        solve(COSTS, PlanRequest(16, groups=1, actors=2, learner_cores=1)),
        solve(COSTS, PlanRequest(8)),
    )
    used = one[0].split.cores(COSTS.work)
    (line, *_) = describe(COSTS, one, None, cores=16).splitlines()
    assert line.endswith(f"; {16 - used} of 16 cores idle") and used < 5
    assert "idle" not in describe(COSTS, one, None)  # nobody said how many there are
    assert "idle" not in describe(COSTS, all_, None, cores=all_[0].split.cores(COSTS.work))
    assert f"; 1 of {used + 1} cores idle" in describe(COSTS, one, None, cores=used + 1)
    hosts = solve(COSTS, PlanRequest(16, hosts=3, groups=3, actors=2, learner_cores=1))
    assert f"; {16 - used} of 16 cores of each host idle" in describe(COSTS, hosts, None, cores=16)


@pytest.mark.parametrize("width", [None, 60])
def test_a_configuration_that_does_not_fit_is_spoken_of(width):
    def told(*more):
        return " ".join(describe(COSTS, CHOICES, *more).split())

    said = "config its own split needs more cores than these"
    assert said in told(None, width) and said not in told(CHOICES[-1], width)


def test_the_row_of_the_configuration_says_what_it_shares_with_the_plan():
    own = CHOICES[-1]
    text = describe(COSTS, CHOICES, own, changed=["--batch-scale 4", "--gpu"])
    assert "with --batch-scale 4 and --gpu" in text
    assert "--gpu" not in describe(COSTS, CHOICES, own)


def test_a_learner_of_slow_updates_does_not_learn_from_nothing():
    slow = dataclasses.replace(COSTS.learners[0], batch=4, update_seconds=10.0, draw_seconds=0.0)
    larger = dataclasses.replace(slow, batch=16)
    costs = dataclasses.replace(COSTS, learners=(slow, larger))
    text = describe(costs, solve(costs, PlanRequest(8)), None)
    assert "0.4 samples/s in batches of 4, 1.6 samples/s in batches of 16" in text


def test_a_learner_whose_buffer_has_its_own_core_does_not_draw():
    first = COSTS.learners[0]
    larger = dataclasses.replace(first, batch=400, update_seconds=0.019)
    costs = dataclasses.replace(COSTS, learners=(first, larger))
    text = describe(costs, solve(costs, PlanRequest(8, learner_cores=1, buffer_alone=True)), None)
    assert "10,000 samples/s in batches of 100, 21,053 samples/s in batches of 400" in text


def test_actors_that_wait_for_something_else_are_named():
    waiting = dataclasses.replace(
        COSTS, actors=tuple(dataclasses.replace(a, computing=0.04) for a in COSTS.actors)
    )
    assert "need a core for 4 % of their time" in describe(waiting, CHOICES, None, width=400)
    assert "need a core for" not in describe(COSTS, CHOICES, None, width=400)
    shared = solve(waiting, PlanRequest(1))  # a plan that gives nobody a core
    assert "all on one core" in (text := describe(waiting, shared, None, width=400))
    assert "need a core for" not in text


@pytest.mark.parametrize("foreign, is_said", [(0.5, False), (1.4, True)])
def test_others_that_were_at_work_are_named(foreign, is_said):
    costs = dataclasses.replace(graded(), foreign_cores=foreign)
    costs = dataclasses.replace(costs, machine=dataclasses.replace(costs.machine, cores=4))
    text = describe(costs, solve(costs, PlanRequest(cores=4)), None)
    assert ("others      kept 1.4 of 4 cores busy while this was measured" in text) is is_said


def test_what_happens_now_and_then_is_not_nothing():
    assert [per_second(rate) for rate in (0.0, 0.031, 4.2, 9.96, 12_345.6)] == [
        "0", "0.031", "4.2", "10", "12,346",
    ]  # fmt: skip
