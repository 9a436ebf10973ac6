"""The run folder: claimed once, never overwritten, and with a summary of what happened."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tianji.config import Config, load
from tianji.core import checkpoint
from tianji.core.counts import Count
from tianji.core.errors import TianJiError
from tianji.core.status import Status
from tianji.job.factory import make_env
from tianji.job.job import Job, prepare
from tianji.observe.summary import _reached, describe
from tianji.observe.times import Times
from tianji.observe.watch import Progress
from tianji.roles.role_specs import kind_of, roles_of
from tianji.runs import folder as module
from tianji.runs.folder import claim, identify, rewind
from tianji.runs.resume import Resumed, reopen
from tianji.runs.run import Run

ROOT = Path(__file__).parents[2]
OUTER_SURFACE = {
    *("status", "seed", "engine", "startup_seconds", "final_time_seconds", "wall_seconds"),
    *("env_steps", "updates", "produced", "received", "consumed", "production_per_second"),
    *("receiving_per_second", "consumption_per_second", "replay_ratio", "staleness"),
    *("mean_return_100", "restarts", "dropped", "bottleneck"),
}


def config_of(*overrides: str) -> Config:
    return load(ROOT / "tests" / "tasks" / "cartpole_dqn.py", overrides)


@pytest.fixture(scope="module")
def job() -> Job:
    config = config_of("hyp.warmup_size=500", "exp.seed=7")
    env = make_env(config)
    env.close()
    return prepare(config, env.spec)


class Clock:
    """`time.monotonic`, set by hand."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module.time, "monotonic", clock.monotonic)
    return clock


def begun(job: Job) -> Progress:
    """A run whose roles were ready at 102 s, two seconds after its process began."""
    progress = Progress({role.name: np.zeros(len(Count)) for role in roles_of(job.config)})
    for vector in progress.counts.values():
        vector[Count.READY_AT] = 102.0
    progress.started_at = 102.0
    return progress


def learned(job: Job) -> Progress:
    progress = begun(job)
    of_kind = {
        "learner": {Count.VERSION: 1_000, Count.CONSUMED: 32_000, Count.FIRST_CONSUMED_AT: 102.5},
        "buffer": {
            Count.RECEIVED: 1_500,
            Count.UNITS_RECEIVED: 1_500,
            Count.UNITS_CONSUMED: 32_000,
        },
        "actor": {Count.PRODUCED: 1_600},
    }
    for name, vector in progress.counts.items():
        for count, value in of_kind[kind_of(name).word].items():
            vector[count] = value
    progress.staleness.add(np.array([0, 2, 2]))
    progress.returns.extend([480.0] * 100)
    progress.n_episodes = 250
    return progress


def claimed(folder: Path | None, config: Config, engine: str) -> Path:
    made = claim(folder, config)
    identify(made.folder, config, engine, {})
    made.release()
    return made.folder


def refusal(folder: Path, config: Config) -> str:
    with pytest.raises(TianJiError) as error:
        claimed(folder, config, "local")
    return str(error.value)


def test_a_claimed_folder_says_what_the_run_is(tmp_path: Path) -> None:
    folder = claimed(tmp_path / "a" / "b", config_of("exp.seed=3"), "process")
    written = json.loads((folder / "config.json").read_text())
    assert written["config"] == json.loads(json.dumps(config_of("exp.seed=3").to_json()))
    assert (written["engine"], written["seed"]) == ("process", 3)
    assert set(written["versions"]) == {"tianji", "python", "torch", "numpy", "gymnasium"}
    assert "commit" in written
    assert (folder / "logs").is_dir()


