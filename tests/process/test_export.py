"""An exported policy acts as the trained one, runs without this package, and is never half."""

import os
import re
import runpy
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from commands import ROOT, TASKS, train

import tianji
from tianji.algorithms.ppo import PPO
from tianji.algorithms.qmix import QMIX
from tianji.core.algorithm import Algorithm, PolicyGraph
from tianji.core.errors import TianJiError
from tianji.models.actor_critic import policy_network as policy_layout
from tianji.models.export import perceptron, traced
from tianji.runs.weights_file import save_final
from tianji.tools import export

pytestmark = pytest.mark.process

PPO_EXPORTED = PPO.exported
PENDULUM = """
environment = dict(type="GymEnv", gym_name="Pendulum-v1")
exp = dict(train_steps=1000, stop_return=1e9)
parallel_parameters = dict(actor_cfg=dict(num=1, envs=4))
agent = dict(type="PPO", embryo=dict(model=dict(type="MLP", hidden=[16], act="tanh")))
"""


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    """A solved run."""
    folder = tmp_path_factory.mktemp("cartpole") / "run"
    assert train(ROOT / "configs" / "cartpole_ppo.py", folder).status == 0
    return folder


@pytest.fixture(scope="module")
def dqn(tmp_path_factory):
    """A short run with a dueling network."""
    folder = tmp_path_factory.mktemp("dqn") / "run"
    options = ("model.dueling=True", "exp.train_steps=1000", "exp.stop_return=1e9")
    tianji.train(TASKS / "echo_dqn.py", *options, engine="local", run_dir=folder)
    return folder


@pytest.fixture
def pendulum(tmp_path):
    """A short run with continuous actions."""
    (tmp_path / "pendulum.py").write_text(PENDULUM)
    folder = tmp_path / "run"
    tianji.train(tmp_path / "pendulum.py", engine="local", run_dir=folder)
    return folder


