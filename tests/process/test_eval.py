"""`tianji eval` on runs that were trained for a moment."""

import importlib.util
import json
import shutil
import signal
import sys

import numpy as np
import pytest
from commands import ROOT, TASKS, train

from tianji.cli import main
from tianji.core.checkpoint import folders_of
from tianji.roles import evaluation
from tianji.runs import trained
from tianji.tools import scores

pytestmark = pytest.mark.process

JAX = pytest.mark.skipif(importlib.util.find_spec("jaxmarl") is None, reason="no jaxmarl")
LOCAL = ("--engine", "local", "--quiet")


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    """A run that has learned to answer, with pictures to look at."""
    folder, every = tmp_path_factory.mktemp("eval") / "run", ("--set", "exp.save_freq=2")
    done = train(TASKS / "painted_ppo.py", folder, *every, "--set", "exp.eval_step=1000", *LOCAL)
    assert done.status == 0, done.err
    return done.folder


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    """A run that has learned next to nothing."""
    options = ("--max-seconds", "0.5", *LOCAL)
    done = train(TASKS / "cartpole_ppo.py", tmp_path_factory.mktemp("eval") / "run", *options)
    assert done.status == 0, done.err
    return done.folder


@pytest.fixture
def run(solved, tmp_path):
    """A copy of the solved run, to do anything with."""
    return shutil.copytree(solved, tmp_path / "run")


@pytest.fixture
def tianji(capsys):
    """Calls the command line in this process; returns (status, output, errors)."""
    before = signal.getsignal(signal.SIGINT)

    def call(*arguments):
        try:
            status = main.main([str(argument) for argument in arguments])
        except SystemExit as left:  # argparse
            status = left.code
        done = capsys.readouterr()
        return status, done.out, done.err

    yield call
    signal.signal(signal.SIGINT, before)


