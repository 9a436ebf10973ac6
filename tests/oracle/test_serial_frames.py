"""Where a policy sees several frames: serial training, bit for bit, and so after a resume."""

import pixels
import pytest
from test_resume_bitwise import Interruption, facts, resumed_to_its_end, train
from test_serial import NO_SLACK, SMALL, run, same

from tianji import config as configs
from tianji.core import checkpoint
from tianji.job import factory, job, preflight, serial
from tianji.roles import Buffer
from tianji.runs import trained

NORMALISED = "hyp.normalise_obs=True"
KINDS = {
    "dqn": ("cartpole_dqn", ()),
    "prioritised": ("cartpole_dqn", ("hyp.prioritised=True", "hyp.beta_steps=50")),
    "ppo": ("cartpole_ppo", ()),
    "ppo cnn": (
        "cartpole_ppo",
        ("model.type='CNN'", "model.convs=[[4, 2, 1]]", "model.precision='float32'", NORMALISED),
    ),
}


@pytest.fixture
def load(root, monkeypatch):
    for module in (serial, factory, preflight, trained):
        monkeypatch.setattr(module, "make_env", pixels.PixelEnv)

    def load(kind, *overrides):
        name, more = KINDS[kind]
        given = (*SMALL[name], "exp.stop_return=1e9", *more, *overrides)
        return configs.load(root / f"configs/{name}.py", given)

    return load


@pytest.fixture
def make_job(load):
    return lambda *given: job.prepare(load(*given), pixels.PixelEnv().spec)


@pytest.mark.parametrize(
    ("kind", "overrides"),
    [
        ("dqn", ()),
        ("dqn", ("hyp.n_step=3", "actor_cfg.send_size=1")),
        ("dqn", ("hyp.buffer_size=150",)),
        ("prioritised", ()),
        ("prioritised", ("hyp.n_step=3", "hyp.buffer_size=150", "actor_cfg.send_size=5")),
        ("ppo", ()),
        pytest.param("ppo", ("hyp.step_len=2",), marks=pytest.mark.slow),
        ("ppo cnn", ("hyp.step_len=8", "hyp.normalise_updates=2")),
        ("prioritised", ("actor_cfg.inference=True",)),
        ("ppo cnn", ("hyp.step_len=8", "actor_cfg.inference=True")),
    ],
)
def test_the_local_engine_is_serial_training_bit_for_bit(make_job, kind, overrides):
    (weights, updates), (ours, version) = same(make_job(kind, NO_SLACK, *overrides))
    assert version == updates > 5
    assert (weights == ours).all()


def test_every_step_can_be_drawn_where_nothing_was_lost(make_job):
    engine = run(make_job("dqn", NO_SLACK))
    buffer = next(role for role in engine.roles if isinstance(role, Buffer))
    assert buffer.store.size() == buffer.received


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_run_ends_as_if_it_had_never_stopped(load, tmp_path, monkeypatch, kind):
    config = load(kind, "exp.train_steps=1000")
    expected = facts(train(config, tmp_path / "whole"))
    interruption = Interruption(monkeypatch, 201)
    report = resumed_to_its_end(config, tmp_path / "run", interruption)
    assert interruption.n >= 1
    assert facts(report) == expected


def test_without_its_samples_a_run_warms_up_again(load, tmp_path, monkeypatch):
    given = ("exp.save_replay=never", "hyp.warmup_size=200", "exp.train_steps=2000")
    config = load("prioritised", *given)
    interruption = Interruption(monkeypatch, 500)
    train(config, tmp_path / "run")
    saved, _ = checkpoint.newest(tmp_path / "run")
    assert saved.part("buffer-0.0.store") is None and saved.updates > 0
    interruption.left = 10_000
    report = train(config, tmp_path / "run")
    assert report.summary["status"] == "finished"
    assert report.summary["updates"] > saved.updates
