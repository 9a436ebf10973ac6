"""The plan of a run: read or made, for this machine or those of a hostfile; nothing is measured."""

import dataclasses
import io
import json
import os

import pytest
from profiles import profile

from tianji.cli import train
from tianji.config import load
from tianji.core.errors import TianJiError
from tianji.machine import resources
from tianji.machine.placement import n_ranks
from tianji.strategy.plan import plan_file
from tianji.strategy.plan.same_job import digest_of
from tianji.strategy.plan.solver import PlanRequest
from tianji.strategy.probe import plan_for_run, planner

JOB = profile()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def dqn(root):
    return root / "configs" / "cartpole_dqn.py"


@pytest.fixture(autouse=True)
def probed(monkeypatch):
    """This machine offers four cores, and a probe takes no time; returns the cores it was given."""
    cores = []

    def probe(job, n_cores, *_):
        cores.append(n_cores)
        return dataclasses.replace(
            JOB, work=dataclasses.replace(JOB.work, digest=digest_of(job.config))
        )

    monkeypatch.setattr(planner, "probe", probe)
    monkeypatch.setattr(resources, "available_cores", lambda: (0, 1, 2, 3))
    monkeypatch.setattr(resources, "unbound_cores", lambda: (0, 1, 2, 3))
    monkeypatch.setattr(resources, "quota", lambda: None)
    for name in ("OMPI_COMM_WORLD_RANK", "SLURM_JOB_NUM_NODES"):
        monkeypatch.delenv(name, raising=False)
    return cores


def follow(plan, file, *given, folder=None, engine=None, hostfile=None):
    return plan_for_run.for_run(plan, file, list(given), folder, engine, hostfile)


@pytest.fixture
def ppo(root):
    return root / "configs" / "cartpole_ppo.py"


def rollouts_of(config, **changes):
    """Costs of a configuration whose batch is a trajectory of every environment."""
    actors = config.parallel.actor_cfg
    envs, batch = actors.num * actors.envs, 32 * actors.num * actors.envs
    facts = dict(steps=32, ratio=1.0, on_policy=True, alternates=True, batch=batch, pool=batch)
    costs = profile(envs=envs, **(facts | changes))
    own = dataclasses.replace(costs.work, digest=digest_of(config))
    return dataclasses.replace(costs, work=own)


def with_plan(file, plan):
    return load(file, [f"{key}={value!r}" for key, value in plan.overrides.items()])


def test_a_plan_is_made_for_the_cores_of_this_machine(dqn, probed, capsys):
    plan = follow("auto", dqn)
    assert probed == [4] and 1 < plan.split.cores(plan.profile.work) <= 4
    said = capsys.readouterr().err
    assert "measuring this job" in said and f"plan: {plan.split.name}: " in said


def test_who_is_given_several_groups_is_told_what_they_cost(dqn, tmp_path, capsys):
    several = follow("auto", dqn, "global_cfg.group_num=2")
    words = " ".join(capsys.readouterr().err.split())
    assert several.split.groups == 2
    assert "2 groups" in words and "note: groups" in words
    assert "global_cfg.group_num=1" in words
    follow("auto", dqn, "global_cfg.group_num=1")
    assert "note: groups" not in capsys.readouterr().err
    (tmp_path / "hosts").write_text("a slots=9\nb slots=9\n")
    follow("auto", dqn, engine="mpi", hostfile=tmp_path / "hosts")  # a host has one at least
    words = " ".join(capsys.readouterr().err.split())
    assert "note: groups" in words and "group_num=1" not in words


def test_who_is_given_more_environments_than_configured_is_told_what_they_cost(
    dqn, monkeypatch, capsys
):
    """With 64 instead of 8 a result takes more steps, as `tianji plan` says too."""

    def probe(job, *_):
        work = dataclasses.replace(JOB.work, digest=digest_of(job.config), envs=2)
        return dataclasses.replace(JOB, work=work)

    monkeypatch.setattr(planner, "probe", probe)
    plan = follow("auto", dqn, "global_cfg.group_num=1", "actor_cfg.num=1")
    words = " ".join(capsys.readouterr().err.split())
    assert plan.split.envs == 8
    assert "(2 in a group)" in words
    assert "compare with --set actor_cfg.envs=2" in words


