"""Every snippet of the documentation does what the page says: run, loaded, or told why not."""

import os
import re
import runpy
import shutil
import signal
import subprocess
import sys

import pytest
from commands import ROOT, end, eventually, rows
from pages import PAGES, PYTHON, SHELL, commands_of, inline_commands, lines_of

import tianji
from tianji.cli.main import main, parser
from tianji.config import load
from tianji.config.keywords import SHORT, as_overrides
from tianji.core.errors import TianJiError
from tianji.runs import replay, resume

pytestmark = pytest.mark.process

PARTS = {  # blocks that are a piece of a file, and have a test of their own below
    "own-environment.md-0": "my_env.py",
    "own-environment.md-2": "two more methods of its class",
    "own-algorithm.md-0": "my_algorithm.py",
    "own-algorithm.md-2": "two more methods of its policy",
    "groups.md-0": "a method of an algorithm with FlatParameters",
}
TEXT = {block.name: block.text for block in PYTHON}
SCRIPTS = [block for block in PYTHON if not block.is_config and block.name not in PARTS]
JOBS = [block for block in SHELL if block.is_script]

NOT_RUN = {  # commands that are parsed and no more
    "--render": "opens a window",
    "--video": "films for seconds; test_eval.py does",
    "make": "sets up an environment and trains, or tests: this is the test",
    "bench": "trains several times; test_bench_command.py does for seconds",
    "verify": "trains many times; test_verify.py does with a smaller task",
    "pip": "installs packages",
    ".venv/bin/pip": "installs packages",
    "python": "another file, with a test of its own",
    "python3": "sets up an environment",
    ".": "a shell's own",
    "sbatch": "needs a cluster",
}


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A short run with a checkpoint, an evaluation and a trace."""
    folder = tmp_path_factory.mktemp("shown") / "run"
    evaluated = dict(exp=dict(eval_step=4_000, eval_times=2))
    config = ROOT / "configs" / "cartpole_ppo.py"
    more = dict(stop_return=60, trace=5, **evaluated)
    report = tianji.train(config, engine="local", run_dir=folder, **more)
    assert report.solved and (folder / "checkpoints" / "best.safetensors").exists()
    return folder


@pytest.fixture
def place(tmp_path, trained, monkeypatch):
    """A folder with `runs/NAME`, whatever the name, and with the files that pages name."""

    def make(*texts):
        for name in re.findall(r"\bruns/([\w.*-]+)", " ".join(texts)):
            shutil.copytree(trained, tmp_path / "runs" / name.replace("*", "1"), dirs_exist_ok=True)
        made = shutil.ignore_patterns("out", "__pycache__")
        for folder in ("configs", "examples", "bench"):
            shutil.copytree(ROOT / folder, tmp_path / folder, ignore=made)
        for path in (tmp_path / "configs").glob("*.py"):  # the same, and done sooner
            text = re.sub(r"stop_return=\d+", "stop_return=60", path.read_text())
            path.write_text(text)
        (tmp_path / "my_job.py").write_text(TEXT["README.md-0"])
        (tmp_path / "my_config.py").write_text(TEXT["own-algorithm.md-1"])
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path / "examples")
        return tmp_path

    return make


PAGES_WITH_SCRIPTS = sorted({block.page for block in SCRIPTS})


@pytest.mark.parametrize("page", PAGES_WITH_SCRIPTS)
def test_the_python_of_a_page_runs_from_top_to_bottom(page, place):
    blocks = [block for block in SCRIPTS if block.page == page]
    text = "\n".join(f"# {block.name}\n{block.text}" for block in blocks)
    folder = place(text)
    (folder / "shown.py").write_text(text, encoding="utf-8")
    runpy.run_path("shown.py")


def test_no_block_of_python_is_left_out():
    ran = [block.name for block in SCRIPTS]
    loaded = [block.name for block in PYTHON if block.is_config]
    assert sorted([*ran, *loaded, *PARTS]) == sorted(TEXT)


def test_the_environment_of_the_page_trains_and_goes_on_in_its_episodes(tmp_path, capfd):
    more = f"{TEXT['own-environment.md-2']}\n\nGuess.state, Guess.restore = state, restore\n"
    (tmp_path / "my_env.py").write_text(f"{TEXT['own-environment.md-0']}\n\n{more}")
    (tmp_path / "my_config.py").write_text(TEXT["own-environment.md-1"])
    train_and_go_on(tmp_path)
    said = capfd.readouterr().err
    assert "resumed from" in said and "begin anew" not in said


def test_the_algorithm_of_the_page_trains_and_goes_on(tmp_path, capfd):
    more = TEXT["own-algorithm.md-2"]
    more += "\n\nLinearPolicy.state, LinearPolicy.restore = state, restore\n"
    (tmp_path / "my_algorithm.py").write_text(f"{TEXT['own-algorithm.md-0']}\n\n{more}")
    (tmp_path / "my_config.py").write_text(TEXT["own-algorithm.md-1"])
    train_and_go_on(tmp_path)
    said = capfd.readouterr().err
    assert "resumed from" in said and "the episodes in progress begin anew" in said


def train_and_go_on(folder):
    run, n = folder / "run", 3_000
    limits = dict(stop_return=1e9, exp=dict(train_steps=n))
    first = tianji.train(folder / "my_config.py", engine="local", run_dir=run, **limits)
    second = tianji.resume(run, exp=dict(train_steps=2 * n))
    assert (first.status, second.status) == ("finished", "finished"), second.error
    assert second.summary["updates"] > first.summary["updates"]


def filled(words):
    """A command from a sentence, with its placeholders filled in."""
    words = [re.sub(r"^RUN\b", "runs/shown", word) for word in words]
    words = [re.sub(r"checkpoints/\d+-step-\d+", "checkpoints/KEPT", word) for word in words]
    return tuple({"CONFIG": "my_job.py", "FILE": "film.gif"}.get(word, word) for word in words)


COMMANDS = sorted(
    {tuple(words) for block in SHELL for words in commands_of(block)}
    | {filled(words) for page in PAGES for _, words in inline_commands(page)}
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_runs_or_could_begin(words, place, trained, capsys):
    folder = place(*words)
    kept = next(path.name for path in (trained / "checkpoints").iterdir() if path.is_dir())
    words = [word.replace("KEPT", kept).replace("*", "1") for word in words]
    options = parser(words).parse_args(words)
    if options.verb == "train":
        named = {name: value for name in SHORT if (value := vars(options)[name]) is not None}
        load(options.config, [*options.overrides, *as_overrides(named)])
    elif options.verb in ("plan", "verify", "chaos"):  # other tests run them
        load(options.config, options.overrides)
    elif options.verb == "replay":
        with pytest.raises(TianJiError, match="has no record"):  # as the run that stands in
            replay.replay(options.run)
    elif options.verb == "resume":
        more = ["exp.stop_return=1e9", "exp.max_seconds=1e6"]  # the run that stands in was solved
        resume.reopen(folder / options.run, [*options.overrides, *more])
    elif not any(word in NOT_RUN for word in words):
        before = signal.getsignal(signal.SIGINT)
        try:
            assert main(words) == 0, capsys.readouterr().err
        finally:
            signal.signal(signal.SIGINT, before)


SHARED = """
from own_algorithm import A2C, network
from tianji.core.lazy import torch


