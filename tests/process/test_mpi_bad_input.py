"""A mistake in an MPI job is answered once, with status 2, and no rank is left behind."""

import os
import sys

import jobs
import pytest
from commands import ROOT, TASKS
from mpi_pair import MISSING, mpirun

import tianji
from tianji.core.errors import TianJiError

pytestmark = [pytest.mark.process, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

ECHO = TASKS / "echo_ppo.py"  # a launcher, a learner and two actors


def ours(text):
    """The lines that are not mpirun's own."""
    return [line for line in text.splitlines() if line.startswith("tianji")]


def refused(done, *words):
    """One short error, and nothing begun."""
    assert done.status == 2, done.err
    [line] = ours(done.err)
    assert all(word in line for word in words), line
    assert "Traceback" not in done.err
    assert not done.folder.exists()


@pytest.mark.parametrize("n", [3, 5])
def test_a_wrong_number_of_ranks_is_answered_with_the_right_one(tmp_path, n):
    refused(jobs.train(ECHO, tmp_path / "run", n=n), f"mpirun -n 4, not {n}")


def test_an_unknown_key_is_named_once(tmp_path):
    done = jobs.train(ECHO, tmp_path / "run", "--set", "actor_cfg.nums=2", n=4)
    refused(done, "has no key 'nums'. Did you mean 'num'?")


def test_an_unknown_key_is_named_before_any_rank_is_started(tmp_path):
    done = jobs.train(ECHO, tmp_path / "run", "--set", "actor_cfg.nums=2")
    refused(done, "has no key 'nums'. Did you mean 'num'?")
    assert len(done.err.splitlines()) == 1


def test_an_environment_that_is_not_there_is_named_before_a_placement_is_shown(tmp_path):
    done = jobs.train(ECHO, tmp_path / "run", "--dry-run", "--set", "environment.type=echo:Ecko")
    refused(done, "Ecko")
    assert not done.out


def test_an_unknown_option_is_answered_once(tmp_path):
    done = jobs.train(ECHO, tmp_path / "run", "--nope", n=4)
    assert done.status == 2
    assert done.err.count("unrecognized arguments: --nope") == 1


def test_help_is_shown_once_and_lets_all_ranks_go(tmp_path):
    done = jobs.train(ECHO, tmp_path / "run", "--help", n=4)
    assert done.status == 0, done.err
    assert done.out.count("usage: tianji train") == 1


def test_a_word_that_is_no_verb_is_answered_once(tmp_path):
    line = mpirun(3, sys.executable, "-m", "tianji", "trian", ECHO)
    done = jobs.ended(line, tmp_path / "run")
    assert done.status == 2
    assert done.err.count("invalid choice: 'trian'") == 1


def test_an_environment_that_does_not_keep_its_word_is_refused_once(tmp_path):
    text = (TASKS / "echo.py").read_text()
    text += "\n\nclass Wrong(Echo):\n    def reset(self):\n        return 'north'\n"
    (tmp_path / "echo.py").write_text(text)
    config = tmp_path / "config.py"
    config.write_text(ECHO.read_text().replace("echo:Echo", "echo:Wrong"))
    refused(jobs.train(config, tmp_path / "run", n=4), "obs")


def test_configurations_that_differ_between_machines_are_refused(tmp_path):
    """The same command in folders of the same name, as on disks of two machines."""
    for name, text in (("a", ECHO.read_text()), ("b", ECHO.read_text() + "\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.py").write_text(text)
        (tmp_path / name / "echo.py").write_text((TASKS / "echo.py").read_text())
    folder = tmp_path / "run"
    line = jobs.spread({"a": 2, "b": 2}, jobs.words("job.py", folder))
    for name in ("b", "a"):  # from the end: the places do not move
        at = line.index(f"TIANJI_HOST={name}") + 1
        line[at:at] = ["--wdir", str(tmp_path / name)]
    refused(jobs.ended(line, folder), "rank 2 on b: its configuration is", "that of rank 0 is")


def test_commands_that_differ_between_ranks_are_refused(tmp_path):
    folder = tmp_path / "run"
    line = jobs.spread({"a": 2, "b": 2}, jobs.words(ECHO, folder))
    refused(jobs.ended([*line, "--seed", "5"], folder), "rank 2 on b: its command line is")


def test_another_engine_in_a_job_is_refused_once(tmp_path):
    done = jobs.train(ECHO, tmp_path / "run", "--engine", "process", n=4)
    refused(done, "engine process", "run it without mpirun")


@pytest.fixture
def without_mpi4py(tmp_path):
    """A folder that hides the installed package."""
    hidden = tmp_path / "hidden" / "mpi4py"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('libmpi.so.40 cannot be loaded')\n")
    return f"{hidden.parent}{os.pathsep}{ROOT}"


def test_ranks_that_cannot_load_mpi_say_so_once(tmp_path, without_mpi4py):
    done = jobs.train(ECHO, tmp_path / "run", n=4, PYTHONPATH=without_mpi4py)
    refused(done, "engine mpi: libmpi.so.40 cannot be loaded", "pip install 'tianji[mpi]'")


def test_the_command_passes_on_that_its_ranks_cannot_load_mpi(tmp_path, without_mpi4py):
    done = jobs.train(ECHO, tmp_path / "run", PYTHONPATH=without_mpi4py)
    refused(done, "engine mpi: libmpi.so.40 cannot be loaded", "pip install 'tianji[mpi]'")


def test_a_program_that_is_no_rank_is_told_how_to_start_one(tmp_path):
    with pytest.raises(TianJiError, match=r"on the command line: tianji train CONFIG --engine mpi"):
        tianji.train(ECHO, engine="mpi", run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_transport_of_ones_own_is_refused_because_ranks_have_theirs(tmp_path):
    own = "global_cfg.transport=tianji.transports.shm:ShmTransport"
    with pytest.raises(TianJiError, match=r"global_cfg\.transport: engine mpi has its own: leave"):
        tianji.train(ECHO, own, engine="mpi", run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_verb_that_does_not_train_runs_once(tmp_path):
    line = mpirun(3, sys.executable, "-m", "tianji", "--version")
    done = jobs.ended(line, tmp_path / "run")
    assert done.status == 0
    assert done.out.count("tianji ") == 1
