"""Figure 1: the same costs, scheduled as different systems would."""

import dataclasses
import sys

import benches  # noqa: F401
import figure1
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import profile
from systems import picture
from systems.styles import STYLES, as_planned, schedules
from systems.timeline import Doing

from tianji.strategy.plan import plan_file
from tianji.strategy.plan.plan_file import Plan
from tianji.strategy.plan.profile import ActorCost
from tianji.strategy.plan.solver import NOISE, PlanRequest, solve
from tianji.strategy.simulate.core_layout import Layout, costs_of
from tianji.strategy.simulate.simulator import simulate

JOB = profile(step=0.2e-3, send=20e-6, receive=60e-6, draw=0.2e-3, update=1e-3)
FOUR = Layout(actors=4)


@pytest.fixture(scope="module")
def drawn():
    return {schedule.style: schedule for schedule in schedules(JOB, FOUR)}


def test_every_row_is_accounted_for_at_any_time(drawn):
    for schedule in drawn.values():
        for row, of in schedule.timeline.shares(schedule.start, schedule.end).items():
            assert sum(of.values()) == pytest.approx(1, abs=2e-3), (schedule.style, row)


def test_nobody_does_two_things_at_once(drawn):
    for schedule in drawn.values():
        refuse_overlaps(schedule)


def refuse_overlaps(schedule):
    last = {}
    for block in sorted(schedule.timeline.blocks, key=lambda block: block.start):
        assert block.start >= last.get(block.row, 0.0) - 1e-9, (schedule.style, block)
        last[block.row] = block.end


def test_each_style_has_the_dependencies_that_the_paper_says(drawn):
    waits = {
        name: {d for d, share in s.idle().items() if share > 1e-3} for name, s in drawn.items()
    }
    one, two, three = Doing.WEIGHTS, Doing.ACTION, Doing.TRAJECTORIES
    assert {one, three} <= waits["Gorila"]
    assert {one, two} <= waits["SEED"]
    assert {one, three} <= waits["A3C"]
    assert three in waits["ApeX"] and one not in waits["ApeX"]
    assert not waits["ours"] & {one, two, three}


seconds = st.floats(1e-5, 1e-2)


@settings(max_examples=20)  # of a fifth of a second each
@given(
    step=seconds,
    update=seconds,
    drawing=st.floats(0.01, 1.0),  # of an update
    receiving=st.floats(0.001, 0.05),  # of a rollout
    ratio=st.sampled_from([0.5, 1.0, 4.0]),
    actors=st.sampled_from([2, 4, 7]),
)
def test_ours_as_planned_makes_most_of_the_same_cores_whatever_they_cost(
    step, update, drawing, receiving, ratio, actors
):
    costs = dict(step=step, update=update, draw=drawing * update, receive=receiving * 16 * step)
    job, layout = profile(send=1e-6, ratio=ratio, **costs), Layout(actors=actors)
    planned = as_planned(job, layout)
    found = {s.style: s for s in schedules(job, layout, ours=planned)}
    assert found["ours"].cores <= actors + 1
    assert found["ours"].split == f"L{planned.groups}A{planned.groups * planned.actors}" + (
        "+B" * planned.buffer_alone
    )
    ours = found.pop("ours").consumption
    assert ours >= (1 - NOISE) * max(each.consumption for each in found.values())


def test_several_groups_are_one_of_them_so_many_times():
    one, three = (
        schedules(JOB, FOUR, ("ours",), ours=Layout(groups=n, actors=2))[0] for n in (1, 3)
    )
    assert three.consumption == pytest.approx(3 * one.consumption)
    assert three.idle() == one.idle() and (one.cores, three.cores) == (3, 9)
    assert three.split == "L3A6" and three.heading.startswith(
        "ours: 9 cores (3 groups, one is drawn), idle"
    )


@pytest.mark.parametrize("ratio", [0.5, 4.0])
def test_a_buffer_as_busy_as_its_learner_works_while_it_does(ratio):
    job = profile(step=1e-5, update=1e-3, draw=1e-3, ratio=ratio)
    alone = simulate(job, Layout(actors=1, buffer_alone=True))
    assert alone.consumption == pytest.approx(job.work.batch / 1e-3, rel=0.05)


