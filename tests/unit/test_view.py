"""What a run looks like, rendered to text."""

from __future__ import annotations

import io
import os
import pty
import termios
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tianji.config import load
from tianji.core.counts import Count
from tianji.core.status import Status
from tianji.job.factory import make_env
from tianji.job.job import Job, prepare
from tianji.observe.panel import Scene, line, panel, roughly, seconds_left, span, sparkline
from tianji.observe.rates import Meter, homes_in
from tianji.observe.view import Lines, LivePanel, _without_echo_of_control, view_for
from tianji.observe.watch import ProcessFault, Progress
from tianji.roles.role_specs import kind_of, roles_of

ROOT = Path(__file__).parents[2]
PER_ROLE = {
    "learner": {Count.FUSION_KL: 0.031, Count.VERSION: 300, Count.CONSUMED: 9_600, Count.QUEUE: 1},
    "buffer": {
        Count.RECEIVED: 800,
        Count.UNITS_RECEIVED: 800,
        Count.UNITS_CONSUMED: 9_600,
        Count.QUEUE: 2,
    },
    "actor": {Count.PRODUCED: 900, Count.VERSION: 299, Count.IDLE_SECONDS: 0.0},
    "reducer": {Count.FUSIONS: 5, Count.DISTANCE: 0.25},
}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def job_of(*overrides: str) -> Job:
    config = load(
        ROOT / "tests" / "tasks" / "cartpole_dqn.py", ["exp.train_steps=8000", *overrides]
    )
    env = make_env(config)
    env.close()
    return prepare(config, env.spec)


def nothing_yet(job: Job) -> Scene:
    counts = {role.name: np.zeros(len(Count)) for role in roles_of(job.config)}
    return Scene(job, "process", Progress(counts))


def on_its_way(job: Job, status: str | None = None) -> Scene:
    """Two seconds into a run."""
    progress = nothing_yet(job).progress
    for name, vector in progress.counts.items():
        vector[[Count.READY_AT, Count.BUSY_SECONDS, Count.IDLE_SECONDS]] = 10.0, 0.5, 1.5
        for count, value in PER_ROLE[kind_of(name).word].items():
            vector[count] = value
    progress.started_at = 10.0
    progress.staleness.add(np.array([0, 1, 7]))
    progress.returns.extend([10.0, 20.0])
    progress.n_episodes = 2
    rates = Meter(homes_in(job, "process")).read(progress, 12.0)
    return Scene(job, "process", progress, rates, 2.0, [1.0, 2.0, 3.0], status)


def drawn(scene: Scene, width: int = 80) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, legacy_windows=False).print(panel(scene))
    return stream.getvalue()


def test_several_groups_have_a_row_for_each_kind_of_role() -> None:
    text = drawn(on_its_way(job_of("global_cfg.group_num=2", "actor_cfg.num=4")), width=60)
    for label in ("learner-0.0", "buffer-0.0", "actor-0.* (4)", "actor-1.* (4)", "reducer-0.0"):
        assert label in text, f"{label!r} in\n{text}"
    assert "actor-0.0" not in text
    assert "2.5 fusions/s" in text
    assert "0.25 apart" in text and "KL 0.031" in text
    assert "1,600 / 8,000" in text  # of both groups
    assert "300 updates" not in text  # a row is of one group
    assert max(map(len, text.splitlines())) <= 60


def test_many_groups_have_one_row_for_each_kind_of_role() -> None:
    text = drawn(on_its_way(job_of("global_cfg.group_num=9", "learner_cfg.num=2")))
    for label in ("learner-* (18)", "buffer-* (9)", "actor-* (9)", "reducer-0.0"):
        assert label in text, f"{label!r} in\n{text}"
    assert "0.25 apart" in text
    assert "18/36" in text  # batches that wait for all of them
    assert "1,350 updates/s" in text  # two learners make one update
    assert len(text.splitlines()) < 20