def rows(run):
    """What `tianji eval` wrote down."""
    lines = (run / "evaluations.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["of"] == "eval"]


def damage(folder):
    """Flips one bit of a learner's file."""
    path = folder / "learner-0.0.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def with_class(run, name):
    """Makes a run believe that it was trained in another environment."""
    about = json.loads((run / "config.json").read_text())
    about["config"]["environment"]["type"] = name
    (run / "config.json").write_text(json.dumps(about))


# --------------------------------------------------------------------------------------- the result


def test_a_run_is_evaluated_and_the_result_is_written_down(run, tianji):
    status, out, err = tianji("eval", run, "--episodes", 7, "--seed", 3)
    assert (status, err) == (0, "")
    summary = json.loads((run / "summary.json").read_text())
    assert "over 7 games" in out
    assert f"{summary['updates']:,} updates, {summary['env_steps']:,} steps" in out
    (row,) = rows(run)
    assert (row["of"], row["episodes"], row["seed"]) == ("eval", 7, 3)
    assert (row["updates"], row["env_steps"]) == (summary["updates"], summary["env_steps"])
    assert row["lengths"] == [10] * 7
    assert row["mean"] > 9  # of ten: a random policy has 2.5
    assert row["mean"] == np.mean(row["returns"])


def test_the_same_seed_plays_the_same_games(cartpole, tianji):
    first, again, other = (
        json.loads(tianji("eval", cartpole, "--json", "--seed", seed)[1]) for seed in (1, 1, 2)
    )
    assert first == again
    assert first["returns"] != other["returns"]
    assert rows(cartpole) == [first, again, other]  # each is added, none replaced


def test_what_python_gives_is_what_the_command_prints(solved, run, tianji):
    row = json.loads(tianji("eval", run, "--json", "--episodes", 5)[1])
    result = evaluation.evaluate(trained.load(solved), 5)
    assert result.row("eval", row["env_steps"]) == row


def test_all_weights_of_a_run_make_a_table(run, tianji):
    status, out, _ = tianji("eval", run, "--all", "--episodes", 3)
    assert status == 0
    head, *lines = out.splitlines()
    assert head.split()[:3] == ["weights", "steps", "updates"]
    names = [folder.name for folder in folders_of(run)]
    assert [line.split()[0] for line in lines] == [*names, "final", "best"]
    steps = [row["env_steps"] for row in rows(run)[:-1]]
    assert steps == sorted(steps)
    assert [name.partition("-step-")[2] for name in names] == [str(n) for n in steps[:-1]]


def test_one_checkpoint_is_evaluated(run, tianji):
    first = folders_of(run)[0]
    status, out, _ = tianji("eval", first, "--episodes", 2)
    assert status == 0
    assert first.name in out
    manifest = json.loads((first / "manifest.json").read_text())
    (row,) = rows(run)  # in the folder of the run
    assert (row["updates"], row["env_steps"]) == (manifest["version"], manifest["env_steps"])


def test_the_best_weights_are_evaluated(run, tianji):
    trained_rows = (run / "evaluations.jsonl").read_text().splitlines()
    best = max((json.loads(line) for line in trained_rows), key=lambda row: row["mean"])
    status, out, _ = tianji("eval", run, "--best", "--episodes", 2)
    assert status == 0
    assert f"best: {best['updates']:,} updates" in out
    shutil.rmtree(run / "checkpoints")
    status, _, err = tianji("eval", run, "--best")
    assert status == 2
    assert "exp.eval_step" in err


def test_the_best_of_a_run_without_evaluations_is_said_to_be_that_of_training(run, tianji):
    (run / "checkpoints" / "best.safetensors").unlink()
    status, out, err = tianji("eval", run, "--best", "--episodes", 2)
    assert status == 0
    assert "has no evaluation" in err and "the best return while training" in err
    assert "-step-" in out  # a checkpoint's name


def test_the_evaluation_of_the_end_is_written_down(run):
    lines = (run / "evaluations.jsonl").read_text().splitlines()
    summary = json.loads((run / "summary.json").read_text())
    last = json.loads(lines[-1])
    assert (last["updates"], last["env_steps"]) == (summary["updates"], summary["env_steps"])
    steps = [json.loads(line)["env_steps"] for line in lines]
    assert 0 not in steps and steps == sorted(steps)


def test_a_damaged_end_gives_way_to_the_newest_checkpoint(run, tianji):
    file = run / "checkpoints" / "final.safetensors"
    file.write_bytes(b"no safetensors")
    status, out, err = tianji("eval", run, "--episodes", 2)
    assert status == 0
    assert folders_of(run)[-1].name in out
    assert f"note: left out: {file} is damaged" in err and "deserializ" not in err
    for folder in folders_of(run):
        shutil.rmtree(folder)
    status, _, err = tianji("eval", run)
    assert status == 2
    assert "is damaged" in err and "no checkpoint" in err


def test_a_run_that_has_only_its_best_says_how_to_play_it(run, tianji):
    (run / "checkpoints" / "final.safetensors").unlink()
    for folder in folders_of(run):
        shutil.rmtree(folder)
    status, _, err = tianji("eval", run)
    assert status == 2
    assert "has no trained policy yet" in err and "--best" in err


def test_the_folder_of_the_checkpoints_points_at_the_run(run, tianji):
    status, _, err = tianji("eval", run / "checkpoints")
    assert status == 2
    assert f"name the run, {run}" in err


def test_a_run_that_has_not_ended_is_evaluated_by_its_newest_intact_checkpoint(run, tianji):
    (run / "checkpoints" / "final.safetensors").unlink()
    *_, before, last = folders_of(run)
    status, out, err = tianji("eval", run, "--episodes", 2)
    assert (status, err) == (0, "")
    assert last.name in out
    damage(last)
    status, out, err = tianji("eval", run, "--episodes", 2)
    assert status == 0
    assert before.name in out
    assert f"note: left out: {last}" in err


def test_a_damaged_checkpoint_is_left_out_of_the_table_with_a_note(run, tianji):
    first, *others = folders_of(run)
    damage(first)
    status, out, err = tianji("eval", run, "--all", "--episodes", 1)
    assert status == 0
    assert len(out.splitlines()) == 1 + len(others) + 2  # the end and the best
    assert f"note: left out: {first}" in err


def test_a_result_that_cannot_be_written_down_is_still_shown(run, tianji):
    (run / "evaluations.jsonl").unlink()
    (run / "evaluations.jsonl").mkdir()
    status, out, err = tianji("eval", run, "--episodes", 2)
    assert status == 0
    assert "over 2 games" in out
    assert "only shown here" in err


# ---------------------------------------------------------------------------------------- the film


def test_a_film_shows_one_game(run, tianji):
    image = pytest.importorskip("PIL.Image")
    file = run / "game.gif"
    status, out, err = tianji("eval", run, "--video", file, "--episodes", 2)
    assert (status, err) == (0, "")
    assert f"{file}: return" in out
    with image.open(file) as film:
        assert film.n_frames == 11  # before the first step, and after each of ten
        assert film.size == (34, 32)  # even
        assert film.info["duration"] in (30, 33)  # Echo does not say how fast it runs
        for i in range(film.n_frames):
            film.seek(i)
            picture = np.asarray(film.convert("RGB")).astype(int)
            assert picture[:, :, i % 3].max() > 200  # the colour changes with every step


def test_a_film_can_be_an_mp4(run, tianji):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    file = run / "game.mp4"
    assert tianji("eval", run, "--video", file, "--episodes", 1)[0] == 0
    n_frames, seconds = ffmpeg.count_frames_and_secs(str(file))
    assert n_frames == 11
    assert seconds == pytest.approx(11 / 30, abs=0.05)


def test_a_gymnasium_environment_is_filmed_at_its_own_speed(cartpole, tmp_path, tianji):
    pytest.importorskip("pygame")
    image = pytest.importorskip("PIL.Image")
    status, out, err = tianji(
        "eval", cartpole, "--video", tmp_path / "game.gif", "--episodes", 1, "--json"
    )
    assert (status, err) == (0, "")
    assert json.loads(out)["episodes"] == 1  # pygame's greeting is not among it
    with image.open(tmp_path / "game.gif") as film:
        assert film.size == (600, 400)
        assert film.info["duration"] == 20


@pytest.mark.parametrize(
    ("config", "steps"),
    [
        (TASKS / "spread_qmix.py", 15),
        pytest.param(ROOT / "configs/marl/maddpg_spread.py", 25, marks=[pytest.mark.slow, JAX]),
    ],
)
def test_a_game_of_several_agents_is_filmed(tmp_path, tianji, config, steps):
    for package in ("mpe2", "pygame"):
        pytest.importorskip(package)
    image = pytest.importorskip("PIL.Image")
    done = train(config, tmp_path / "run", "--max-seconds", "0.5", *LOCAL)
    assert done.status == 0, done.err
    file = tmp_path / "game.gif"
    status, out, err = tianji("eval", done.folder, "--video", file, "--episodes", 2)
    assert status == 0 and ("mpe2 plays" in err) == (steps == 25)
    assert f"{file}: return" in out and f"in {steps} steps" in out
    with image.open(file) as film:
        milliseconds = 0  # pictures that are alike are one, and shown for longer
        for i in range(film.n_frames):
            film.seek(i)
            milliseconds += film.info["duration"]
    assert milliseconds == (steps + 1) * 100


def test_what_is_missing_for_a_film_is_named(cartpole, tmp_path, tianji, monkeypatch):
    pytest.importorskip("PIL")
    monkeypatch.setitem(sys.modules, "pygame", None)  # as if it were not installed
    status, _, err = tianji("eval", cartpole, "--video", tmp_path / "game.gif")
    assert status == 2
    assert "CartPole-v1 cannot be filmed" in err
    assert "gymnasium[classic-control]" in err
    assert not (tmp_path / "game.gif").exists()


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("echo:Echo", "returned nothing"),
        ("painted:Grey", "returned float64[31, 40]"),
        ("painted:Locked", "the paint has dried up"),
    ],
)
def test_an_environment_that_cannot_be_filmed_is_named(run, tianji, name, word):
    pytest.importorskip("PIL")
    with_class(run, name)
    status, out, err = tianji("eval", run, "--trust", "--video", run / "game.gif")
    assert (status, out) == (2, "")
    assert f"{name} cannot be filmed" in err
    assert word in err
    assert not (run / "game.gif").exists()
    assert rows(run) == []  # nothing was played