def run_export(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tianji", "export", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def outputs(path, obs):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"obs": np.asarray(obs, np.float32)})


def test_the_command_writes_the_policy_and_says_how_well_it_agrees(cartpole, tmp_path):
    file = tmp_path / "policy.onnx"
    done = run_export(cartpole, "--onnx", "--out", file)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert "obs float32 [batch, 4]" in done.stdout
    assert "512 observations: every action equal" in done.stdout
    about = {each.key: each.value for each in onnx.load(file).metadata_props}
    assert about["tianji"] == tianji.__version__
    assert (about["algorithm"], about["environment"]) == ("PPO", "CartPole-v1")
    assert int(about["updates"]) == tianji.load(cartpole).version
    assert "every action equal" in about["parity"]


def test_the_policy_is_written_into_its_run_unless_told_otherwise(dqn):
    first = export.onnx(dqn)
    assert first.path == dqn / "policy.onnx"
    before = first.path.read_bytes()
    done = run_export(dqn, "--onnx")
    assert done.returncode == 2
    assert "exists already" in done.stderr and "--out" in done.stderr
    assert first.path.read_bytes() == before


def test_a_file_of_weights_is_exported_under_a_name_of_its_own(dqn):
    done = export.onnx(dqn / "checkpoints" / "final.safetensors")
    assert done.path.resolve() == dqn / "policy-final.onnx"
    assert int(done.about["updates"]) == tianji.load(dqn).version


def test_the_policy_of_a_checkpoint_is_written_beside_the_others(tmp_path):
    run = tmp_path / "run"
    best = export.default_path(run / "checkpoints" / "best.safetensors")
    assert best.resolve() == run / "policy-best.onnx"  # shown as it reads best from here
    numbered = export.default_path(run / "checkpoints" / "0003-step-4000")
    assert numbered.resolve() == run / "policy-0003-step-4000.onnx"


def test_the_exported_policy_plays_where_this_package_cannot_be_imported(cartpole, tmp_path):
    file = export.onnx(cartpole, tmp_path / "policy.onnx").path
    code = (
        "import runpy, sys; sys.modules.update(tianji=None, torch=None); "
        "runpy.run_path(sys.argv.pop(1))"
    )
    example = ROOT / "examples" / "run_exported.py"
    command = [sys.executable, "-W", "error", "-I", "-c", code, str(example), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.removeprefix("return ")) > 300


def test_a_dueling_network_gives_the_same_q_values(dqn, tmp_path):
    done = export.onnx(dqn, tmp_path / "policy.onnx")
    assert done.outputs == ("action int64 [batch]", "q float32 [batch, 4]")
    assert done.parity.difference < 1e-5
    policy, obs = tianji.load(dqn), np.eye(4)
    action, q = outputs(done.path, obs)
    assert action.tolist() == policy.act(obs).tolist() == q.argmax(1).tolist()


def test_continuous_actions_stay_within_their_bounds(pendulum, tmp_path):
    policy = tianji.load(pendulum)
    save_final(pendulum, policy.weights * 100, policy.version, "PPO")
    done = export.onnx(pendulum, tmp_path / "policy.onnx")
    obs = np.random.default_rng(0).normal(size=(50, 3))
    action, mean = outputs(done.path, obs)
    assert np.abs(mean).max() > 2 == np.abs(action).max()
    np.testing.assert_allclose(action, tianji.load(pendulum).act(obs), atol=1e-3)
    assert action.shape == (50, 1) and action.dtype == np.float32


@pytest.mark.parametrize("algorithm", ["sac", "td3"])
def test_the_squashed_action_is_exported_without_noise(algorithm, tmp_path):
    options = ("exp.train_steps=400", "exp.stop_return=1e9")
    run = tmp_path / "run"
    tianji.train(TASKS / f"aim_{algorithm}.py", *options, engine="local", run_dir=run)
    done = export.onnx(run, tmp_path / "policy.onnx")
    assert done.outputs == ("action float32 [batch, 1]", "mean float32 [batch, 1]")
    obs = np.random.default_rng(0).normal(size=(50, 2))
    action, _ = outputs(done.path, obs)
    np.testing.assert_allclose(action, tianji.load(run).act(obs), atol=1e-4)
    assert action.std() > 0.1


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_policy_that_stacks_frames_is_given_the_stack(algorithm, tmp_path):
    options = ("exp.train_steps=600", "exp.stop_return=None", "model.precision=bfloat16")
    tianji.train(TASKS / f"catch_{algorithm}.py", *options, engine="local", run_dir=tmp_path / "r")
    exported = tianji.export(tmp_path / "r", tmp_path / "policy.onnx")
    assert exported.parity.equal == 1
    policy = tianji.load(tmp_path / "r").in_float32()
    env, session = policy.environment(), onnxruntime.InferenceSession(exported.path)
    obs, first = env.reset(0)["obs"], np.ones(env.spec.n_envs, bool)
    stack = obs[:, None].repeat(env.spec.stack, 1)
    for _ in range(30):
        action = policy.act({"obs": obs}, first)
        [said] = session.run(["action"], {"obs": stack.astype(np.float32)})
        assert (said == action).all()
        step = env.step(action)
        obs, first = step.obs["obs"], step.first
        stack = np.concatenate([stack[:, 1:], obs[:, None]], 1)
        stack[first] = obs[first, None]
    env.close()


def test_agents_that_remember_are_given_their_memory_back(monkeypatch, tmp_path):
    run = tmp_path / "run"
    options = ("exp.train_steps=600", "exp.stop_return=1e9")
    tianji.train(TASKS / "two_step_qmix.py", *options, engine="local", run_dir=run)
    done = export.onnx(run, tmp_path / "policy.onnx")
    assert done.inputs == (
        "obs float32 [batch, 2, 3]",
        "mask bool [batch, 2, 2]",
        "memory float32 [batch, 2, 8]",
        "first bool [batch]",
    )
    assert [each.split()[0] for each in done.outputs] == ["action", "q", "next_memory"]
    assert done.parity.observations >= 2 * 512 and done.parity.difference < 1e-5
    as_learned = QMIX.exported
    monkeypatch.setattr(QMIX, "exported", lambda task, weights: as_learned(task, -weights))
    with pytest.raises(TianJiError, match="would not act as the policy does"):
        export.onnx(run, tmp_path / "contrary.onnx")
    assert not (tmp_path / "contrary.onnx").exists()


def test_any_number_of_observations_can_be_asked_about(dqn, tmp_path):
    file = export.onnx(dqn, tmp_path / "policy.onnx").path
    assert [len(outputs(file, np.zeros((n, 4)))[0]) for n in (0, 1, 33)] == [0, 1, 33]


class Network(PPO):
    """PPO that is exported as if nobody knew what its network looks like."""

    @classmethod
    def exported(cls, task, weights):
        import torch

        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                sizes = [layer.shape for layer in layers]
                self.inner = torch.nn.Linear(sizes[0][1], sizes[0][0])
                self.last = torch.nn.Linear(sizes[2][1], sizes[2][0])
                parameters = (*self.inner.parameters(), *self.last.parameters())
                for parameter, layer in zip(parameters, layers, strict=True):
                    parameter.data = torch.from_numpy(layer.copy())

            def forward(self, obs):
                logits = self.last(torch.relu(self.inner(obs)))
                return logits.argmax(1), logits

        shapes = policy_layout(task).shapes
        ends = np.cumsum([np.prod(shape) for shape in shapes])
        parts = np.split(weights, ends[:-1])
        layers = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        return traced(Module(), task.env, "logits")


class Contrary(PPO):
    """PPO that exports the opposite of what it learned."""

    @classmethod
    def exported(cls, task, weights):
        return perceptron(policy_layout(task), -weights, task.env, "logits")


class Indifferent(PPO):
    """PPO that exports a policy to which all actions are equally good, with a proof to match."""

    @classmethod
    def exported(cls, task, weights):
        return perceptron(policy_layout(task), weights * 0, task.env, "logits")


class Mislabelled(PPO):
    """PPO whose graph acts as it does, by scores that have nothing to do with it."""

    @classmethod
    def exported(cls, task, weights):
        graph = onnx.load_from_string(PPO_EXPORTED(task, weights).model)
        layer = graph.graph.node[-2]
        layer.output[0] = "own"
        graph.graph.node[-1].input[0] = "own"
        graph.graph.node.append(onnx.helper.make_node("Neg", ["own"], ["logits"]))
        scores = PPO_EXPORTED(task, weights).scores
        return PolicyGraph(graph.SerializeToString(), lambda obs: -scores(obs))


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("echo") / "run"
    options = ("exp.train_steps=4000", "exp.stop_return=1e9")
    tianji.train(TASKS / "echo_ppo.py", *options, engine="local", run_dir=folder)
    return folder


def export_as(monkeypatch, kind, run, out):
    monkeypatch.setattr(PPO, "exported", kind.exported)
    return export.onnx(run, out)


def test_a_torch_module_of_ones_own_is_exported(monkeypatch, echo, tmp_path):
    done = export_as(monkeypatch, Network, echo, tmp_path / "policy.onnx")
    assert done.parity.equal == 1 and done.parity.difference < 1e-5
    assert done.inputs == ("obs float32 [batch, 4]",)


def test_an_algorithm_that_does_not_say_how_is_named(monkeypatch, echo, tmp_path):
    with pytest.raises(TianJiError, match=r"Algorithm does not say .* exported\(task, weights\)"):
        export_as(monkeypatch, Algorithm, echo, tmp_path / "policy.onnx")


@pytest.mark.parametrize("kind", [Contrary, Indifferent, Mislabelled])
def test_what_acts_otherwise_is_not_left_behind(monkeypatch, kind, echo, tmp_path):
    with pytest.raises(TianJiError, match="would not act as the policy does"):
        export_as(monkeypatch, kind, echo, tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_equally_good_actions_may_be_chosen_differently():
    parity = export.Parity(200, difference=1e-7, tolerance=1e-4, equal=0.99, ties=2)
    assert parity.holds and "99.0% of actions equal (2 ties)" in str(parity)
    assert not export.Parity(200, 1e-7, 1e-4, equal=0.99, ties=1).holds
    assert not export.Parity(200, 1e-7, 1e-4, equal=0.98, ties=4).holds  # too many to believe
    assert not export.Parity(100, difference=1e-3, tolerance=1e-4, equal=1.0, ties=0).holds
    assert not export.Parity(100, difference=float("nan"), tolerance=1e-4, equal=1.0, ties=0).holds


def test_a_tie_is_one_of_the_best_scores_of_that_row_alone():
    scores = np.array([[1000.0, 999.99, 0.0], [1.0, 0.99, 0.0], [5.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    one, other = np.array([0, 0, 1, 2]), np.array([1, 1, 2, 1])
    assert export.ties(scores, one, other).tolist() == [True, False, False, True]


def test_the_example_says_what_it_wants():
    example = ROOT / "examples" / "run_exported.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert re.fullmatch(r"usage: python run_exported.py POLICY.onnx .*Gymnasium.*\n", done.stderr)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_package_that_is_missing_is_named(monkeypatch, package, dqn, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        TianJiError, match=rf"{package} is not installed: pip install 'tianji\[onnx"
    ):
        export.onnx(dqn, tmp_path / "policy.onnx")


BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/export.md").read_text(), re.M | re.S)


def test_the_page_about_export_shows_how_from_python(monkeypatch, cartpole, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "cartpole").symlink_to(cartpole)
    (tmp_path / "shown.py").write_text(BLOCKS[0])
    monkeypatch.chdir(tmp_path)
    runpy.run_path("shown.py")
    assert (tmp_path / "cartpole.onnx").exists()


def test_the_page_about_export_makes_an_algorithm_exportable(tmp_path):
    for name in ("own_algorithm.py", "own_algorithm_config.py"):
        (tmp_path / name).write_bytes((ROOT / "examples" / name).read_bytes())
    (tmp_path / "own_export.py").write_text(BLOCKS[1])
    options = ("agent.type=own_export:Exportable", "exp.train_steps=2000", "exp.stop_return=1e9")
    config, run = tmp_path / "own_algorithm_config.py", tmp_path / "run"
    tianji.train(config, *options, engine="local", run_dir=run)
    done = export.onnx(run)
    assert done.about["algorithm"] == "own_export:Exportable"
    assert done.parity.equal == 1


def refused(done, *words):
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3
    assert all(word in done.stderr for word in words), done.stderr


def test_a_run_that_is_not_there_is_named(tmp_path):
    refused(run_export(tmp_path / "nowhere", "--onnx"), "nowhere")
    assert not list(tmp_path.iterdir())


def test_a_run_without_weights_is_named(dqn, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_bytes((dqn / "config.json").read_bytes())
    refused(run_export(run, "--onnx"), str(run))
    assert [path.name for path in run.iterdir()] == ["config.json"]


def test_a_place_that_cannot_be_written_is_named(dqn, tmp_path):
    refused(run_export(dqn, "--onnx", "--out", tmp_path / "no" / "policy.onnx"), "--out")
    (tmp_path / "file").write_text("")
    refused(run_export(dqn, "--onnx", "--out", tmp_path / "file" / "policy.onnx"), "--out")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_without_permission_is_named(dqn, tmp_path):
    tmp_path.chmod(0o500)
    refused(run_export(dqn, "--onnx", "--out", tmp_path / "policy.onnx"), "Permission denied")


def test_the_format_must_be_named(dqn):
    refused(run_export(dqn), "--onnx")