@pytest.mark.parametrize(
    ("places", "words"),
    [(9, ["--hosts", "2"]), (3, ["--hosts", "2", "--cores", "3"])],
)
def test_the_same_machines_are_named_for_a_plan_that_is_kept(dqn, tmp_path, places, words):
    hosts = tmp_path / "hosts"
    hosts.write_text(f"a slots={places}\nb slots={places + 3}\n")
    plan = follow("auto", dqn, engine="mpi", hostfile=hosts)
    assert train._machines(plan, hosts) == words
    assert train._machines(follow("auto", dqn), None) == []


def test_a_plan_for_a_hostfile_is_for_all_its_machines_and_the_smallest_of_them(
    dqn, probed, tmp_path
):
    hosts = tmp_path / "hosts"
    hosts.write_text("a slots=9\nb slots=3\nc slots=9\n")
    plan = follow("auto", dqn, engine="mpi", hostfile=hosts)
    assert probed == [3]
    assert plan.split.groups % 3 == 0 and 3 < plan.split.cores(plan.profile.work) <= 9


def test_a_plan_for_a_hostfile_leaves_places_for_launcher_and_reducer(dqn, tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("a slots=4\nb slots=4\n")
    plan = follow("auto", dqn, engine="mpi", hostfile=hosts)
    assert plan.split.groups >= 2
    assert plan.split.groups < n_ranks(with_plan(dqn, plan)) <= 8


@pytest.mark.parametrize("places", ["a slots=1\nb slots=1\n", "a slots=1\n"])
def test_too_few_places_for_any_plan_are_refused_before_measuring(dqn, probed, tmp_path, places):
    hosts = tmp_path / "hosts"
    hosts.write_text(places)
    with pytest.raises(TianJiError, match=r"\d places?, and even the smallest plan has"):
        follow("auto", dqn, engine="mpi", hostfile=hosts)
    assert not probed


def test_too_few_places_for_the_smallest_plan_are_told_as_such_after_measuring(
    dqn, monkeypatch, tmp_path
):
    """Each of these actors has a third of a batch: no other number of them makes a whole one."""
    thirds = profile(on_policy=True, envs=24, rollouts=1, batch=16 * 8, pool=16 * 8)

    def probe(job, *_):
        own = dataclasses.replace(thirds.work, digest=digest_of(job.config))
        return dataclasses.replace(thirds, work=own)

    monkeypatch.setattr(planner, "probe", probe)
    (tmp_path / "hosts").write_text("a slots=4\n")
    with pytest.raises(TianJiError, match="has 4 places, and even the smallest plan has 5 proc"):
        follow("auto", dqn, engine="mpi", hostfile=tmp_path / "hosts")


def test_a_learner_for_a_gpu_that_is_not_there_is_refused_before_measuring(
    dqn, probed, monkeypatch
):
    monkeypatch.setattr(resources, "gpu_of", lambda _: None)
    with pytest.raises(TianJiError, match=r"learner_cfg\.device='cuda': torch sees no GPU"):
        follow("auto", dqn, "learner_cfg.device='cuda'")
    with pytest.raises(TianJiError, match=r"learner_cfg\.device='cuda': torch sees no GPU"):
        planner.measure(dqn, ["learner_cfg.device='cuda'"], 4)
    with pytest.raises(TianJiError, match=r"actor_cfg\.device='cuda': torch sees no GPU"):
        planner.measure(dqn, ["actor_cfg.device='cuda'"], 4)
    assert not probed
    assert planner.measure(dqn, ["learner_cfg.device='cuda'"], 4, profile=costs_of(dqn))


def costs_of(file):
    """Costs of a learner on a GPU, from a machine that has one."""
    work = dataclasses.replace(
        JOB.work, digest=digest_of(load(file, ["learner_cfg.device='cuda'"]))
    )
    return dataclasses.replace(JOB, work=work)


def test_a_terminal_shows_what_is_measured_unless_it_is_to_be_quiet(dqn, monkeypatch):
    def probe(job, cores, say, seconds):
        say("a learner with 1 core")
        return dataclasses.replace(
            JOB, work=dataclasses.replace(JOB.work, digest=digest_of(job.config))
        )

    monkeypatch.setattr(planner, "probe", probe)
    for quiet in (False, True):
        error = Terminal()
        monkeypatch.setattr("sys.stderr", error)
        plan_for_run.for_run("auto", dqn, [], None, None, quiet=quiet)
        assert ("measuring: a learner with 1 core" in error.getvalue()) is not quiet


def test_a_host_without_places_has_as_many_as_this_machine_has_cores(dqn, probed, tmp_path):
    (tmp_path / "hosts").write_text("a\nb\n")
    plan = follow("auto", dqn, engine="mpi", hostfile=tmp_path / "hosts")
    assert probed == [4] and n_ranks(with_plan(dqn, plan)) <= 8


def test_ranks_that_are_there_already_cannot_be_planned_for(dqn, probed, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "6")
    with pytest.raises(TianJiError, match=r"mpirun has started the ranks.*tianji plan CONFIG --ho"):
        follow("auto", dqn)
    assert not probed


def test_the_nodes_of_slurm_are_planned_for_beforehand(dqn, probed, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "4")
    with pytest.raises(TianJiError, match=r"has 4 nodes.*tianji plan CONFIG --hosts N"):
        follow("auto", dqn, engine="mpi")
    assert not probed
    assert follow("auto", dqn, engine="process").split.groups >= 1


def test_a_run_that_goes_on_keeps_the_plan_it_began_with(dqn, probed, tmp_path):
    began = follow("auto", dqn)
    plan_file.write(began, tmp_path / plan_file.NAME)
    assert follow("auto", dqn, folder=tmp_path) == began
    assert len(probed) == 1


def test_a_run_that_is_too_short_for_its_plan_is_told_so(dqn, probed, tmp_path, capsys):
    """When a run ends is no part of the job, and yet it limits the groups."""
    file, config = tmp_path / "groups.plan.json", load(dqn, [])
    job = dataclasses.replace(JOB, work=dataclasses.replace(JOB.work, digest=digest_of(config)))
    plan_file.write(planner.make(config, job, PlanRequest(4, groups=2)).plan, file)
    follow(file, dqn)
    assert "updates" not in capsys.readouterr().err
    follow(file, dqn, "exp.train_steps=500")
    words = " ".join(capsys.readouterr().err.split())
    assert "2 groups, of which each makes fewer than 100 updates" in words
    assert "exp.train_steps=500" in words and "--groups 1" in words


def test_groups_that_are_too_many_on_several_hosts_are_as_many_on_each(dqn, tmp_path, capsys):
    (tmp_path / "hosts").write_text("a slots=9\nb slots=9\n")
    config = load(dqn, [])
    job = dataclasses.replace(JOB, work=dataclasses.replace(JOB.work, digest=digest_of(config)))
    plan_file.write(
        planner.make(config, job, PlanRequest(4, 2, groups=4)).plan, tmp_path / "plan.json"
    )
    per_group = planner.GROUP_UPDATES * JOB.work.batch / JOB.work.ratio
    for enough in (1, 3):
        steps = f"exp.train_steps={round(enough * per_group)}"
        follow(tmp_path / "plan.json", dqn, steps, engine="mpi", hostfile=tmp_path / "hosts")
        assert "--groups 2" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("runs", "--plan runs: there is no such file: want auto"),
        ("runs/first", "the folder of a run: name its plan, runs/first/plan.json$"),
        ("atuo", r"--plan atuo: there is no such file: want auto"),
        (
            "nothing/like/it",
            r"--plan nothing/like/it: there is no such file: want auto.*ji plan",
        ),
        ("my.note.json", "my.note.json: this file is no plan"),
        ("", "^--plan : there is no such file: want auto"),
        ("pipe", "^--plan pipe: this is a pipe or a device, not a file: want auto"),
        ("/dev/zero", "^--plan /dev/zero: this is a pipe or a device, not a file: want auto"),
    ],
)
def test_what_is_no_plan_is_said_with_what_was_meant_or_wanted(
    dqn, probed, tmp_path, monkeypatch, named, said
):
    (tmp_path / "runs" / "first").mkdir(parents=True)
    plan_file.write(follow("auto", dqn), tmp_path / "runs" / "first" / "plan.json")
    plan_file.write(follow("auto", dqn), tmp_path / "my.plan.json")
    (tmp_path / "my.note.json").write_text("{}")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    probed.clear()
    with pytest.raises(TianJiError, match=said):
        follow(named, dqn)
    assert not probed


