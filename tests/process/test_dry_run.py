"""`--dry-run` shows who would live where, and refuses what training would refuse."""

import json

import pytest
from commands import TASKS

from tianji.cli.main import main
from tianji.config import load

pytestmark = pytest.mark.process

ECHO = str(TASKS / "echo_ppo.py")  # a learner and two actors


def shown(capsys, *words):
    assert main(["train", ECHO, "--dry-run", *words]) == 0
    return [line.split()[:2] for line in capsys.readouterr().out.splitlines()]


def test_processes_are_counted_with_the_launcher_first(capsys):
    assert shown(capsys, "--engine", "process") == [
        ["role", "process"],
        ["launcher", "1"],
        ["learner-0.0", "2"],
        ["buffer-0.0", "2"],
        ["actor-0.0", "3"],
        ["actor-0.1", "4"],
    ]


def test_the_roles_of_one_process_are_listed(capsys):
    roles = ["launcher", "learner-0.0", "buffer-0.0", "actor-0.0", "actor-0.1"]
    expected = [["role", "process"], *([role, "1"] for role in roles)]
    assert shown(capsys, "--engine", "local") == expected


@pytest.mark.parametrize("engine", ["local", "process"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "hyp.lrr=1"), "hyp has no key 'lrr'"),
        (("--max-seconds", "-1"), "exp.max_seconds"),
        (("--seed", "-1"), "exp.seed"),
        (("--set", "environment.type=echo:Ecko"), "Ecko"),
    ],
)
def test_what_training_would_refuse_is_refused(capsys, engine, words, said):
    assert main(["train", ECHO, "--dry-run", "--engine", engine, *words]) == 2
    done = capsys.readouterr()
    assert said in done.err and not done.out


def test_more_roles_than_cores_and_groups_apart_are_pointed_out(capsys):
    many = ("--set", "actor_cfg.num=400", "--set", "actor_cfg.envs=1")
    apart = ("--set", "global_cfg.group_num=2", "--set", "global_cfg.use_group_parallel=False")
    assert main(["train", ECHO, "--dry-run", *many, *apart]) == 0
    said = capsys.readouterr().err
    assert "note: 802 processes (800 actors, 2 learners, which take turns) share" in said
    assert "note: 2 groups and global_cfg.use_group_parallel=False" in said
    assert main(["train", ECHO, "--dry-run", "--set", "actor_cfg.num=1"]) == 0
    assert "note" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [(), ("--engine", "process"), ("--engine", "local")])
def test_a_hostfile_without_mpi_is_refused(capsys, words):
    assert main(["train", ECHO, "--hostfile", "hosts.txt", *words]) == 2
    assert "--hostfile hosts.txt: only --engine mpi uses" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("engine", "said"),
    [("process", "only --engine mpi uses"), ("mpi", "hosts: there is no such file")],
)
def test_a_run_that_goes_on_takes_a_hostfile_if_it_had_ranks(tmp_path, capsys, engine, said):
    about = {"config": load(ECHO).to_json(), "engine": engine}
    (tmp_path / "config.json").write_text(json.dumps(about))
    assert main(["resume", str(tmp_path), "--trust", "--hostfile", str(tmp_path / "hosts")]) == 2
    assert said in capsys.readouterr().err
