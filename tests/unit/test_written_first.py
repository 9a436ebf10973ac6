"""Results are on disk before they are printed: whoever reads standard output may go away."""

import io
import json
import sys

import pytest
from profiles import profile

from tianji.cli import bench, plan
from tianji.cli import eval as eval_verb
from tianji.cli.main import parser
from tianji.config import load
from tianji.strategy.plan import plan_file
from tianji.strategy.probe import planner
from tianji.strategy.simulate import simulate_options
from tianji.tools import bench as bench_tool
from tianji.tools import scores


class Gone(io.StringIO):
    """A standard output that nobody reads any more."""

    def write(self, text):
        raise BrokenPipeError


@pytest.fixture
def nobody(monkeypatch):
    """Nobody reads what is printed from now on."""
    return lambda: monkeypatch.setattr(sys, "stdout", Gone())


def parsed(*words):
    given = list(map(str, words))
    return parser(given).parse_args(given)


def test_the_files_of_a_simulation(tmp_path, nobody):
    simulated = tmp_path / "x.json"
    words = ("--simulate", "--cores-list", "16", "--simulated", simulated)
    options = parsed("plan", "my_job.py", *words)
    nobody()
    with pytest.raises(BrokenPipeError):
        simulate_options.run(profile(), options)
    assert len(json.loads(simulated.read_text())) == 1


def test_what_games_came_to(monkeypatch, nobody):
    added = []
    monkeypatch.setattr(scores, "append", added.append)
    options = parsed("eval", "run")
    nobody()
    with pytest.raises(BrokenPipeError):
        eval_verb._print("so good", ["a score"], options)
    assert added == ["a score"]


def test_what_a_benchmark_has_measured(tmp_path, monkeypatch, nobody, root):
    nothing = dict.fromkeys(bench_tool.COLUMNS) | {"seed": 1}
    monkeypatch.setattr(bench_tool, "train_all", lambda *given: given[-1]([nothing]))
    options = parsed(
        "bench", root / "configs" / "cartpole_dqn.py", "--seeds", "1", "--out", tmp_path / "out"
    )
    nobody()
    with pytest.raises(BrokenPipeError):
        bench.run(options)
    assert json.loads((tmp_path / "out" / "bench.json").read_text())["runs"] == [nothing]


@pytest.mark.parametrize("more", [(), ("--simulate", "--cores-list", "16")])
def test_a_plan(root, tmp_path, monkeypatch, nobody, more):
    costs, out = profile(), tmp_path / "x.json"
    file = root / "configs" / "cartpole_dqn.py"
    config = load(file, [])
    monkeypatch.setattr(planner, "measure", lambda *_, **more: (config, costs))
    options = parsed(
        "plan", root / "configs" / "cartpole_dqn.py", "--cores", 4, "--out", out, *more
    )
    nobody()
    with pytest.raises(BrokenPipeError):
        plan.run(options)
    assert plan_file.read(out).profile == costs