def test_options_that_say_otherwise_than_a_file_are_refused(dqn, tmp_path):
    plan_file.write(follow("auto", dqn), tmp_path / "plan.json")
    with pytest.raises(
        TianJiError,
        match=r"plan.json says actor_cfg.num=\d, and other options say actor_cfg.num=77: ",
    ):
        follow(tmp_path / "plan.json", dqn, "actor_cfg.num=77")
    with pytest.raises(
        TianJiError,
        match=r"says learner_cfg.cores=1, actor_cfg.envs=8, and other options say "
        "learner_cfg.cores=None, actor_cfg.envs=3: ",
    ):
        follow(tmp_path / "plan.json", dqn, "actor_cfg.envs=3", "learner_cfg.cores=None")
    with pytest.raises(TianJiError, match=r"other options say actor_cfg.cores=2: "):
        follow(tmp_path / "plan.json", dqn, "actor_cfg.cores=2")


def test_a_plan_for_one_machine_names_its_cores_where_there_are_fewer(dqn, tmp_path, monkeypatch):
    plan_file.write(follow("auto", dqn), tmp_path / "plan.json")
    monkeypatch.setattr(resources, "quota", lambda: 3.0)
    monkeypatch.setattr(plan_for_run, "_spread", lambda _: plan_for_run._Spread(4))
    with pytest.raises(TianJiError, match="for 4 cores and this machine offers 3: train with it"):
        follow(tmp_path / "plan.json", dqn)


