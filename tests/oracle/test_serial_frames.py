"""Where a policy sees several frames, the local engine still is Algorithm 1, bit for bit."""

import pixels
import pytest
from test_serial import NO_SLACK, SMALL, run, same

from tianji import config as configs
from tianji.job import factory, job, serial
from tianji.roles import Buffer

KINDS = {
    "dqn": ("cartpole_dqn", "PixelDQN"),
    "prioritised": ("cartpole_dqn", "PixelPrioritisedDQN"),
    "ppo": ("cartpole_ppo", "PixelPPO"),
}


@pytest.fixture
def make_job(root, monkeypatch):
    for module in (serial, factory):
        monkeypatch.setattr(module, "make_env", pixels.PixelEnv)

    def make(kind, *overrides):
        name, algorithm = KINDS[kind]
        given = (*SMALL[name], "exp.stop_return=1e9", f"agent.type=pixels:{algorithm}", *overrides)
        config = configs.load(root / f"configs/{name}.py", given)
        return job.prepare(config, pixels.PixelEnv().spec)

    return make


@pytest.mark.parametrize(
    ("kind", "overrides"),
    [
        ("dqn", ()),
        ("dqn", ("hyp.n_step=3", "actor_cfg.send_size=1")),
        ("dqn", ("hyp.buffer_size=150",)),
        ("prioritised", ()),
        ("prioritised", ("hyp.n_step=3", "hyp.buffer_size=150", "actor_cfg.send_size=5")),
        ("ppo", ()),
        ("ppo", ("hyp.step_len=2",)),
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