class Shared(A2C):
    scalars = ("loss",)
    learn = A2C.__bases__[0].learn

    @classmethod
    def n_parameters(cls, task):
        return cls.n_weights(task) + network(task, 1).n_weights

    def parameters(self):
        return self._flat.vector.numpy()

    def _loss(self, batch):
        value = self.critic(torch.from_numpy(batch["obs"][:, :-1]).flatten(0, 2)).squeeze(1)
        return (value - torch.from_numpy(batch["reward"]).flatten()).square().mean()
"""


def test_an_update_of_ones_own_is_shared_by_two_learners(tmp_path):
    shutil.copy(ROOT / "examples" / "own_algorithm.py", tmp_path)
    method = "\n".join(f"    {line}" for line in TEXT["groups.md-0"].splitlines())
    (tmp_path / "shared.py").write_text(f"{SHARED}\n{method}\n")
    (tmp_path / "job.py").write_text(
        'environment = dict(type="GymEnv", gym_name="CartPole-v1")\n'
        'agent = dict(type="shared:Shared")\n'
    )
    for n in (1, 2):
        given = {"learner_cfg.num": n, "actor_cfg.num": 2, "learner_cfg.exit_val.learn_step": 5}
        folder = tmp_path / f"run{n}"
        report = tianji.train(tmp_path / "job.py", engine="local", run_dir=folder, **given)
        assert report.summary["updates"] == 5
        assert report.exit_status == 0


def test_no_line_of_a_shell_block_is_left_out():
    for block in SHELL:
        if block.is_script:
            continue  # as a whole, below
        lines = [line for line in lines_of(block) if not line.startswith("#")]
        others = [line.split()[0] for line in lines if not line.startswith("tianji ")]
        assert len(commands_of(block)) + len(others) == len(lines)
        assert set(others) <= set(NOT_RUN), f"{block.name}: run it, or say why not"


@pytest.mark.parametrize("block", JOBS, ids=lambda block: block.name)
def test_a_job_script_is_a_script(block):
    done = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert commands_of(block)


ENDLESS = """
environment = dict(type="GymEnv", gym_name="CartPole-v1")
exp = dict(train_steps=1_000_000_000, stop_return=1e9)
parallel_parameters = dict(learner_cfg=dict(cores=1), actor_cfg=dict(num=1, envs=8))
"""
TOOLS = {
    "tianji": 'exec "$PYTHON" -m tianji.cli.main "$@"',
    "scontrol": 'echo "$@" > scontrol.txt',
}


@pytest.fixture
def node(tmp_path):
    """A folder like that of a job: with its config, an environment, and stand-ins for Slurm."""
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name, text in TOOLS.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    (tools / "activate").write_text('PATH="$PWD/.venv/bin:$PATH"\n')
    (tmp_path / "my_job.py").write_text(ENDLESS)
    return tmp_path


def preempted(script, node, folder):
    """Runs a job script until it trains, tells it to leave, and returns how it left."""
    slurm = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=node,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHON": sys.executable} | slurm,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    known = len(rows(folder))
    try:
        eventually(lambda: len(rows(folder)) > known or process.poll() is not None, what="training")
        assert process.poll() is None, process.communicate()
        os.kill(process.pid, signal.SIGUSR1)
        _, said = process.communicate(timeout=120)
    finally:
        end(process)
    return process.returncode, said


def test_a_job_for_one_node_asks_to_be_queued_again_and_goes_on(node, monkeypatch):
    monkeypatch.chdir(node)
    assert main(["slurm", "my_job.py", "--nodes", "1", "--out", "my_job.sbatch"]) == 0
    written = (node / "my_job.sbatch").read_text()
    script = written.replace("export PATH=", f"export PATH={node / '.venv' / 'bin'}:")
    folder = node / "runs" / "my_job-7"
    assert preempted(script, node, folder)[0] == 128 + signal.SIGUSR1
    assert (node / "scontrol.txt").read_text() == "requeue 7\n"
    status, said = preempted(script, node, folder)
    assert status == 128 + signal.SIGUSR1
    assert "note: resumed from 0001-step-" in said


def test_a_job_of_an_array_has_its_seed_and_its_folder(node):
    [array] = JOBS
    folder = node / "runs" / "my_job-seed3"
    assert preempted(array.text, node, folder)[0] == 128 + signal.SIGUSR1
    assert tianji.load(folder).config.exp.seed == 3