@pytest.mark.parametrize(
    "word",
    [
        *("global_cfg.group_num=2", "actor_cfg.num=2", "actor_cfg.envs=3", "learner_cfg.cores=2"),
        *("actor_cfg.cores=1", "buffer_cfg.cores=1", "buffer_cfg.cores=None"),
    ],
)
def test_what_a_run_was_told_stays_in_a_plan_that_is_made_for_it(dqn, word):
    key, _, value = word.partition("=")
    assert str(follow("auto", dqn, word).overrides[key]) == value


def test_what_a_configuration_says_is_not_what_the_run_was_told(dqn, tmp_path):
    """A plan may have other numbers than the file, which is what it is made for."""
    mine = tmp_path / "job.py"
    assert "envs=8" in dqn.read_text()
    mine.write_text(dqn.read_text().replace("envs=8", "envs=7"))
    assert follow("auto", mine).split.envs == 8  # what was measured
    assert follow("auto", mine, "actor_cfg.envs=7").split.envs == 7


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("actor_cfg.num=77", "no split of 4 cores on 1 host has actor_cfg.num=77: leave"),
        ("global_cfg.group_num=3", "no split of 4 cores on 1 host has global_cfg.group_num=3: le"),
        ("learner_cfg.num=4", "4 learners in a group"),
        ("learner_cfg.cores=None", "learner_cfg.cores=None: a plan gives each learner cores of"),
        ("actor_cfg.cores=2", "actor_cfg.cores=2: a plan gives each actor one core: leave actor"),
        ("buffer_cfg.cores=2", "buffer_cfg.cores=2: a plan gives the buffer one core or none"),
    ],
)
def test_what_no_plan_could_have_is_refused_before_measuring(dqn, probed, word, said):
    with pytest.raises(TianJiError, match=f"--plan auto.*{said}"):
        follow("auto", dqn, word)
    assert not probed


@pytest.mark.parametrize(
    ("engine", "given"),
    [("local", ()), (None, ("global_cfg.use_comm_parallel=False",))],
)
def test_one_process_is_not_planned(dqn, probed, engine, given):
    with pytest.raises(TianJiError, match="has only one"):
        follow("auto", dqn, *given, engine=engine)
    assert not probed


