"""The options of `plan --simulate`, what they print and what they refuse."""

import dataclasses
import json
from pathlib import Path

import pytest
from profiles import profile

from tianji.cli import plan as plan_verb
from tianji.cli.main import parser
from tianji.config import load
from tianji.core.errors import TianJiError
from tianji.strategy.plan import plan_file
from tianji.strategy.plan.plan_file import Plan
from tianji.strategy.plan.profile import LearnerCost
from tianji.strategy.plan.same_job import digest_of
from tianji.strategy.plan.solver import PlanRequest, solve
from tianji.strategy.simulate.core_layout import Layout
from tianji.strategy.simulate.simulate_options import _learner_cores, check, run
from tianji.strategy.simulate.simulator import simulate

DQN = Path(__file__).resolve().parents[2] / "configs" / "cartpole_dqn.py"
JOB = profile(step=2e-3, receive=60e-6, draw=1e-4, trajectory_bytes=50_000)


def parsed(*words):
    """The words as the command line reads and checks them."""
    options = parser(["plan"]).parse_args(["plan", *map(str, words)])
    check(options)
    return options


def said(*words):
    return parsed("my_job.py", "--simulate", *words)


def columns(out):
    """The lines of the first table, by its header's words."""
    lines = out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.split()[:2] == ["cores", "groups"])
    rows = []
    for line in lines[first + 1 :]:
        if not line:
            return rows
        rows.append(line.split())
    return rows


def test_without_a_layout_the_balanced_group_is_replicated(capsys):
    assert run(JOB, said()) == 0
    out = capsys.readouterr().out
    rows = columns(out)
    cores = [int(row[0].replace(",", "")) for row in rows]
    assert len(rows) == 10 and 9_000 < cores[-1] <= 10_000 and cores == sorted(cores)
    assert "N_A* = " in out and "links of 10 Gbit/s are assumed" in out
    assert "(2 GB/s, a guess)" in out


def test_the_cores_that_were_named_are_simulated(capsys):
    run(JOB, said("--cores-list", "64, 16,64"))
    assert len(columns(capsys.readouterr().out)) == 2


def test_cores_that_stay_idle_are_explained(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    run(JOB, said("--cores-list", "32,65,97"))
    out = capsys.readouterr().out
    assert [row[0] for row in columns(out)] == ["32", "64", "96"]
    assert "64 of 65, 96 of 97" in out
    for words in (["--cores-list", "32,64"], ["--groups", 3]):
        run(JOB, said(*words))
        assert "cores used" not in capsys.readouterr().out


def test_a_layout_that_was_named_is_the_only_one(capsys):
    run(JOB, said("--groups", "3", "--actors", "5", "--hosts", "3", "--link-gbit", "1"))
    (row,) = columns(capsys.readouterr().out)
    assert row[0] == "18" and row[1] == "3"


def test_environments_and_a_buffer_by_itself_are_shown(capsys):
    run(JOB, said("--actors", 3, "--envs", 4, "--buffer-alone"))
    out = capsys.readouterr().out
    (row,) = columns(out)
    assert row[2:8] == ["1", "x", "1", "+", "B", "3"] and row[8] == "4"


def test_actors_that_were_not_named_are_those_of_the_balance(capsys):
    run(JOB, said("--groups", "2"))
    (row,) = columns(capsys.readouterr().out)
    assert int(row[5]) > 10  # after the three words of `1 x 1`


def test_several_numbers_of_actors_are_a_curve(capsys):
    """Figure 6a: production rises with the actors, consumption up to what the learner can do."""
    run(JOB, said("--actors-list", "1,8,64,256"))
    rows = columns(capsys.readouterr().out)
    consumed = [float(row[9].replace(",", "")) for row in rows]
    assert consumed[0] < consumed[1] < consumed[2] == pytest.approx(consumed[3], rel=0.02)
    assert [row[-1] for row in rows] == ["sample-bound"] * 2 + ["training-bound"] * 2


def test_the_title_is_said_once(costs, capsys):
    assert simulated(costs, "--actors", "2") == 0
    out = capsys.readouterr().out
    first, second, *_ = out.splitlines()
    assert first.endswith("as measured on 4 cores (a processor); simulated from these costs")
    assert not second and out.count("a processor") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--groups", 5000, "--actors", 1000], "5,005,000 cores of each host"),
        (["--groups", 300, "--actors", 9], "--hosts 1: that is 3,000 cores"),
        (["--actors-list", "16,2000"], "that is 2,001 cores"),
        (["--groups", 4, "--hosts", 2, "--actors", 600], "1,202 cores of each"),
    ],
)
def test_more_cores_than_a_machine_has_want_more_hosts(words, message):
    with pytest.raises(TianJiError, match=message):
        run(JOB, said(*words))


def test_as_many_hosts_as_were_said_to_be_enough_are(capsys):
    assert run(JOB, said("--groups", 300, "--actors", 9, "--hosts", 3)) == 0
    assert run(JOB, said("--actors", 2000, "--hosts", 2)) == 0


