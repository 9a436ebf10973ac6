"""`tianji plan` without measuring: what it plans for, and the command that it ends with."""

import argparse
import dataclasses
import shlex
import shutil
from pathlib import Path

import pytest
from profiles import profile

from tianji import cli, resources
from tianji.config import load
from tianji.errors import TianJiError
from tianji.placement import n_ranks
from tianji.planning import planfile
from tianji.planning.digest import digest_of
from tianji.planning.solver import Wish
from tianji.probing import planner
from tianji.verbs import plan


def options_of(*words, file="job.py"):
    parser = argparse.ArgumentParser()
    plan.arguments(parser)
    return parser.parse_args([str(file), *map(str, words)])


@pytest.fixture
def ending(root, tmp_path):
    """What `plan` would end with for words of the command line; the plan is written too."""
    file = tmp_path / "my job.py"
    shutil.copy(root / "configs" / "cartpole_dqn.py", file)
    out = tmp_path / "my job.plan.json"

    def end(*words):
        options = options_of(*words, file=file)
        config = load(file, options.overrides)
        costs = profile()
        costs = dataclasses.replace(
            costs, work=dataclasses.replace(costs.work, digest=digest_of(config))
        )
        made = planner.make(config, costs, Wish(4, options.hosts or 1)).plan
        planfile.write(made, out)
        return plan._what_next(options, made, out), made

    return end


def given_to_train(text):
    """The options of the command in what `plan` ends with."""
    words = shlex.split(text.splitlines()[0].removeprefix("to train with it: "))
    assert words[:2] == ["tianji", "train"]
    return cli.parser(words[1:]).parse_args(words[1:])


def followed(options, monkeypatch):
    """The plan that `train` would follow with these options."""
    monkeypatch.setattr(resources, "available_cores", lambda: (0, 1, 2, 3))
    where = options.run_dir, options.engine, options.hostfile
    return planner.for_run(options.plan, options.config, options.overrides, *where)


def test_the_command_has_the_keys_that_the_plan_was_made_with(ending, monkeypatch):
    text, made = ending("--set", "hyp.batch_size=64", "--set", "environment.kwargs={'a b': 1}")
    options = given_to_train(text)
    assert options.overrides == ["hyp.batch_size=64", "environment.kwargs={'a b': 1}"]
    assert followed(options, monkeypatch) == made


def test_the_command_does_not_contradict_the_plan(ending, monkeypatch):
    text, made = ending("--set", "actor_cfg.num=77", "--set", "hyp.n_step=3")
    options = given_to_train(text)
    assert options.overrides == ["hyp.n_step=3"]
    assert followed(options, monkeypatch) == made


def test_the_command_for_several_hosts_says_so(ending):
    text, made = ending("--hosts", 2)
    options = given_to_train(text)
    assert (options.engine, options.hostfile) == ("mpi", Path("hosts.txt"))
    config = load(options.config, [f"{key}={value!r}" for key, value in made.overrides.items()])
    assert f"`node1 slots={-(-n_ranks(config) // 2)}`" in text


def test_the_command_has_processes_where_the_configuration_has_one(ending, monkeypatch):
    text, made = ending("--set", "global_cfg.use_comm_parallel=False")
    options = given_to_train(text)
    assert options.engine == "process"
    assert followed(options, monkeypatch) == made


def test_a_plan_whose_groups_would_learn_apart_says_so(ending):
    text, _ = ending("--hosts", 2, "--set", "global_cfg.use_group_parallel=False")
    assert "nothing averages them" in text
    text, _ = ending("--hosts", 2)
    assert "nothing averages them" not in text


def test_a_plan_in_a_container_is_for_the_cores_that_it_pays_for(monkeypatch):
    monkeypatch.setattr(resources, "available_cores", lambda: tuple(range(64)))
    monkeypatch.setattr(resources, "quota", lambda: 2.0)
    assert plan._wish(options_of()).cores == 2
    assert plan._wish(options_of("--cores", 4)).cores == 4


def test_a_plan_takes_the_place_of_a_plan_alone(ending, tmp_path, monkeypatch):
    """What is refused is refused before anything is measured."""
    monkeypatch.setattr(planner, "measure", lambda *_: pytest.fail("it was measured"))
    ending()
    mine, older = tmp_path / "my job.py", tmp_path / "my job.plan.json"
    (tmp_path / "other.json").write_text('{"name": "a package"}')
    before = mine.read_bytes()
    for out, words in (
        (mine, "was not written by `tianji plan`"),
        (tmp_path / "other.json", "was not written by `tianji plan`"),
        (tmp_path, "this is a folder: name a file in it"),
        (tmp_path / "none" / "plan.json", "there is no folder"),
    ):
        with pytest.raises(TianJiError, match=words):
            plan.run(options_of("--profile", older, "--out", out, file=mine))
    assert mine.read_bytes() == before
    (tmp_path / "empty").touch()
    for out in (older, tmp_path / "empty", tmp_path / "new.json", Path("/dev/null")):
        assert plan._out(options_of("--out", out, file=mine)) == out