def test_default_folders_have_plain_names_and_never_clash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module.time, "strftime", lambda _: "20250102-030405")
    source = tmp_path / "märchen & more.py"
    source.write_text((ROOT / "tests" / "tasks" / "cartpole_dqn.py").read_text())
    folders = [claimed(None, load(source), "local") for _ in range(3)]
    stem = Path("runs") / "m-rchen-more-20250102-030405"
    assert folders == [stem, Path(f"{stem}-2"), Path(f"{stem}-3")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", folder.name) for folder in folders)


def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    assert claimed(tmp_path, config_of(), "local") == tmp_path


def test_the_run_of_another_configuration_is_refused_with_the_difference(tmp_path: Path) -> None:
    claimed(tmp_path, config_of("hyp.lr=0.1", "actor_cfg.num=1"), "local")
    before = (tmp_path / "config.json").read_bytes()
    said = refusal(tmp_path, config_of("hyp.lr=0.2", "actor_cfg.num=2"))
    assert "holds the run of another configuration (differs in " in said
    assert "lr: 0.1 there, 0.2 here" in said.lower()
    assert "actor_cfg.num: 1 there, 2 here" in said
    assert said.endswith(f"go on with it as it is: tianji resume {tmp_path}")
    (tmp_path / "summary.json").write_text('{"status": "solved"}')
    assert "tianji resume" not in refusal(tmp_path, config_of("hyp.lr=0.2"))
    assert (tmp_path / "config.json").read_bytes() == before


def test_a_key_that_only_one_of_them_has_is_a_difference(tmp_path: Path) -> None:
    claimed(tmp_path, config_of(), "local")
    assert "n_step: not set there, 3 here" in refusal(tmp_path, config_of("hyp.n_step=3"))


@pytest.mark.parametrize("status", ["solved", "finished", "stopped"])
def test_a_run_that_has_ended_is_refused(tmp_path: Path, status: str) -> None:
    claimed(tmp_path, config_of(), "local")
    (tmp_path / "summary.json").write_text(json.dumps({"status": status}))
    assert "a run of this configuration that has ended" in refusal(tmp_path, config_of())


UNFINISHED = [None, '{"status": "interrupted"}', '{"status": "failed"}', "{broken"]


@pytest.mark.parametrize("summary", UNFINISHED)
def test_an_unfinished_run_of_the_same_configuration_is_taken_up(
    tmp_path: Path, summary: str | None
) -> None:
    claimed(tmp_path, config_of(), "local")
    if summary is not None:
        (tmp_path / "summary.json").write_text(summary)
    again = claim(tmp_path, config_of())
    again.release()
    assert (again.folder, again.resumes) == (tmp_path, True)
    assert "another configuration" in refusal(tmp_path, config_of("hyp.lr=0.2"))


def test_a_folder_in_use_is_refused_until_it_is_released(tmp_path: Path) -> None:
    first = claim(tmp_path, config_of())
    identify(first.folder, config_of(), "local", {})
    said = refusal(tmp_path, config_of())
    assert "is in use: another process is training there" in said and "--run-dir" in said
    first.release()
    assert claimed(tmp_path, config_of(), "local") == tmp_path


def test_a_claim_that_came_to_nothing_leaves_nothing(tmp_path: Path) -> None:
    made = claim(tmp_path / "new", config_of())
    made.leave()
    made.release()
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()
    made = claim(tmp_path / "empty", config_of())
    made.leave()
    made.release()
    assert list((tmp_path / "empty").iterdir()) == []


def test_an_unfinished_run_survives_a_claim_that_came_to_nothing(tmp_path: Path) -> None:
    claimed(tmp_path, config_of(), "local")
    before = sorted(tmp_path.rglob("*"))
    again = claim(tmp_path, config_of())
    again.leave()
    again.release()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_process_that_died_before_its_run_had_a_configuration_is_in_nobodys_way(
    tmp_path: Path,
) -> None:
    claim(tmp_path, config_of()).release()
    (tmp_path / "logs" / "learner-0.0.log").touch()
    again = claim(tmp_path, config_of())
    again.release()
    assert not again.resumes


def test_half_a_configuration_of_a_process_that_died_is_no_run(tmp_path: Path) -> None:
    claim(tmp_path, config_of()).release()
    (tmp_path / ".config.json.42.part").write_text('{"config"')
    again = claim(tmp_path, config_of())
    again.release()
    assert not again.resumes


def test_folders_that_look_like_ours_are_not_taken(tmp_path: Path) -> None:
    for name in ("logs", "checkpoints"):
        (tmp_path / name).mkdir()
    (tmp_path / "checkpoints" / "model.pt").write_text("mine")
    assert "what it holds is not a run" in refusal(tmp_path, config_of())
    (tmp_path / ".lock").touch()
    assert "what it holds is not a run" in refusal(tmp_path, config_of())
    assert (tmp_path / "checkpoints" / "model.pt").read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["metrics.lost.jsonl", "logs/learner-0.0.log", ".lock", "checkpoints/deep/down"]
)
@pytest.mark.parametrize("target", ["mine", "not there", "a folder"])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, name: str, target: str) -> None:
    run, mine = claimed(tmp_path / "run", config_of(), "local"), tmp_path / "mine"
    mine.write_text("of mine")
    (tmp_path / "a folder").mkdir()
    (run / name).unlink(missing_ok=True)
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(tmp_path / target)
    assert str(run / name) in refusal(run, config_of())
    assert mine.read_text() == "of mine" and not (tmp_path / "not there").exists()
    (run / name).unlink()
    claim(run, config_of()).release()


