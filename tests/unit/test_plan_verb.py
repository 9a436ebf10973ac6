"""`tianji plan` without measuring: what it plans for, and the command that it ends with."""

import argparse
import dataclasses
import shlex
import shutil
from pathlib import Path

import pytest
from profiles import profile

from tianji.cli import main, plan
from tianji.config import load
from tianji.core.errors import TianJiError
from tianji.machine import resources
from tianji.machine.placement import n_ranks
from tianji.strategy.plan import plan_file
from tianji.strategy.plan.same_job import digest_of
from tianji.strategy.plan.solver import PlanRequest
from tianji.strategy.probe import plan_for_run, planner


def options_of(*words, file="job.py"):
    parser = argparse.ArgumentParser()
    plan.arguments(parser)
    return parser.parse_args([str(file), *map(str, words)])


@pytest.fixture
def ending(root, tmp_path, monkeypatch):
    """What `plan` would end with for words of the command line; the plan is written too.

    It is for four cores, and this machine has four unless a test says otherwise.
    """
    monkeypatch.setattr(resources, "available_cores", lambda: (0, 1, 2, 3))
    monkeypatch.setattr(resources, "quota", lambda: None)
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
        wish = PlanRequest(4, options.hosts or 1, groups=options.groups)
        made = planner.make(config, costs, wish).plan
        plan_file.write(made, out)
        return plan._what_next(options, made, out), made

    return end


def given_to_train(text):
    """The options of the command in what `plan` ends with."""
    words = shlex.split(text.splitlines()[0].removeprefix("to train with it: "))
    assert words[:2] == ["tianji", "train"]
    return main.parser(words[1:]).parse_args(words[1:])


def followed(options, monkeypatch):
    """The plan that `train` would follow with these options."""
    monkeypatch.setattr(resources, "available_cores", lambda: (0, 1, 2, 3))
    where = options.run_dir, options.engine, options.hostfile
    return plan_for_run.for_run(options.plan, options.config, options.overrides, *where)


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


def test_a_plan_for_more_cores_than_there_are_says_where_it_can_be_used(ending, monkeypatch):
    text, _ = ending()
    assert text.startswith("to train with it: tianji train ") and "offers" not in text
    monkeypatch.setattr(resources, "available_cores", lambda: (0, 1))
    text, made = ending()
    there, command = text.splitlines()
    assert (
        "4 cores, and this one offers 2" in there
        and str(made.split.cores(made.profile.work)) == "4"
    )
    assert command.startswith("to train with it there: tianji train ")
    text, _ = ending("--hosts", 2)
    assert "4 cores, and this one offers 2" in text


@pytest.mark.parametrize(("time", "refused"), [(2.0, True), (3.9, True), (4.0, False)])
def test_what_is_said_to_be_refused_in_a_container_is_refused(
    ending, tmp_path, monkeypatch, time, refused
):
    """Either of the two groups would fit, and both would not."""
    monkeypatch.setattr(resources, "available_cores", lambda: tuple(range(64)))
    monkeypatch.setattr(resources, "quota", lambda: time)
    text, made = ending("--groups", 2)
    assert ("and this one offers" in text) is refused
    job = tmp_path / "my job.plan.json", tmp_path / "my job.py", [], None, None
    if refused:
        with pytest.raises(TianJiError, match=f"for 4 cores and this machine offers {int(time)}"):
            plan_for_run.for_run(*job)
    else:
        assert plan_for_run.for_run(*job) == made


def test_a_rule_for_a_batch_that_stays_as_it_is_is_refused(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(planner, "measure", lambda *_, **__: pytest.fail("it was measured"))
    ending()
    with pytest.raises(TianJiError, match=r"--lr-rule linear with no --batch-scale"):
        plan.run(options_of("--lr-rule", "linear", file=tmp_path / "my job.py"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cores", 1_025), r"--cores 1025: .* 1,024 at most: .*--hosts N; .*--cores-list"),
        (
            ("--simulate", "--cores-list", 9_999, "--host-cores", 9_999),
            "--host-cores 9999: .* 1,024 at most: ",
        ),
        (("--seconds", 5), "--seconds 5.0 with --profile"),
    ],
)
def test_what_would_have_no_end_or_no_effect_is_refused(ending, tmp_path, monkeypatch, words, said):
    monkeypatch.setattr(planner, "measure", lambda *_, **__: pytest.fail("it was measured"))
    ending()
    older = ("--profile", tmp_path / "my job.plan.json", "--out", tmp_path / "new.json")
    with pytest.raises(TianJiError, match=said):
        plan.run(options_of(*older, *words, file=tmp_path / "my job.py"))


def test_cores_that_a_simulation_does_not_measure_on_are_refused(ending, tmp_path):
    ending()
    words = ("--simulate", "--profile", tmp_path / "my job.plan.json", "--cores", 16)
    with pytest.raises(TianJiError, match=r"--cores 16 with --simulate --profile"):
        plan.run(options_of(*words, file=tmp_path / "my job.py"))
    words = (*words, "--actors", 2, "--out", tmp_path / "new.json")  # a plan is for cores
    assert plan.run(options_of(*words, file=tmp_path / "my job.py")) == 0


def test_a_key_that_was_set_stays_in_the_plan(ending, tmp_path, monkeypatch):
    """As with `train --plan auto`: the plan had other numbers, and said nothing of it."""
    ending()
    monkeypatch.chdir(tmp_path)
    words = ("--profile", "my job.plan.json", "--out", "new.json", "--cores", 16)
    keys = ("actor_cfg.num=2", "global_cfg.group_num=2", "learner_cfg.cores=3")
    sets = [part for key in keys for part in ("--set", key)]
    assert plan.run(options_of(*words, *sets, file="my job.py")) == 0
    made = plan_file.read(Path("new.json"))
    assert [f"{key}={made.overrides[key]}" for key in (k.split("=")[0] for k in keys)] == [*keys]
    with pytest.raises(TianJiError, match=r"^--actors 3: --set says 2, "):
        plan.run(options_of(*words, *sets, "--actors", 3, file="my job.py"))
    with pytest.raises(TianJiError, match=r"no split of 16 cores .*has .*actor_cfg.num=77"):
        plan.run(options_of(*words, "--set", "actor_cfg.num=77", file="my job.py"))


def test_in_a_terminal_no_line_is_longer_than_it(ending, tmp_path, monkeypatch, capsys):
    _, made = ending()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    older, out = tmp_path / "my job.plan.json", "new.plan.json"
    words = ("--profile", older.name, "--cores", 64, "--out", out)
    assert plan.run(options_of(*words, file="my job.py")) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    copied = text.partition("to train with it there:")[2].replace("\\\n", " ")
    assert shlex.split(copied) == ["tianji", "train", "my job.py", "--plan", out]


def test_cores_that_nobody_uses_are_counted(ending, tmp_path, monkeypatch, capsys):
    ending()
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)
    words = ("--profile", "my job.plan.json", "--out", "new.json", "--groups", 1, "--actors", 2)
    assert plan.run(options_of(*words, "--cores", 16, file="my job.py")) == 0
    used = plan_file.read(Path("new.json")).split.cores(profile().work)
    assert f"; {16 - used} of 16 cores idle\n" in capsys.readouterr().out