def test_a_plan_for_several_hosts_is_no_news_where_they_are(dqn, tmp_path, capsys):
    config = load(dqn, [])
    costs = dataclasses.replace(JOB, work=dataclasses.replace(JOB.work, digest=digest_of(config)))
    (tmp_path / "hosts").write_text("a slots=9\nb slots=9\n")
    plan = planner.make(config, costs, PlanRequest(4, 2)).plan
    plan_file.write(plan, tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text())["split"]["groups"] >= 2
    follow(tmp_path / "plan.json", dqn, engine="mpi", hostfile=tmp_path / "hosts")
    assert "wants" not in capsys.readouterr().err
    said = r"for 2 hosts with 4 cores each .*--engine mpi --hostfile FILE"
    with pytest.raises(TianJiError, match=said):
        follow(tmp_path / "plan.json", dqn)
    assert not capsys.readouterr().err  # nothing else is said of it


def test_a_plan_does_not_change_the_batch_of_environments_that_have_become_others(
    ppo, dqn, tmp_path
):
    """A plan says who has them; it trained with 64 where the file had been edited to 256."""
    config, file, edited = load(ppo, []), tmp_path / "plan.json", tmp_path / "job.py"
    costs = rollouts_of(config)
    plan_file.write(planner.make(config, costs, PlanRequest(4, actors=2)).plan, file)
    edited.write_text(ppo.read_text().replace("num=1, envs=64", "num=4, envs=16"))
    for job in (ppo, edited):  # as many in all
        assert follow(file, job).split.envs == 32
    edited.write_text(ppo.read_text().replace("envs=64", "envs=256"))
    said = r"another configuration \(.*actor_cfg.num times actor_cfg.envs, .*was 64 and is 256 now"
    with pytest.raises(TianJiError, match=f"plan.json: this plan was made for {said}"):
        follow(file, edited)
    with pytest.raises(TianJiError, match=r"another configuration \(made, or other values of its"):
        follow(file, dqn)  # which has other environments as well, and that is not the point
    with pytest.raises(TianJiError, match=f"--profile: these costs are of {said}"):
        planner.measure(ppo, ["actor_cfg.envs=256"], 4, profile=costs)
    assert planner.measure(ppo, ["actor_cfg.envs=16", "actor_cfg.num=4"], 4, profile=costs)


def test_a_batch_of_counted_trajectories_is_of_those_of_an_actor(ppo, tmp_path):
    counted = "hyp.batch_size=2"
    config = load(ppo, ["actor_cfg.num=2", "actor_cfg.envs=32", counted])
    costs = rollouts_of(config, rollouts=2, batch=2 * 32 * 32, pool=2 * 32 * 32)
    plan_file.write(planner.make(config, costs, PlanRequest(4)).plan, tmp_path / "plan.json")
    assert follow(tmp_path / "plan.json", ppo, "actor_cfg.num=2", "actor_cfg.envs=32", counted)
    with pytest.raises(TianJiError, match=r"actor_cfg.envs, .*was 32 and is 64 now"):
        follow(tmp_path / "plan.json", ppo, counted)


def test_a_plan_that_multiplies_environments_is_followed_by_the_configuration_it_was_made_for(
    ppo, tmp_path
):
    scaled = load(ppo, ["actor_cfg.envs=128"])
    settings = {"actor_cfg.envs": 128, "hyp.gamma": 0.9}
    made = planner.make(scaled, rollouts_of(scaled), PlanRequest(4), settings, batch_scale=2).plan
    plan_file.write(made, tmp_path / "plan.json")
    assert follow(tmp_path / "plan.json", ppo) == made
    assert made.settings == {"hyp.gamma": 0.9} and made.split.actors * made.split.envs == 128
    (tmp_path / "job.py").write_text(ppo.read_text().replace("envs=64", "envs=128"))
    with pytest.raises(TianJiError, match=r"was 64 and is 128 now"):
        follow(tmp_path / "plan.json", tmp_path / "job.py")