def test_links_within_the_folder_and_to_it_are_none_out_of_it(tmp_path: Path) -> None:
    run = claimed(tmp_path / "run", config_of(), "local")
    (run / "checkpoints").rmdir()
    (run / "kept").mkdir()
    (run / "checkpoints").symlink_to("kept")
    (tmp_path / "link").symlink_to(run)
    claim(tmp_path / "link", config_of()).release()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["metrics.jsonl", "logs/learner-0.0.log", "episodes.csv"])
def test_a_pipe_in_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    run = claimed(tmp_path, config_of(), "local")
    os.mkfifo(run / name)
    assert f"{run / name} is neither a file nor a folder" in refusal(run, config_of())


MORE = ("exp.train_steps=900000", "exp.max_seconds=9", "exp.stop_return=3", "exp.save_freq=7")


@pytest.mark.parametrize("status", ["solved", "finished", "stopped", "interrupted"])
def test_a_run_may_be_given_more_to_do_and_nothing_else(tmp_path: Path, status: str) -> None:
    claimed(tmp_path, config_of(), "local")
    (tmp_path / "summary.json").write_text(json.dumps({"status": status}))
    extended = claim(tmp_path, config_of(*MORE), extend=True)
    extended.release()
    assert extended.resumes
    with pytest.raises(
        TianJiError, match=r"(?i)differs in hyp\.lr.*for another hyp\.lr begin a new"
    ) as no:
        claim(tmp_path, config_of("hyp.lr=0.5", *MORE), extend=True)
    assert "--run-dir" not in str(no.value)


def test_another_end_is_advised_to_resume(tmp_path: Path) -> None:
    claimed(tmp_path, config_of(), "local")
    said = refusal(tmp_path, config_of("exp.train_steps=900", "exp.max_seconds=9"))
    command = f"tianji resume {tmp_path} --set exp.train_steps=900 --max-seconds 9"
    assert command in said
    other = refusal(tmp_path, config_of("exp.train_steps=900", "hyp.lr=1"))
    assert other.endswith(f"as it is: tianji resume {tmp_path}")


def ended_run(folder: Path, status: str, mean: float = 480.0) -> None:
    """With 5,000 steps, 70 episodes and 20 seconds, by its newest checkpoint."""
    claimed(folder, config_of("exp.stop_return=475", "exp.max_seconds=20"), "local")
    (folder / "summary.json").write_text(json.dumps({"status": status, "mean_return_100": mean}))
    about = {"env_steps": 5_000, "version": 40, "replay": "kept"}
    watched = {"returns": [], "lengths": [], "episodes": 70, "elapsed_seconds": 20.25}
    writing = folder / "checkpoints" / ".writing-1"
    writing.mkdir()
    checkpoint.write_part(writing, "learner-0.0", {})
    documents = {"run.json": {"watch": watched}, "config.json": {}}
    checkpoint.seal(writing, checkpoint.folder_for(folder, 1, 5_000), documents, about)