def test_the_panel_shows_what_is_going_on() -> None:
    text = drawn(on_its_way(job_of()))
    for part in (
        "cartpole_dqn · process engine · 2.0 s · at most 18 s left",
        "800 / 8,000",
        "10 %",
        "15 / 475",
        "2 episodes",
        "▁▅█",
        "150 updates/s",
        "400 steps/s",
        "450 steps/s",
        "1/2",
        "2/2",
        "ratio 32.0, target 32.0",
        "median 1, p95 7, max 7 updates",
        "sample-bound: the learner idles 60 %",
    ):
        assert part in text, f"{part!r} in\n{text}"


def test_how_far_old_samples_have_drifted_stands_beside_how_old_they_are() -> None:
    scene = on_its_way(job_of())
    scene.progress.scalars["staleness/kl"] = 0.01234
    scene.progress.recent_ess.append(0.97)
    assert "max 7 updates · ESS 97 % · KL 0.012" in drawn(scene)


def test_one_group_is_apart_from_nobody() -> None:
    assert "fusions" not in drawn(on_its_way(job_of()))


def test_the_last_panel_has_the_steps_that_the_summary_says() -> None:
    """Those that were made; while training, those that have come count, as for the limit."""
    assert "800 / 8,000" in drawn(on_its_way(job_of()))
    assert "900 / 8,000" in drawn(on_its_way(job_of(), Status.STOPPED))


def test_the_last_evaluation_is_shown() -> None:
    scene = replace(on_its_way(job_of()), evaluated=(481.25, 12_000))
    text = drawn(scene)
    assert "evaluation" in text and "481.2" in text and "at 12,000 steps" in text
    assert "evaluation 481.2" in line(scene)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("n_actors", [1, 16])
def test_the_panel_fits_its_width(width: int, n_actors: int) -> None:
    job = job_of(f"actor_cfg.num={n_actors}")
    for scene in (nothing_yet(job), on_its_way(job), on_its_way(job, "solved")):
        lines = drawn(scene, width).splitlines()
        assert {len(text) for text in lines} == {width}
        assert "…" not in "".join(lines).replace("… and", "")


def test_many_actors_are_gathered_in_one_row() -> None:
    text = drawn(on_its_way(job_of("actor_cfg.num=16")))
    assert "actor-0.7" in text and "actor-0.8" not in text
    assert "… and 8 more actors  3,600 steps/s" in text


def test_before_anything_has_come_the_panel_says_who_is_ready() -> None:
    scene = nothing_yet(job_of())
    scene.progress.counts["actor-0.0"][Count.READY_AT] = 1.0
    text = drawn(scene)
    assert "process engine · starting" in text
    assert "starting: 1 of 3 roles are ready" in text
    assert "- / 475" in text


def test_the_last_panel_says_how_it_ended() -> None:
    assert "process engine · solved after 2.0 s" in drawn(on_its_way(job_of(), "solved"))


def test_a_plain_line_holds_the_same_in_short() -> None:
    assert line(on_its_way(job_of())) == (
        "  2.0 s        900 steps      450/s   return 15 / 475   updates 300   staleness 1   "
        "sample-bound"
    )


def test_faults_are_shown_where_there_were_any() -> None:
    scene = on_its_way(job_of())
    progress = scene.progress
    assert not any(word in drawn(scene) + line(scene) for word in ("restart", "mended", "skipped"))
    progress.restarts = 2
    progress.faults = [ProcessFault("actor-0.0", "was killed by SIGKILL", "", 1.0, 1.25)]
    progress.counts["actor-0.0"][Count.ENV_RESTARTS] = 1
    progress.counts["actor-0.0"][Count.NOT_FINITE] = 3
    progress.counts["learner-0.0"][Count.SKIPPED] = 4
    text = drawn(scene, 100)
    assert "2 · last: actor-0.0 was killed by SIGKILL, back after 1.2 s" in text
    broken = "1 environment made anew, 3 episodes with NaN or Inf discarded, 4 updates skipped"
    assert f"mended       {broken}" in text
    assert f"staleness 1   2 restarts, {broken}   sample-bound" in line(scene)


