"""A `tianji.Env` of one's own: named in a config, with a mask, a state and who is alive."""

import shutil

import numpy as np
import pytest
from commands import TASKS

import tianji
from tianji import envs
from tianji.config.loader import resolve
from tianji.config.reader import parse
from tianji.core.env import MendingEnv, SpacesEnv, SplitEnv
from tianji.core.errors import TianJiError
from tianji.core.mishaps import NotFinite
from tianji.core.state import Stateful, restore_to, state_of
from tianji.envs import Rendering, make_shown
from tianji.job.preflight import try_out

HYPS = {
    "PPO": "step_len=16, minibatch=128, lr=0.02",
    "DQN": "warmup_size=64, lr=0.005, updates_per_step=0.2, max_decay_step=500",
    "IMPALA": "",
    "PQN": "",
    "QMIX": "warmup_size=8, batch_size=4, buffer_size=200",
    "MAPPO": "minibatch=64",
}


def config(kind, name, **more):
    keys = "".join(f", {key}={value!r}" for key, value in more.items())
    text = (
        f"environment = dict(type='masked:{kind}'{keys})\n"
        "parallel_parameters = dict(actor_cfg=dict(num=1, envs=8))\n"
        f"agent = dict(type={name!r})\n"
        f"hyp = dict({HYPS[name]})\n"
        f"model = dict(type={'GRU' if name == 'QMIX' else 'MLP'!r}, hidden=[16])\n"
    )
    return text


def job(kind, name, *overrides, **more):
    return resolve(parse(config(kind, name, **more), "a.py"), overrides, "a", str(TASKS))


def trained(tmp_path, kind, name, *overrides, **more):
    file = tmp_path / "job.py"
    file.write_text(config(kind, name, **more))
    shutil.copy(TASKS / "masked.py", tmp_path)
    return tianji.train(file, *overrides, engine="local", run_dir=tmp_path / "run")


def test_the_average_of_an_asynchronous_policy_is_masked_too(tmp_path):
    report = trained(tmp_path, "Doors", "PPO", "exp.train_steps=2400", "hyp.mode='async'")
    assert report.error is None
    assert report.metrics()[-1]["train/approx_kl"] < 1  # an impossible action costs 10^9


@pytest.mark.parametrize("name", ["PPO", "DQN"])
def test_only_what_the_mask_allows_is_done_and_learned(tmp_path, name):
    """The observation says nothing: who takes the best possible door knows it from the mask."""
    report = trained(tmp_path, "Doors", name, "exp.train_steps=2400", rounds=2)
    assert report.error is None
    assert report.summary["updates"] > 20
    env = tianji.load(tmp_path / "run").environment()
    policy = tianji.load(tmp_path / "run")
    obs, gained, n_valid = env.reset(1), 0.0, 0
    for _ in range(100):
        step = env.step(policy.act(obs))
        obs, gained, n_valid = step.obs, gained + step.reward.sum(), n_valid + step.valid.sum()
    assert gained / n_valid > 0.95  # two of the doors, blindly: 0.5 among those that are open


@pytest.mark.parametrize("name", ["QMIX", "MAPPO"])
def test_an_env_of_several_agents_shows_state_and_who_is_alive(tmp_path, name):
    report = trained(tmp_path, "Pair", name, "exp.train_steps=1500")
    assert report.error is None
    assert report.summary["updates"] >= 1
    task = tianji.load(tmp_path / "run").task
    assert {field.name for field in task.env.observations} == {"obs", "mask", "state", "alive"}


@pytest.mark.parametrize("name", ["IMPALA", "PQN"])
def test_who_does_not_look_at_a_mask_says_so(name):
    with pytest.raises(TianJiError, match=f"agent.type: {name}.*mask"):
        try_out(job("Doors", name))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("Unspecified", ("masked:Unspecified.spec", "n_envs=8", "n_envs=9")),
        ("Stepless", ("masked:Stepless", "step()")),
        ("Shapeless", ("masked:Shapeless", "'obs'", "float32[8, 4]", "float64[8, 4]")),
        ("Broad", ("mask", "bool[5]", "bool[4]")),
    ],
)
def test_a_mistake_in_an_env_of_ones_own_is_told(kind, words):
    with pytest.raises(TianJiError) as caught:
        try_out(job(kind, "PPO"))
    for word in words:
        assert word in str(caught.value)