@pytest.mark.parametrize(
    ("status", "given", "said"),
    [
        ("solved", ["exp.max_seconds=600"], "mean return of 480.*--stop-return R"),
        ("solved", ["exp.max_seconds=600", "exp.stop_return=479"], "--stop-return R"),
        ("stopped", [], "give it more to do, as in --max-seconds S"),
        ("stopped", ["exp.save_seconds=5"], "give it more to do, as in --max-seconds S"),
        ("stopped", ["exp.train_steps=900_000"], "beyond exp.max_seconds=20.0 already, at 20.2"),
        ("stopped", ["exp.max_seconds=15"], "beyond exp.max_seconds=15.0 already, at 20.2"),
        ("interrupted", ["exp.max_seconds=15"], "exp.max_seconds=41"),
        ("interrupted", ["exp.train_steps=5_000"], "at 5,000: .* --set exp.train_steps=10000"),
        ("interrupted", ["exp.episodes=70"], "beyond exp.episodes=70 already"),
    ],
)
def test_what_would_end_at_once_is_not_reopened(
    tmp_path: Path, status: str, given: list[str], said: str
) -> None:
    ended_run(tmp_path, status)
    with pytest.raises(TianJiError, match=said):
        reopen(tmp_path, given)


def test_a_run_that_won_enough_wants_a_larger_share(tmp_path: Path) -> None:
    claimed(tmp_path, config_of("exp.stop_win_ratio=0.8"), "local")
    summary = {"status": "solved", "mean_return_100": 5.0, "win_ratio_100": 0.83}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    for share in ("0.8", "0.82"):
        with pytest.raises(TianJiError, match=r"83 % won.*--set exp.stop_win_ratio=W"):
            reopen(tmp_path, [f"exp.stop_win_ratio={share}"])
    assert reopen(tmp_path, ["exp.stop_win_ratio=0.9"])[1] == "local"


@pytest.mark.parametrize(
    ("status", "given"),
    [
        ("solved", ["exp.stop_return=490", "exp.max_seconds=600"]),
        ("stopped", ["exp.max_seconds=600"]),
        ("interrupted", []),
        ("interrupted", ["exp.train_steps=900_000"]),
    ],
)
def test_what_has_more_to_do_is_reopened(tmp_path: Path, status: str, given: list[str]) -> None:
    ended_run(tmp_path, status)
    assert reopen(tmp_path, given)[1] == "local"


def test_a_configuration_file_is_no_run_to_resume(tmp_path: Path) -> None:
    (tmp_path / "job.py").touch()
    with pytest.raises(TianJiError, match=r"configuration file.*tianji train .*job\.py"):
        reopen(tmp_path / "job.py", [])


def written(folder: Path, *steps: int, tail: str = "") -> None:
    lines = [json.dumps({"wall_s": i, "env_steps": n}) for i, n in enumerate(steps)]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines) + tail)


def steps_in(path: Path) -> list[int]:
    return [json.loads(line)["env_steps"] for line in path.read_text().splitlines()]


def test_rows_about_work_that_was_lost_are_set_aside(tmp_path: Path) -> None:
    written(tmp_path, 100, 200, 300, 400)
    rewind(tmp_path, 250)
    assert steps_in(tmp_path / "metrics.jsonl") == [100, 200]
    assert steps_in(tmp_path / "metrics.lost.jsonl") == [300, 400]
    written(tmp_path, 100, 200, 220, 260)
    rewind(tmp_path, 250)
    assert steps_in(tmp_path / "metrics.jsonl") == [100, 200, 220]
    assert steps_in(tmp_path / "metrics.lost.jsonl") == [300, 400, 260]
    assert list(tmp_path.glob("*.part")) == []


def test_where_nothing_was_lost_the_rows_are_not_touched(tmp_path: Path) -> None:
    rewind(tmp_path, 250)
    assert list(tmp_path.iterdir()) == []
    written(tmp_path, 100, 250)
    rewind(tmp_path, 250)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_half_a_row_is_no_row(tmp_path: Path) -> None:
    written(tmp_path, 100, tail='{"wall_s": 1, "env_st')
    rewind(tmp_path, 250)
    assert steps_in(tmp_path / "metrics.jsonl") == [100]


@pytest.mark.parametrize("text", ["", "[]", '{"config": 3}', "[" * 100_000])
def test_a_folder_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert "what it holds is not a run" in refusal(tmp_path, config_of())


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "is a file, not a folder" in refusal(tmp_path / "file", config_of())
    assert "cannot be used" in refusal(tmp_path / "file" / "below", config_of())
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["x" * 300, "nul\0byte", "/proc/no/such/place"])
def test_an_impossible_folder_is_refused(tmp_path: Path, name: str) -> None:
    assert "name another with --run-dir" in refusal(tmp_path / name, config_of())