@pytest.mark.parametrize(("cores", "said"), [(4, False), (64, True)])
def test_memory_that_nobody_knows_is_not_said_to_suffice(
    ending, tmp_path, monkeypatch, capsys, cores, said
):
    ending()
    monkeypatch.chdir(tmp_path)
    words = ("--profile", "my job.plan.json", "--out", "new.json", "--cores", cores)
    assert plan.run(options_of(*words, "--hosts", 2, file="my job.py")) == 0
    text = " ".join(capsys.readouterr().out.split())
    each = plan_file.read(Path("new.json")).prediction.memory_bytes / 2 / 2**20
    unknown = f"nobody knows whether {each:,.0f} MiB fit"
    assert (unknown in text) is said


def test_a_plan_in_a_container_is_for_the_cores_that_it_pays_for(monkeypatch):
    monkeypatch.setattr(resources, "available_cores", lambda: tuple(range(64)))
    monkeypatch.setattr(resources, "quota", lambda: 2.0)
    assert plan._wish(options_of()).cores == 2
    larger = plan._wish(options_of("--cores", 4))
    assert larger.cores == 4 and larger.memory_bytes is None  # what is free here says nothing there
    assert plan._wish(options_of("--cores", 2)).memory_bytes is not None


def test_the_plan_that_costs_are_taken_from_is_kept(ending, tmp_path, monkeypatch):
    """It was made for this machine, and the new one may be for another."""
    ending()
    monkeypatch.chdir(tmp_path)
    older = Path("my job.plan.json")
    before = older.read_bytes()
    with pytest.raises(TianJiError, match=r"would take the place of that one: .* --out"):
        plan.run(options_of("--profile", older, "--cores", 64, file="my job.py"))
    assert older.read_bytes() == before
    assert (
        plan.run(options_of("--profile", older, "--cores", 64, "--out", older, file="my job.py"))
        == 0
    )
    assert older.read_bytes() != before


def test_a_plan_takes_the_place_of_a_plan_alone(ending, tmp_path, monkeypatch):
    """What is refused is refused before anything is measured."""
    monkeypatch.setattr(planner, "measure", lambda *_, **__: pytest.fail("it was measured"))
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--actors", 4, "--cores", 4), "no split of 4 cores on 1 host has actor_cfg.num=4"),
        (("--groups", 3, "--hosts", 2), "group_num=3; each of 2 hosts has as many groups"),
        (("--envs", 4_000), "envs=4000; the pool has room for 3,125 "),
        (("--learner-cores", 4, "--cores", 4), "has learner_cfg.cores=4"),
        (("--set", "actor_cfg.num=9", "--cores", 4), "4 cores .*has actor_cfg.num=9: leave"),
        (("--set", "actor_cfg.cores=2"), "^actor_cfg.cores=2: a plan gives each actor one core"),
        (("--simulate", "--learners", 3), "--learners 3: a batch of 128 samples cannot"),
        (("--simulate", "--groups", 2, "--hosts", 3), "--hosts 3: hosts and 2 groups cannot"),
        (("--simulate", "--actors", 1, "--hosts", 3), "--hosts 3: there are only 2 processes"),
    ],
)
def test_what_is_impossible_is_refused_before_measuring(root, tmp_path, monkeypatch, words, said):
    monkeypatch.setattr(planner, "probe", lambda *_: pytest.fail("it was measured"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TianJiError, match=said):
        plan.run(options_of(*words, file=root / "configs" / "cartpole_dqn.py"))


def test_what_need_not_fit_here_is_measured_to_be_simulated(root, tmp_path, monkeypatch):
    class Measured(Exception):
        pass

    def probe(*_):
        raise Measured

    monkeypatch.setattr(planner, "probe", probe)
    monkeypatch.chdir(tmp_path)
    words = ("--simulate", "--cores", 1, "--actors", 9, "--set", "learner_cfg.num=2")
    with pytest.raises(Measured):
        plan.run(options_of(*words, file=root / "configs" / "cartpole_dqn.py"))