def test_the_results_are_written_as_json(capsys, tmp_path):
    run(JOB, said("--actors", "2", "--simulated", str(tmp_path / "s.json")))
    (row,) = json.loads((tmp_path / "s.json").read_text())
    assert row["layout"]["actors"] == 2 and row["production"] > 0


def test_learner_cores_that_were_not_named_are_those_that_make_most_of_a_core():
    wide = LearnerCost(4, 128, JOB.learners[0].update_seconds / 8, 1e-4, 1)
    job = dataclasses.replace(JOB, learners=(*JOB.learners, wide))
    assert _learner_cores(job, Layout()) == 4
    assert _learner_cores(JOB, Layout()) == 1


@pytest.mark.parametrize(
    "words, message",
    [
        (["--cores-list", "16,many"], "argument --cores-list: want a whole number"),
        (["--cores-list", "nonsense"], "argument --cores-list: want a whole number"),
        (["--actors-list", "0"], "argument --actors-list: want a whole number"),
        (["--actors", "0"], "argument --actors: want a whole number of at least 1"),
        (["--groups", "0"], "argument --groups: want a whole number of at least 1"),
        (["--host-cores", "0"], "argument --host-cores: want a whole number of at least 1"),
        (["--learners", "0"], "argument --learners: want a whole number of at least 1"),
        (["--link-gbit", "-3"], "argument --link-gbit: want a speed above 0, got -3"),
        (["--link-gbit", "fast"], "argument --link-gbit: invalid speed"),
        (["--link-gbit", "inf"], "argument --link-gbit: want a speed above 0"),
    ],
)
def test_words_that_mean_nothing_are_refused_by_the_command_line(words, message, capsys):
    with pytest.raises(SystemExit):
        said(*words)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (
            ["--cores-list", "1"],
            "1 core on hosts of 64: one group needs 2, for 1 learner and 1 actor",
        ),
        (["--actors", "1", "--simulated", "/nowhere/s.json"], "there is no folder /nowhere"),
        (["--gpu"], "without a GPU"),
        (["--cores-list", "16", "--actors", "4"], "--cores-list with --actors=4"),
        (["--actors", "4", "--actors-list", "1,2"], "--actors-list with --actors=4"),
        (["--host-cores", "8", "--hosts", "2"], "--host-cores with --hosts=2"),
        (["--link-gbit", "1", "--actors", "2"], "--link-gbit 1: all of it is on one host"),
        (["--link-gbit", "1", "--cores-list", "16,64"], "--link-gbit 1: all of it is on one host"),
        (["--actors", "2", "--learners", "7"], "--learners 7: a batch of 128 samples cannot be sh"),
        (["--learners", "7", "--cores-list", "16"], "--learners 7: a batch of 128 samples cannot"),
        (["--actors", "1", "--groups", "2", "--hosts", "6"], "--hosts 6: there are only 4 proces"),
        (["--actors", "4", "--groups", "2", "--hosts", "5"], "5: hosts and 2 groups cannot be"),
        (["--actors", "1", "--groups", "4", "--hosts", "3"], "3: hosts and 4 groups cannot be"),
    ],
)
def test_what_cannot_be_done_is_said(words, message):
    with pytest.raises(TianJiError, match=message):
        run(JOB, said(*words))


def test_learners_share_rollouts_where_a_batch_is_made_of_them(capsys):
    once = profile(batch=2_048, pool=2_048, envs=64, steps=32, on_policy=True, alternates=True)
    with pytest.raises(TianJiError, match="--learners 2: a batch of 1 rollouts"):
        run(once, said("--learners", 2, "--actors", 1))
    assert run(once, said("--learners", 3, "--actors", 3, "--envs", 8)) == 0


def test_actors_that_cannot_share_the_environments_are_refused_as_by_a_plan(capsys):
    once = profile(batch=2_048, pool=2_048, envs=64, steps=32, on_policy=True, alternates=True)
    with pytest.raises(TianJiError, match=r"--actors 3: .* 64 environments.*name 1, 2, 4"):
        run(once, said("--actors", 3))
    with pytest.raises(TianJiError, match="--actors 5: "):
        run(once, said("--actors-list", "4,5"))
    assert run(once, said("--actors", 4)) == run(once, said("--actors", 3, "--envs", 8)) == 0


def test_no_link_is_assumed_where_none_can_be_crossed(capsys):
    run(JOB, said("--cores-list", "16,64"))
    assert "links of" not in capsys.readouterr().out
    run(JOB, said("--cores-list", "16,65"))
    assert "links of 10 Gbit/s are assumed" in capsys.readouterr().out