def test_a_buffer_with_a_core_of_its_own_leaves_the_others_an_actor_more():
    found = {s.style: s for s in schedules(JOB, Layout(actors=4, buffer_alone=True))}
    assert {s.cores for s in found.values()} == {6}
    assert found["ours"].split == found["ApeX"].split == "L1A4+B"
    assert found["Gorila"].split == found["SEED"].split == "L1A5"
    assert found["A3C"].split == "L3A3"


@pytest.mark.parametrize("work", [dict(on_policy=True), dict(alternates=True), dict(pool=64)])
def test_no_other_split_is_planned_where_it_would_change_the_job(work):
    assert as_planned(profile(update=1e-1, **work), FOUR) == FOUR


def test_ours_makes_most_of_five_cores_with_costs_that_need_four_actors(drawn):
    per_core = {name: s.consumption / s.cores for name, s in drawn.items()}
    assert max(per_core, key=lambda name: per_core[name]) == "ours"
    assert {s.cores for name, s in drawn.items() if name != "A3C"} == {5}


@pytest.mark.parametrize("learners, cores", [(1, 4), (2, 1), (2, 2)])
def test_learners_with_several_cores_are_counted_as_such(learners, cores):
    layout = Layout(actors=6, learners=learners, learner_cores=cores)
    each = learners * cores
    for schedule in schedules(JOB, layout):
        most = 6 + each
        least = most - each if schedule.style == "A3C" else most  # of workers that are as large
        assert least <= schedule.cores <= most, schedule.style
        busy = schedule.timeline.shares(schedule.start, schedule.end)
        idle = sum(of.get(Doing.TRAJECTORIES, 0.0) * (each if row.endswith("L") else 1)
                   for row, of in busy.items()) / schedule.cores  # fmt: skip
        assert schedule.idle()[Doing.TRAJECTORIES] == pytest.approx(idle)
        of_each = " in each worker" * (schedule.split != f"L{learners}A6" and "B" not in busy)
        assert f" cores ({each} to learn{of_each}), idle" in schedule.heading


def test_training_in_turns_is_gorilas_schedule_whoever_does_it():
    turns = profile(batch=512, pool=512, warmup=0, on_policy=True, alternates=True)
    gorila, ours = schedules(turns, FOUR, ("gorila", "ours"))
    assert ours.style == "ours" and ours.production == gorila.production
    asynchronous = schedules(
        profile(batch=512, pool=512, warmup=0, on_policy=True), FOUR, ("ours",)
    )
    assert asynchronous[0].production > 1.1 * ours.production


def test_a_gorila_cycle_is_rollout_and_updates_one_after_the_other():
    (even,) = schedules(JOB, FOUR, ("gorila",), spread=0.0)
    cycle = 16 * 0.2e-3 + 20e-6 + 4 * 60e-6 + 4 * 1.2e-3
    assert even.production == pytest.approx(4 * 128 / cycle, rel=1e-6)
    waits = cycle - 16 * 0.2e-3 - 20e-6
    assert even.idle()[Doing.WEIGHTS] == pytest.approx(4 / 5 * waits / cycle, rel=1e-6)


def test_a_seed_step_is_inference_for_all_and_simulation_one_after_the_other():
    job = profile(step=1e-3, act=0.25e-3, send=0.0, update=1e-3)
    (even,) = schedules(job, FOUR, ("seed",), spread=0.0)
    cycle = 16 * (4 * 0.25e-3 + 0.75e-3) + 4 * 1e-3
    assert even.production == pytest.approx(4 * 128 / cycle, rel=1e-6)
    assert even.idle()[Doing.WEIGHTS] == pytest.approx(4 / 5 * 4e-3 / cycle, rel=1e-6)


@pytest.mark.parametrize("actors", [16, 24, 64])
def test_a_seed_cycle_that_is_longer_than_acting_and_learning_is_counted(actors):
    """Inference of all actors' environments, one after the other, is most of it."""
    job = profile(step=1e-3, act=0.8e-3, batch=1_024, ratio=0.25)
    (seed,) = schedules(job, Layout(actors=actors), ("seed",), spread=0.0)
    cycle = 16 * (actors * 0.8e-3 + 0.2e-3) + actors * 0.25 / 8 * 1e-3
    assert seed.production == pytest.approx(actors * 128 / cycle, rel=0.01)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("actors", [1, 16])
