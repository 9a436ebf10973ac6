"""Updates whose loss or gradient is not finite: skipped, counted, and at last given up."""

import json
import math

import numpy as np
import pytest
import torch
from commands import TASKS
from test_roles import CountingAlgorithm, LearnerStage

import tianji
from tianji.algorithms.dqn import DQN
from tianji.core.counts import Count
from tianji.core.errors import TianJiError
from tianji.models.flat import FlatParameters
from tianji.models.optimisers import Adam, RAdam, RMSProp
from tianji.roles import learner as learner_module


def problem(kind, on_device):
    """Two parameters and their optimiser, which looks as it does on a GPU if it is to."""
    parameter = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    flat = FlatParameters([parameter])
    optimiser = kind(flat, 0.1)
    if on_device:
        optimiser._sound._array = None
    return parameter, flat, optimiser


def memory(flat, optimiser):
    own = optimiser.mean, optimiser.square, optimiser.count
    return torch.cat([flat.vector.detach(), *(each.reshape(-1) for each in own)]).clone()


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("kind", [Adam, RAdam, RMSProp])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_step_is_made_of_a_gradient_that_is_not_finite(kind, on_device, bad):
    parameter, flat, optimiser = problem(kind, on_device)
    other, beside, plain = problem(kind, False)
    for step in range(8):
        factor = bad if step in (2, 3, 6) else 1.0
        flat.backward((parameter.square() * torch.tensor([1.0, factor])).sum())
        flat.clip(1.0)
        before = memory(flat, optimiser)
        optimiser.step()
        same = torch.equal(memory(flat, optimiser), before)
        assert same == (factor != 1.0)
        if factor == 1.0:
            beside.backward(other.square().sum(), 1.0)
            plain.step()
    found, expected = memory(flat, optimiser), memory(beside, plain)  # as if they had never been
    if kind is RAdam and on_device:  # which computes in tensors what it otherwise does in numbers
        torch.testing.assert_close(found, expected)
    else:
        assert torch.equal(found, expected)
    assert (optimiser.n_left_out, plain.n_left_out) == (3, 0)


@pytest.mark.parametrize("kind", [Adam, RAdam, RMSProp])
def test_no_step_waits_for_a_gpu(kind, monkeypatch):
    _, flat, optimiser = problem(kind, True)

    def waits(*_):
        raise AssertionError("a number was read back")

    for name in ("item", "tolist", "__float__", "__bool__", "__int__", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, waits)
    for _ in range(8):  # RAdam begins to adapt at the sixth
        flat.gradient.fill_(0.5)
        optimiser.step()


def test_a_loss_that_is_infinite_spoils_a_gradient_that_is_not():
    parameter, flat, optimiser = problem(Adam, False)
    flat.backward(parameter.sum() + math.inf)
    optimiser.step()
    assert flat.vector.tolist() == [1.0, 2.0]


def test_a_part_is_not_stepped_where_another_is_spoilt():
    parameter, flat, _ = problem(Adam, False)
    one, two = (Adam(flat.part(i, i + 1), 0.1, whole=flat) for i in range(2))
    flat.backward((parameter * torch.tensor([1.0, math.nan])).sum())
    one.step()
    two.step()
    assert flat.vector.tolist() == [1.0, 2.0]


class Guarded(CountingAlgorithm):
    """Skips the updates that `script` says, and loses its way in those without end."""

    overlaps = False

    def __init__(self, script):
        super().__init__()
        self.script, self.left_out = script, 0

    def n_left_out(self):
        return self.left_out

    def learn(self, batch):
        self.n += 1
        bad = self.script(self.n - 1)
        self.left_out += 3 * bool(bad)  # minibatches
        return {"loss": math.nan if bad else float(self.n)}


def learner(script):
    stage = LearnerStage()
    stage.learner.algorithm = algorithm = Guarded(script)
    stage.learner.consumption._n_left_out = algorithm.n_left_out
    return stage


def learn(stage, n):
    for _ in range(n):
        stage.push()
        assert stage.learner.step()


