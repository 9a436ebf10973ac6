"""A mistake is answered with a word on what to do, status 2, and nothing left behind."""

import os
import resource
import subprocess
import sys

import pytest
from commands import ROOT, TASKS, start, train

pytestmark = pytest.mark.process

PPO = ROOT / "configs" / "cartpole_ppo.py"

MISTAKES = {
    "unknown key": (("actor_cfg.nums=2",), "has no key 'nums'. Did you mean 'num'?"),
    "wrong type": (("hyp.lr=fast",), "hyp.lr"),
    "too small": (("actor_cfg.num=0",), "actor_cfg.num"),
    "unknown environment": (("environment.gym_name=CartPol-v1",), "CartPole-v1"),
    "unknown algorithm": (("agent.type=PPOO",), "PPO"),
    "no such module": (("environment.type=nowhere:Env",), "nowhere"),
    "too many cores": (("learner_cfg.cores=900", "actor_cfg.cores=1"), "this machine offers"),
    "sizes that do not fit": (("model.c1=7",), "write c1=4"),
    "too little memory": (("hyp.step_len=1000000000",), "not enough memory"),
    "shares that cannot be equal": (("actor_cfg.num=2", "hyp.batch_size=3"), "multiple of 2"),
    "a ratio that on-policy training cannot have": (("global_cfg.replay_ratio=4",), "replay_ratio"),
    "a step size below nothing": (("hyp.lr=-1",), "hyp.lr"),
    "a lag that would drop everything": (
        ("hyp.mode=async", "actor_cfg.num=4", "hyp.batch_size=1", "hyp.max_lag=2"),
        "max_lag",
    ),
    "no GPU here": (("learner_cfg.device=cuda",), "device"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_before_anything_starts(tmp_path, mistake):
    overrides, word = MISTAKES[mistake]
    options = [part for override in overrides for part in ("--set", override)]
    done = train(PPO, tmp_path / "run", *options)
    assert done.status == 2
    assert word in done.err
    assert "Traceback" not in done.err
    assert len(done.err.strip().splitlines()) <= 3
    assert "go on" not in done.out
    assert not (tmp_path / "run").exists()


def test_a_missing_file_is_named(tmp_path):
    done = train(ROOT / "configs" / "cartpole_ppoo.py", tmp_path / "run")
    assert done.status == 2
    assert "cartpole_ppo.py" in done.err  # the nearest name
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    done = train(PPO, tmp_path / "file" / "run")
    assert done.status == 2
    assert "--run-dir" in done.err


def test_the_folder_of_another_run_is_left_alone(tmp_path):
    first = train(TASKS / "echo_ppo.py", tmp_path / "run", "--max-seconds", "0.5")
    before = (tmp_path / "run" / "summary.json").read_bytes()
    second = train(TASKS / "echo_dqn.py", tmp_path / "run")
    assert (first.status, second.status) == (0, 2)
    assert "another configuration" in second.err
    assert (tmp_path / "run" / "summary.json").read_bytes() == before


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("return np.zeros(3, np.float32)", "float32[4]"),
        ("return 'north'", "obs"),
        ("raise OSError('the licence server is down')", "the licence server is down"),
    ],
)
def test_an_environment_that_does_not_keep_its_word_is_refused(tmp_path, body, word):
    text = (TASKS / "echo.py").read_text()
    text += f"\n\nclass Wrong(Echo):\n    def reset(self):\n        {body}\n"
    (tmp_path / "echo.py").write_text(text)
    config = tmp_path / "config.py"
    config.write_text((TASKS / "echo_ppo.py").read_text().replace("echo:Echo", "echo:Wrong"))
    done = train(config, tmp_path / "run")
    assert done.status == 2
    assert word in done.err
    assert not (tmp_path / "run").exists()


def test_a_store_smaller_than_what_comes_at_once_is_refused(tmp_path):
    done = train(TASKS / "echo_dqn.py", tmp_path / "run", "--set", "hyp.buffer_size=63")
    assert done.status == 2
    assert "use 64 at least" in done.err


def command(*words):
    return subprocess.run(
        [sys.executable, "-m", "tianji", *map(str, words)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "x", "--nope"], "tianji train: unrecognized arguments: --nope"),
        (["resume", "x", "--nope"], "tianji resume: unrecognized arguments: --nope"),
        (["plan", "x", "--cores", "0"], "tianji plan: argument --cores: want a whole number of"),
        (["train"], "tianji train: the following arguments are required: CONFIG"),
        (["bench"], "tianji bench: the following arguments are required: CONFIG"),
        (["trian"], "tianji: argument VERB: invalid choice: 'trian'"),
    ],
)
def test_a_mistake_in_the_options_is_two_lines_and_not_all_options(words, message):
    done = command(*words)
    assert done.returncode == 2 and not done.stdout
    said, see = done.stderr.splitlines()
    assert said.startswith(message) and see == f"see {message.partition(':')[0]} --help"


@pytest.mark.parametrize("n", [8, 12, 14, 15])
def test_too_few_open_files_to_start_are_told_and_nothing_is_left(tmp_path, n):
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))

    process = start(TASKS / "echo_ppo.py", tmp_path / "run", preexec_fn=few)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"{n} open files are allowed" in err and "ulimit -n" in err
    assert not (tmp_path / "run").exists()


def test_without_a_verb_there_is_the_help():
    done = command()
    assert done.returncode == 2 and "go on with a run" in done.stderr


def test_the_folder_of_a_run_is_no_configuration_and_the_other_way_round(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "my_job.py").touch()
    done = command("train", tmp_path)
    assert done.returncode == 2 and f"tianji resume {tmp_path}" in done.stderr
    done = command("resume", tmp_path / "my_job.py")
    assert done.returncode == 2 and f"tianji train {tmp_path / 'my_job.py'}" in done.stderr