def test_plain_lines_come_every_two_seconds_from_the_first_update_on() -> None:
    stream, job = io.StringIO(), job_of()
    lines, scene = Lines(stream), on_its_way(job)
    lines.show(nothing_yet(job))
    for elapsed in (0.5, 1.0, 2.4, 2.6, 4.0):
        lines.show(Scene(job, "process", scene.progress, scene.rates, elapsed))
    lines.close(scene)
    assert [text.split()[0] for text in stream.getvalue().splitlines()] == ["0.5", "2.6"]


def test_a_resumed_run_shows_no_line_before_it_has_learned_again() -> None:
    stream, job = io.StringIO(), job_of()
    scene = on_its_way(job)
    scene.progress.base = {name: c.copy() for name, c in scene.progress.counts.items()}
    Lines(stream).show(scene)
    assert stream.getvalue() == "" and line(scene).endswith("   waiting")
    scene.progress.base["learner-0.0"][Count.VERSION] -= 1
    Lines(stream).show(scene)
    assert len(stream.getvalue().splitlines()) == 1


def test_only_a_terminal_that_can_draw_gets_a_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("TTY_COMPATIBLE", raising=False)
    assert isinstance(view_for(io.StringIO()), Lines)
    assert isinstance(view_for(Terminal()), LivePanel)
    plain = Terminal()
    plain.encoding = "ascii"
    assert isinstance(view_for(plain), Lines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(view_for(Terminal()), Lines)


def test_a_live_panel_shows_the_cursor_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream, scene = Terminal(), on_its_way(job_of(), "stopped")
    view = LivePanel(Console(file=stream, force_terminal=True, width=80, height=40))
    view.show(scene)
    view.close(scene)
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")


def test_a_live_panel_below_mpirun_ends_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tianji.machine.mpirun.inside", lambda: (0, 3))
    stream, scene = Terminal(), on_its_way(job_of(), "stopped")
    view = LivePanel(Console(file=stream, force_terminal=True, width=80, height=40))
    view.show(scene)
    shown = stream.getvalue()
    assert "\n" in shown[shown.rindex("╯") :]  # mpirun keeps the rest of it back
    view.close(scene)
    shown = stream.getvalue()
    assert shown[shown.rindex("╯") :].count("\n") == 1  # nothing empty below it


def test_ctrl_c_draws_nothing_into_a_live_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    outer, inner = pty.openpty()
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())
    echoes = lambda: bool(termios.tcgetattr(inner)[3] & termios.ECHOCTL)  # noqa: E731
    with os.fdopen(outer, "rb"), os.fdopen(inner, "w") as stream:
        before, calm = echoes(), _without_echo_of_control(stream)
        assert (before, echoes()) == (True, False)
        calm()
        assert echoes()


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, width=80).print(panel(on_its_way(job_of())))
    assert "\x1b[36m" not in stream.getvalue() and "━" in stream.getvalue()


def test_the_time_left_is_that_of_the_limit_that_comes_first() -> None:
    assert seconds_left(on_its_way(job_of())) == 18.0
    assert seconds_left(on_its_way(job_of("exp.max_seconds=5"))) == 3.0
    assert seconds_left(nothing_yet(job_of())) is None


def test_times_are_written_as_one_says_them() -> None:
    assert [span(s) for s in (0.04, 59.9, 61, 3_599, 7_620)] == [
        "0.0 s",
        "59.9 s",
        "1 min 01 s",
        "59 min 59 s",
        "2 h 07 min",
    ]
    assert [roughly(s) for s in (0.4, 59.4, 89, 4_800)] == [
        *("0 s", "59 s", "1 min 29 s", "1 h 20 min")
    ]


def test_a_sparkline_goes_from_its_lowest_to_its_highest() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([5.0, 5.0], 8) == "▅▅"  # neither low nor high
    assert sparkline([], 8) == ""
    assert len(sparkline(list(range(1_000)), 30)) == 30