def test_skipped_updates_are_counted_and_the_last_good_scalars_stay():
    stage = learner(lambda n: n in (3, 4, 7))
    learn(stage, 9)
    assert stage.learner.counts[Count.SKIPPED] == 3
    assert stage.learner.report()["scalars"].tolist() == [9.0]
    assert stage.learner.version == 9


def test_ten_in_a_row_end_the_run_and_say_what_was_wrong():
    stage = learner(lambda n: n >= 5)
    learn(stage, 15)
    stage.push()
    with pytest.raises(TianJiError, match="10 updates in a row were skipped, loss is nan at upda"):
        stage.learner.step()


def test_nine_and_a_good_one_do_not():
    stage = learner(lambda n: n % 10)
    learn(stage, 60)
    assert stage.learner.counts[Count.SKIPPED] == 54


def test_a_learner_goes_back_once():
    stage, rescued = learner(lambda n: n >= 5), []
    stage.learner.rescue = lambda learner: rescued.append(learner) or "0001-step-9"
    learn(stage, 25)
    assert (len(rescued), stage.learner.counts[Count.GONE_BACK]) == (1, 1)
    stage.push()
    with pytest.raises(TianJiError, match="going back to 0001-step-9 did not help"):
        stage.learner.step()


def test_without_a_look_at_gradients_a_bad_scalar_ends_the_run_at_once():
    stage = LearnerStage()
    stage.learner.algorithm.learn = lambda batch: {"loss": math.inf}
    stage.push()
    with pytest.raises(TianJiError, match="loss is inf at update 1"):
        stage.learner.step()


def spoilt(monkeypatch, bad):
    """DQN with losses that are NaN in the updates that `bad` names."""
    right, n = DQN._losses, [0]

    def losses(self, batch):
        n[0] += 1
        loss, *rest = right(self, batch)
        return loss * math.nan if bad(n[0]) else loss, *rest

    monkeypatch.setattr(DQN, "_losses", losses)


def after_a_checkpoint(folder, most=math.inf):
    """Names the first `most` updates that come when there is a checkpoint to go back to."""
    begun = []

    def bad(n):
        if not begun and n >= 100 and any((folder / "checkpoints").glob("0*")):
            begun.append(n)
        return bool(begun) and n < begun[0] + most

    return bad


def run(folder, *more):
    overrides = ["exp.train_steps=3000", "exp.save_freq=20", "exp.stop_return=None", *more]
    return tianji.train(TASKS / "walk_dqn.py", *overrides, engine="local", run_dir=folder)


def test_a_run_survives_and_goes_back_to_its_newest_checkpoint(monkeypatch, tmp_path, capfd):
    ten = after_a_checkpoint(tmp_path / "run", 10)
    spoilt(monkeypatch, lambda n: n == 25 or ten(n))
    report = run(tmp_path / "run")
    assert report.exit_status == 0
    assert report.summary["skipped_updates"] == 11
    first, second = report.summary["warnings"]
    assert "learner-0.0: an update was skipped" in first
    assert "weights and optimiser are those of the newest checkpoint again" in second
    assert "goes back to 000" in capfd.readouterr().err
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["faults/skipped"] == 11 and row["train/loss"] is not None


def test_the_algorithm_that_is_gone_back_to_is_that_of_the_checkpoint(monkeypatch, tmp_path):
    right, seen = learner_module.Learner._go_back, []

    def go_back(self):
        before = self.algorithm.parameters().copy(), self.version
        right(self)
        seen.append((before, self.algorithm.parameters().copy(), self.version))

    monkeypatch.setattr(learner_module.Learner, "_go_back", go_back)
    spoilt(monkeypatch, after_a_checkpoint(tmp_path / "run", 10))
    assert run(tmp_path / "run").exit_status == 0
    (((before, was), after, version),) = seen
    assert was == version >= 109  # versions go on
    assert np.isfinite(after).all() and (before != after).any()


def test_a_loss_that_stays_nan_ends_the_run_with_a_diagnosis(monkeypatch, tmp_path):
    spoilt(monkeypatch, after_a_checkpoint(tmp_path / "run"))
    report = run(tmp_path / "run")
    assert (report.status, report.exit_status) == ("failed", 2)
    assert "10 updates in a row were skipped" in report.error
    assert "going back to 000" in report.error and "hyp.lr" in report.error