def test_a_film_that_fails_leaves_nothing_behind(run, tianji):
    pytest.importorskip("PIL")
    with_class(run, "painted:Growing")
    status, _, err = tianji("eval", run, "--trust", "--video", run / "game.gif")
    assert status == 2
    assert "one size" in err
    assert not (run / "game.gif").exists()


def test_a_film_is_never_written_over(run, tianji):
    pytest.importorskip("PIL")
    (run / "game.gif").write_text("precious")
    status, _, err = tianji("eval", run, "--video", run / "game.gif")
    assert status == 2
    assert "nothing is overwritten" in err
    assert (run / "game.gif").read_text() == "precious"


def test_a_window_needs_a_display(run, tianji, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    status, _, err = tianji("eval", run, "--render")
    assert status == 2
    assert "DISPLAY" in err
    assert "--video" in err


def test_games_are_shown_one_after_the_other(run, tianji, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")  # this environment opens no window
    assert tianji("eval", run, "--render", "--episodes", 3)[0] == 0
    assert rows(run)[0]["lengths"] == [10, 10, 10]


# ----------------------------------------------------------------------------------------- mistakes

MISTAKES = {
    "no games": (("--episodes", "0"), "play 1 at least"),
    "too many games": (("--episodes", "100001"), "play 100,000 at most"),
    "a seed below nothing": (("--seed", "-1"), "seed"),
    "no number": (("--episodes", "many"), "invalid int value"),
    "a film of another kind": (("--video", "game.avi"), ".mp4 or .gif"),
    "a film in no folder": (("--video", "nowhere/game.gif"), "there is no folder nowhere"),
    "a film of all weights": (("--all", "--video", "game.gif"), "name one checkpoint"),
    "two ways to look at it": (("--render", "--video", "game.gif"), "not allowed with"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_with_a_word(run, tianji, mistake):
    if "--video" in MISTAKES[mistake][0]:
        pytest.importorskip("PIL")
    options, word = MISTAKES[mistake]
    status, out, err = tianji("eval", run, *options)
    assert (status, out) == (2, "")
    assert word in err
    assert "Traceback" not in err
    assert rows(run) == []


def test_a_run_that_does_not_exist_is_named(tmp_path, tianji):
    status, _, err = tianji("eval", tmp_path / "nothing")
    assert status == 2
    assert f"{tmp_path / 'nothing'} does not exist" in err


def test_a_folder_that_is_no_run_is_named(tmp_path, tianji):
    status, _, err = tianji("eval", tmp_path)
    assert status == 2
    assert "is not the folder of a run" in err


def test_a_run_that_has_learned_nothing_yet_is_named(run, tianji):
    shutil.rmtree(run / "checkpoints")
    for options in ((), ("--all",)):
        status, _, err = tianji("eval", run, *options)
        assert status == 2
        assert "has no trained policy yet" in err


def test_a_film_cannot_lie_within_a_file(run, tianji):
    pytest.importorskip("PIL")
    (run / "file").write_text("")
    status, _, err = tianji("eval", run, "--video", run / "file" / "game.gif")
    assert status == 2
    assert "there is no folder" in err


def test_long_games_say_how_far_they_are(cartpole, tianji, monkeypatch):
    monkeypatch.setattr(scores, "NEWS_SECONDS", 0.0)
    status, _, err = tianji("eval", cartpole, "--episodes", 3)
    assert status == 0
    assert "0 of 3 games are over, after 1 step" in err and "1 of 3" in err