def test_without_permission_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    said = refusal(tmp_path / "run", config_of())
    assert f"{tmp_path / 'run'}: Permission denied" in said


def test_the_summary_has_every_promised_key(tmp_path: Path, job: Job, clock: Clock) -> None:
    run, progress = Run(job, "process", tmp_path, quiet=True, started_at=100.0), learned(job)
    progress.solved_at = 106.0
    clock.now = 107.0
    summary = run.finish("solved", progress)
    assert set(summary) >= OUTER_SURFACE
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert [file.name for file in tmp_path.glob("*.part")] == []


def test_the_summary_measures_from_the_moment_all_were_ready(
    tmp_path: Path, job: Job, clock: Clock
) -> None:
    run, progress = Run(job, "process", tmp_path, quiet=True, started_at=100.0), learned(job)
    progress.solved_at = 106.0
    clock.now = 107.0
    summary = run.finish("solved", progress)
    expected = {
        "startup_seconds": 2.0,
        "first_consumed_seconds": 2.5,
        "final_time_seconds": 4.0,
        "wall_seconds": 7.0,
        "production_per_second": 400.0,
        "receiving_per_second": 375.0,
        "consumption_per_second": 8_000.0,
        "replay_ratio": {"target": 32.0, "measured": 32.0},
        "mean_return_100": 480.0,
        "seed": 7,
        "restarts": 0,
        "error": None,
    }
    assert {key: summary[key] for key in expected} == expected
    assert summary["histograms"]["staleness_updates"] == [[0, 1], [2, 2]]


@pytest.mark.parametrize(
    ("lost", "line"),
    [
        (["actor-0.1"], "  lost       actor-0.1: training went on without"),
        (["reducer-0.0"], "  lost       reducer-0.0: the groups were not averaged any more"),
        (
            ["reducer-0.0", "actor-1.2", "actor-0.1"],
            "  lost       actor-1.2, actor-0.1: training went on without; "
            "reducer-0.0: the groups were not averaged any more",
        ),
    ],
)
def test_a_role_that_was_lost_is_named_at_the_end(
    tmp_path: Path, job: Job, lost: list[str], line: str
) -> None:
    progress = learned(job)
    before = Run(job, "mpi", tmp_path, quiet=True).finish("stopped", progress)
    assert not any(line.startswith("  lost") for line in describe(before, tmp_path).splitlines())
    progress.lost += lost
    summary = Run(job, "mpi", tmp_path, quiet=True).finish("stopped", progress)
    assert summary["lost"] == lost
    assert line in describe(summary, tmp_path).splitlines()


def test_priorities_that_came_too_late_are_told(tmp_path: Path, job: Job) -> None:
    progress = learned(job)
    before = Run(job, "mpi", tmp_path, quiet=True).finish("stopped", progress)
    assert before["late_priorities"] == 0 and " priorities " not in describe(before, tmp_path)
    for name, n in (("buffer-0.0", 1_200), ("learner-0.0", 34)):  # gone, or never sent
        progress.counts[name][Count.LATE_PRIORITIES] = n
    summary = Run(job, "mpi", tmp_path, quiet=True).finish("stopped", progress)
    assert summary["late_priorities"] == 1_234
    assert "  priorities 1,234 came too late" in describe(summary, tmp_path).splitlines()
    (*_, last) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(last)["staleness/late_priorities"] == 1_234


def test_the_time_that_stopping_takes_is_not_training_time(
    tmp_path: Path, job: Job, clock: Clock
) -> None:
    run = Run(job, "process", tmp_path, quiet=True, started_at=100.0)
    clock.now = 106.0
    run.tick(learned(job))
    clock.now = 111.0
    summary = run.finish("stopped", learned(job))
    assert (summary["production_per_second"], summary["wall_seconds"]) == (400.0, 11.0)