def test_what_a_plan_asks_and_the_sweep_does_not_is_said(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    run(JOB, said("--cores-list", "16,256"))
    assert "a plan has no more than make enough updates each within exp.train_steps" in (
        capsys.readouterr().out
    )
    run(JOB, said("--groups", 3))  # which was named
    assert "exp.train_steps" not in capsys.readouterr().out


def test_what_makes_fusions_rarer_than_configured_is_said(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    large = profile(update=5e-3, weights_bytes=40_000_000, fusion_interval=10)
    many = ("--groups", 64, "--actors", 1)
    run(large, said(*many))
    assert "the reducer is the limit" in capsys.readouterr().out
    run(large, said(*many, "--hosts", 64, "--link-gbit", 1))
    out = capsys.readouterr().out
    row = simulate(large, Layout(64, actors=1, hosts=64, link_bytes_per_second=1.25e8))
    assert "the link to the reducer's host is the limit" in out
    assert f"{row.fusions:.3g} of {row.fusions_wanted:.3g} fusions/s" in out
    assert row.fusions_wanted == pytest.approx(row.updates / 64 / 10)
    assert row.fusions == pytest.approx(1.25e8 / (63 * 40_000_000))
    run(profile(update=5e-3), said(*many))
    assert "is the limit" not in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["--groups", 2], ["--envs", 8], ["--envs", 5]])
def test_learners_that_suit_no_actors_are_refused(words):
    """Whatever the number of cores: it is the environments that cannot be shared out so."""
    once = profile(batch=2_048, pool=2_048, envs=64, steps=32, on_policy=True, alternates=True)
    with pytest.raises(TianJiError, match="--learners 3: "):
        run(once, parsed("my_job.py", "--simulate", "--learners", 3, *words))
    assert run(once, parsed("my_job.py", "--simulate", "--learners", 4, "--cores-list", "16")) == 0


@pytest.mark.parametrize(
    "words",
    [
        ["--learners", "2"],
        ["--actors-list", "1,2"],
        ["--cores-list", "16"],
        ["--host-cores", "8"],
        ["--link-gbit", "10"],
        ["--simulated", "s.json"],
    ],
)
def test_options_of_simulate_are_refused_without_it(words):
    with pytest.raises(TianJiError, match=f"^{words[0]}: an option of --simulate: add that"):
        parsed("my_job.py", *words)


def test_options_of_a_plan_need_no_simulation():
    options = parsed("my_job.py", "--groups", "2", "--actors", "3", "--envs", "4", "--hosts", "2")
    assert (options.groups, options.actors, options.envs, options.hosts) == (2, 3, 4, 2)


# The whole verb, with costs that a file has: nothing is measured.


@pytest.fixture
def costs(tmp_path):
    """The file of a plan for the DQN of the examples, with the costs of JOB."""
    work = dataclasses.replace(JOB.work, digest=digest_of(load(DQN, [])))
    job = dataclasses.replace(JOB, work=work)
    path = tmp_path / "costs.json"
    chosen = solve(job, PlanRequest(4))[0]
    plan_file.write(Plan(job, chosen.split), path)
    return path


def simulated(costs, *words):
    return plan_verb.run(parsed(DQN, "--profile", costs, "--simulate", *words))


def test_a_layout_that_does_not_fit_here_is_simulated(costs, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert simulated(costs, "--groups", "4", "--actors", "12", "--hosts", "4") == 0
    (row,) = columns(capsys.readouterr().out)
    assert row[:2] == ["52", "4"]
    assert [path.name for path in tmp_path.iterdir()] == ["costs.json"]  # no plan was asked for


def test_a_plan_is_written_beside_a_simulation_where_it_was_asked_for(costs, capsys, tmp_path):
    out = tmp_path / "own.json"
    assert simulated(costs, "--actors", "12", "--out", out, "--cores", "2") == 0
    assert f"{out}: the costs, and a plan for 2 cores" in capsys.readouterr().out
    written = plan_file.read(out)
    assert written.profile == plan_file.read(costs).profile
    assert written.split.cores(JOB.work) <= 2


def test_only_what_was_simulated_before_is_replaced(costs, tmp_path, capsys):
    out = tmp_path / "s.json"
    for _ in range(2):
        assert simulated(costs, "--actors", "2", "--simulated", out) == 0
    before = costs.read_bytes()
    with pytest.raises(TianJiError, match="was not written by `tianji plan --simulated`"):
        simulated(costs, "--actors", "2", "--simulated", costs)
    assert costs.read_bytes() == before


def test_in_a_terminal_no_line_is_longer_than_it(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    run(JOB, said())
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    head = next(line for line in out.splitlines() if line.lstrip().startswith("cores"))
    assert head.split()[-1] == "limit" and "stale p95" not in head
    for predicted in (
        "produced/s",
        "consumed/s",
        "A idle",
        "L idle",
    ):  # rather than what follows from others
        assert predicted in head
    assert "left out: received/s, stale p95," in out
    monkeypatch.delenv("COLUMNS")
    run(JOB, said())
    wide = capsys.readouterr().out
    assert max(map(len, wide.splitlines())) > 120 and "left out" not in wide


def test_a_role_that_acts_for_actors_is_not_simulated():
    acted_for = dataclasses.replace(JOB, work=dataclasses.replace(JOB.work, inference=True))
    with pytest.raises(TianJiError, match=r"actor_cfg\.inference.* is not simulated"):
        run(acted_for, parsed(DQN, "--simulate"))