def test_updates_that_many_rollouts_make_one_of_are_counted(style, actors):
    job = profile(step=1e-3, act=0.4e-3, batch=1_024, ratio=0.25)
    (found,) = schedules(job, Layout(actors=actors), (style,))
    assert found.consumption == pytest.approx(0.25 * found.production, rel=0.08)


def test_inference_is_never_more_than_a_step():
    """Beyond what was measured the line of the one crosses that of the other."""
    costs = (1, 1e-4, 1e-5), (64, 8e-4, 7.5e-4)
    few, many = (ActorCost(n, step, 0, 0, 1, 1, act) for n, step, act in costs)
    job = dataclasses.replace(JOB, actors=(few, many))
    for schedule in schedules(job, Layout(actors=2, envs=512)):
        refuse_overlaps(schedule)
        assert Doing.SIMULATE not in {block.doing for block in schedule.timeline.blocks}


def test_ours_on_the_diagram_is_what_the_model_says():
    (ours,) = schedules(JOB, FOUR, ("ours",), spread=0.0)
    found = simulate(JOB, FOUR)
    assert ours.consumption == pytest.approx(found.consumption, rel=0.05)
    assert ours.idle()[Doing.ROOM] == pytest.approx(4 / 5 * found.idle.room, abs=0.02)


def test_priorities_cost_what_they_are_said_to():
    """Above the balance an ApeX learner waits for priorities, receiving and the next draw."""
    (apex,) = schedules(JOB, Layout(actors=10), ("apex",), spread=0.0)
    cycle = 1e-3 + 0.2e-3 + (60e-6 + 0.2e-3) + 0.2e-3  # update, priorities, receive, draw
    assert apex.consumption == pytest.approx(128 / cycle, rel=0.05)


def test_training_that_learns_once_has_no_priorities():
    once = profile(pool=128, warmup=0, draw=1e-4, on_policy=True)
    assert costs_of(once, FOUR).takes_once
    for job, is_there in ((once, False), (JOB, True)):
        (apex,) = schedules(job, FOUR, ("apex",))
        assert (Doing.PRIORITY in {block.doing for block in apex.timeline.blocks}) == is_there


def test_the_same_seed_draws_the_same():
    first, second, other = (schedules(JOB, FOUR, seed=seed) for seed in (0, 0, 1))
    blocks = [[each.timeline.blocks for each in drawn] for drawn in (first, second, other)]
    assert blocks[0] == blocks[1] != blocks[2]


# What is drawn


def test_every_style_is_drawn_on_one_scale_from_where_the_first_actor_begins(drawn):
    styles = list(drawn.values())
    panels = picture.draw(styles).axes
    [seconds] = {1e-3 * axes.get_xlim()[1] for axes in panels}
    for schedule, axes in zip(styles, panels, strict=True):
        begun = picture.begin(schedule, seconds)
        assert begun in schedule.timeline.begun[schedule.timeline.rows()[0]]
        assert schedule.start < begun and begun + seconds <= schedule.end + 1e-12
        labels = [label.get_text().split()[0] for label in axes.get_yticklabels()]
        assert labels == schedule.timeline.rows()


def test_many_actors_are_not_all_drawn():
    (many,) = schedules(JOB, Layout(actors=30), ("gorila",))
    assert picture.drawn_rows(many) == [*(f"A{i}" for i in range(6)), "L"]


def test_the_script_prints_a_line_for_each_style_and_draws_them(tmp_path, monkeypatch, capsys):
    chosen = solve(JOB, PlanRequest(4))[0]
    plan_file.write(Plan(JOB, chosen.split), tmp_path / "plan.json")
    words = [tmp_path / "plan.json", "--as-named", "--buffer-alone", "--out", tmp_path]
    monkeypatch.setattr(sys, "argv", ["figure1.py", *map(str, words)])
    assert figure1.main() == 0
    rows = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines()[2:7]]
    found = {style.strip(): split.strip() for style, split in rows}
    assert found["Gorila"] == "L1A5" and found["ApeX"] == found["ours"] == "L1A4+B"
    assert list(found) == ["Gorila", "SEED", "A3C", "ApeX", "ours"]
    assert (tmp_path / "figure1.svg").read_text().rstrip().endswith("</svg>")
    assert "| Gorila | L1A5 |" in (tmp_path / "figure1.md").read_text()