@pytest.mark.parametrize("last_look", [101.5, 102.0, 102.4])  # all were ready at 102
def test_a_run_of_less_than_a_second_has_the_rates_of_all_its_time(
    tmp_path: Path, job: Job, clock: Clock, last_look: float
) -> None:
    run = Run(job, "process", tmp_path, quiet=True, started_at=100.0)
    clock.now = last_look
    run.tick(learned(job))
    clock.now = 102.8
    summary = run.finish(Status.FINISHED, learned(job))
    assert (summary["counted_seconds"], summary["production_per_second"]) == (0.8, 2_000.0)
    assert summary["training_seconds"] == pytest.approx(max(0.0, last_look - 102.0))
    (rates,) = (line for line in describe(summary, tmp_path).splitlines() if "rates" in line)
    assert "produced 2,000 steps/s, consumed 40,000 samples/s" in rates
    assert rates.endswith("over 0.8 s with the end of the run: it trained for less than a second")


def test_a_run_that_was_solved_at_once_has_rates(tmp_path: Path, job: Job, clock: Clock) -> None:
    progress = learned(job)
    progress.solved_at, clock.now = 102.0, 106.0
    summary = Run(job, "process", tmp_path, quiet=True, started_at=100.0).finish(
        Status.SOLVED, progress
    )
    assert (summary["final_time_seconds"], summary["production_per_second"]) == (0.0, 400.0)


def test_a_run_that_failed_before_it_began_has_a_summary_too(tmp_path: Path, job: Job) -> None:
    progress = begun(job)
    progress.started_at = None
    summary = Run(job, "process", tmp_path, quiet=True).finish("failed", progress, "it broke")
    assert (summary["status"], summary["error"]) == ("failed", "it broke")
    assert summary["startup_seconds"] is None and summary["final_time_seconds"] is None
    assert not (tmp_path / "metrics.jsonl").exists()
    assert describe(summary, tmp_path).splitlines()[0] == "Failed: it broke"
    assert "no episode ended\n  target     475, not reached\n" in describe(summary, tmp_path)


TRACE = "Traceback (most recent call last):\n  File 'a.py', line 1, in step\n    f()\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            f"actor-0.0 failed with exit status 1:\nhi\n{TRACE}ValueError: no",
            "actor-0.0: ValueError: no",
        ),
        (f"{TRACE}ValueError: no\nin actor-0.0\n", "actor-0.0: ValueError: no"),
        (f"{TRACE}ValueError: no\n", "ValueError: no"),
        ("learner-0.0 was killed by SIGKILL:\nold words", "learner-0.0 was killed by SIGKILL"),
        ("actor-0.0 failed with exit status 2:\nactor-0.0: a NaN\nMend it.", "actor-0.0: a NaN"),
        (
            "actor-0.0 (rank 2 on a) failed with exit status 2:\nactor-0.0: a NaN\nMend it.",
            "actor-0.0 (rank 2 on a): a NaN",
        ),
        ("a NaN in update 3\nLower hyp.lr.", "a NaN in update 3"),
    ],
)
def test_a_failed_run_begins_with_the_reason(
    tmp_path: Path, job: Job, clock: Clock, error: str, said: str
) -> None:
    summary = Run(job, "process", tmp_path, quiet=True).finish("failed", learned(job), error)
    assert describe(summary, tmp_path).splitlines()[0] == f"Failed: {said}"


@pytest.mark.parametrize("status", ["interrupted", "failed", "stopped"])
def test_a_run_that_is_not_done_ends_with_how_to_go_on(
    tmp_path: Path, job: Job, clock: Clock, status: str
) -> None:
    for number in (9, 10):
        (tmp_path / "checkpoints" / f"{number:04d}-step-{number}00").mkdir(parents=True)
    (tmp_path / "config.json").touch()
    clock.now = 107.0
    summary = Run(job, "process", tmp_path, quiet=True).finish(status, learned(job))
    *_, newest, last = describe(summary, tmp_path).splitlines()
    if status == "stopped":
        assert last == f"  run        {tmp_path}"
    else:
        assert newest == "  checkpoint 0010-step-1000 is the newest"
        assert last == f"  go on      tianji resume {tmp_path}"


def test_a_mistake_of_the_users_is_nothing_to_go_on_with(tmp_path: Path, job: Job) -> None:
    summary = Run(job, "mpi", tmp_path, quiet=True).finish("failed", begun(job), "no GPU here")
    (tmp_path / "config.json").touch()
    assert "go on" in describe(summary, tmp_path, 1)
    assert "go on" not in describe(summary, tmp_path, 2)