def test_what_an_env_of_ones_own_cannot_do_is_told():
    with pytest.raises(TianJiError, match=r"exp\.max_step"):
        try_out(job("Doors", "PPO", "exp.max_step=5"))
    with pytest.raises(TianJiError, match="closed"):
        try_out(job("Doors", "PPO", closed=1))
    environment = job("Doors", "PPO").environment
    with pytest.raises(TianJiError, match="masked:Doors cannot be shown"):
        make_shown(environment, str(TASKS), None, Rendering.PICTURES)


@pytest.mark.parametrize("name", ["QMIX", "MAPPO"])
def test_agents_whose_last_observations_would_not_be_seen_are_refused(name):
    with pytest.raises(TianJiError, match=r"masked:Within.*same_step"):
        try_out(job("Within", name))


def test_random_actions_are_possible_ones():
    made = try_out(job("Doors", "DQN"))
    policy = made.algorithm.policy(made.task, 0, 0)
    policy.load(np.zeros(made.algorithm.n_weights(made.task), np.float32), 0)
    mask = np.random.default_rng(0).random((8, 4)) < 0.5
    mask[:, 3] = True
    obs = {"obs": np.ones((8, 4), np.float32), "mask": mask}
    taken = np.zeros((8, 4), np.bool_)
    for _ in range(100):
        taken[np.arange(8), policy.act(obs, np.zeros(8, np.bool_))["action"]] = True
    assert np.array_equal(taken, mask)


@pytest.mark.parametrize(
    ("field", "at", "what", "when"),
    [
        ("obs", 0, "nan", "on reset"),
        ("obs", 1, "-inf", "at step 1 of its episode"),
        ("reward", 1, "nan", "at step 1 of its episode"),
        ("reward", 1, "1e300", "at step 1 of its episode"),  # no number of the buffer's
    ],
)
def test_nan_of_an_env_of_ones_own_stops_the_run_before_it_starts(field, at, what, when):
    words = f"masked:Spoilt: environment 2: field '{field}' has NaN or Inf {when}"
    with pytest.raises(NotFinite, match=words):
        try_out(job("Spoilt", "PPO", field=field, at=at, what=what))


@pytest.mark.parametrize("field", ["obs", "reward"])
def test_nan_of_an_env_of_ones_own_costs_the_episodes_and_reaches_no_update(tmp_path, field):
    report = trained(tmp_path, "Spoilt", "DQN", "exp.train_steps=2400", field=field)
    assert report.error is None
    assert report.summary["not_finite"] >= 2 and not report.summary["skipped_updates"]
    words = f"actor-0.0: masked:Spoilt: environment 2: field '{field}' has NaN or Inf at step 3 of"
    assert words in report.summary["warnings"][0]


def test_what_an_env_of_ones_own_can_do_besides_it_can_do_checked():
    plain, able = (
        envs.make(job(kind, "PPO", at=4).environment, 8, str(TASKS))
        for kind in ("Spoilt", "Halved")
    )
    for kind in (SplitEnv, MendingEnv, SpacesEnv, Stateful):
        assert isinstance(able, kind) and not isinstance(plain, kind)
    obs = able.reset(1)
    able.begin(obs["mask"].argmax(1))
    assert able.finish().valid.all()
    saved = state_of(able)
    obs = able.reset(2)
    with pytest.raises(NotFinite, match="field 'reward' has NaN or Inf at step 3 of its episode"):
        for _ in range(3):
            obs = able.step(obs["mask"].argmax(1)).obs
    assert restore_to(able, saved) and able.space_terms() == "terms"