def test_a_run_whose_folder_was_removed_is_not_advised_to_resume(tmp_path: Path, job: Job) -> None:
    summary = Run(job, "process", tmp_path, quiet=True).finish("interrupted", begun(job))
    text = describe(summary, tmp_path)
    assert "go on" not in text and "its folder was removed while it trained" in text


def test_a_row_comes_with_the_first_update_and_then_every_second(
    tmp_path: Path, job: Job, clock: Clock
) -> None:
    run = Run(job, "process", tmp_path, quiet=True, started_at=100.0)
    clock.now = 102.1
    run.tick(begun(job))
    assert not (tmp_path / "metrics.jsonl").exists()
    for clock.now in (103.0, 103.02, 103.9, 104.1, 105.0):
        run.tick(learned(job))
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["wall_s"] for row in rows] == pytest.approx([3.0, 4.1])
    run.finish("stopped", learned(job))
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 1


BEFORE = {"resumes": 2, "wall_seconds": 50.0, "startup_seconds": 1.5}


def test_a_resumed_run_says_nothing_before_all_of_its_roles_were_heard(
    tmp_path: Path, job: Job, clock: Clock
) -> None:
    facts = {"run": BEFORE | {"first_consumed_seconds": 1.75}}
    run = Run(job, "process", tmp_path, True, 100.0, resumed=Resumed(None, facts))
    progress = learned(job)
    progress.started_at = None
    progress.counts["actor-0.0"][:] = 0  # it is slow to start
    clock.now = 103.0
    run.tick(progress)
    assert not (tmp_path / "metrics.jsonl").exists()
    progress = learned(job)
    progress.started_at = 103.0
    for clock.now in (103.5, 104.5):
        run.tick(progress)
    row = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert (row["env_steps"], row["time/resumes"], row["wall_s"]) == (1_600, 3, 54.5)
    summary = run.finish("stopped", progress)
    assert (summary["startup_seconds"], summary["first_consumed_seconds"]) == (1.5, 1.75)
    assert (summary["resumes"], summary["wall_seconds"]) == (3, 54.5)
    assert "54.5 s in all, 4.5 s of it to start, resumed 3 times" in describe(summary, tmp_path)


def test_every_start_is_added_up(job: Job) -> None:
    progress, times = begun(job), Times(100.0)
    for n in (1, 2, 3):
        assert (times.startup(progress), times.starting(progress)) == (2.0, 2.0 * n)
        times = Times(100.0, times.state(progress))


def test_the_time_of_planning_is_none_of_starting(tmp_path: Path, job: Job, clock: Clock) -> None:
    """All were ready 2 s after the command, which measured for 1.5 s of them."""
    progress = learned(job)
    run = Run(job, "process", tmp_path, True, 100.0, planning_seconds=1.5)
    clock.now = 107.0
    summary = run.finish("stopped", progress)
    names = ("planning_seconds", "startup_seconds", "starting_seconds", "first_consumed_seconds")
    assert [summary[name] for name in names] == [1.5, 0.5, 0.5, 1.0]
    assert summary["wall_seconds"] == 7.0
    assert "7.0 s in all, 1.5 s of it to plan, 0.5 s to start\n" in describe(summary, tmp_path)


def test_planning_is_remembered_when_a_run_goes_on(job: Job) -> None:
    progress, times = begun(job), Times(100.0, planning_here=1.5)
    again = Times(100.0, times.state(progress))
    assert (again.planning(), again.startup(progress), again.starting(progress)) == (1.5, 0.5, 2.5)


def test_in_a_terminal_no_line_of_the_summary_is_longer_than_it(
    tmp_path: Path, job: Job, clock: Clock
) -> None:
    clock.now = 107.0
    summary = Run(job, "process", tmp_path, True, 100.0).finish("interrupted", learned(job))
    summary["bottleneck"] = "training-bound: " + "the actors wait for the learner " * 5
    folder = Path("runs/my-job")
    text, whole = (describe(summary, folder, width=width) for width in (60, None))
    assert max(map(len, text.splitlines())) <= 60 < max(map(len, whole.splitlines()))
    assert text.split() == whole.split()
    limit = text[text.index("  limit ") :].splitlines()
    assert limit[1][:13].isspace() and limit[1][13].isalpha()


def test_what_an_interrupted_run_had_not_come_to_is_timed_when_it_comes(
    tmp_path: Path, job: Job, clock: Clock
) -> None:
    facts = {"run": BEFORE | {"first_consumed_seconds": None}}
    run = Run(job, "process", tmp_path, True, 100.0, resumed=Resumed(None, facts))
    clock.now = 105.0
    summary = run.finish("stopped", learned(job))
    assert (summary["startup_seconds"], summary["first_consumed_seconds"]) == (1.5, 52.5)


def test_quiet_shows_nothing(
    tmp_path: Path, job: Job, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    for quiet in (True, False):
        folder = tmp_path / str(quiet)
        folder.mkdir()
        run = Run(job, "process", folder, quiet=quiet, started_at=100.0)
        clock.now = 103.0
        run.tick(learned(job))
        run.finish("stopped", learned(job))
        assert bool(capsys.readouterr().out) is not quiet


def test_a_run_goes_on_when_nobody_looks_any_more(
    tmp_path: Path, job: Job, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError

    run = Run(job, "process", tmp_path, started_at=100.0)
    monkeypatch.setattr("tianji.observe.view.line", broken)
    clock.now = 103.0
    run.tick(learned(job))
    assert run.finish("stopped", learned(job))["status"] == "stopped"


def test_the_closing_words_are_few_and_plain(tmp_path: Path, job: Job, clock: Clock) -> None:
    run, progress = Run(job, "process", tmp_path, quiet=True, started_at=100.0), learned(job)
    progress.solved_at = 106.0
    clock.now = 107.0
    text = describe(run.finish("solved", progress), tmp_path)
    assert text.splitlines()[0] == (
        "Solved in 4.0 s: mean return 480 over 100 episodes (target 475)."
    )
    for part in (
        "7.0 s in all, 2.0 s of it to start",
        "1,600 steps, 250 episodes, 1,000 updates",
        "produced 400 steps/s, consumed 8,000 samples/s",
        "32.0 samples consumed per sample produced (target 32.0)",
        "samples were 2 updates old (median), 2 at most",
        str(tmp_path),
    ):
        assert part in text
    assert len(text.splitlines()) <= 12


@pytest.mark.parametrize("status", ["finished", "stopped", "interrupted", "failed"])
def test_the_closing_words_name_a_target_that_was_missed(
    tmp_path: Path, job: Job, clock: Clock, status: str
) -> None:
    clock.now = 107.0
    run = Run(job, "process", tmp_path, quiet=True, started_at=100.0)
    progress = learned(job)
    progress.returns[0] = -1_000.0
    first, second, *_ = describe(run.finish(status, progress), tmp_path).splitlines()
    assert first.lower().startswith(status) and first.endswith("465.2 over 100 episodes.")
    assert second == "  target     475, not reached"


@pytest.mark.parametrize("status", ["stopped", "interrupted"])
def test_the_closing_words_fit_a_terminal(
    tmp_path: Path, job: Job, clock: Clock, status: str
) -> None:
    run, progress = Run(job, "process", tmp_path, quiet=True), learned(job)
    progress.returns.extend([-123_456.7] * len(progress.returns))
    lines = describe(run.finish(status, progress), Path("runs")).splitlines()
    assert max(map(len, lines)) <= 80, lines


@pytest.mark.parametrize(
    ("n", "said"), [(100, "  target     475"), (30, "  target     475 over 100 episodes")]
)
def test_a_mean_above_the_target_is_not_called_short_of_it(
    tmp_path: Path, job: Job, clock: Clock, n: int, said: str
) -> None:
    progress = learned(job)
    progress.n_episodes = n
    summary = Run(job, "process", tmp_path, quiet=True).finish("interrupted", progress)
    assert describe(summary, tmp_path).splitlines()[1] == said


def test_importing_it_loads_no_heavy_library() -> None:
    heavy = "{'torch', 'rich', 'gymnasium'}"
    code = f"import sys, tianji.runs.run; print(sorted({heavy} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_return_between_0_and_1_is_not_rounded_away() -> None:
    summary = {"mean_return_100": 0.7368, "learned_return_100": None, "episodes": 100}
    assert _reached(summary) == "mean return 0.737 over 100 episodes"
