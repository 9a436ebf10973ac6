"""The words of the paper's release: what they become here, and which of them are told about."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import fields

import pytest
import release_files

from tianji.algorithms.dqn import DQNHyp
from tianji.algorithms.ppo import PPOHyp
from tianji.config import Config
from tianji.config.binder import bind
from tianji.config.keys import SECTIONS
from tianji.config.loader import resolve
from tianji.config.parallel import ActorConfig, GlobalConfig
from tianji.config.reader import parse
from tianji.config.release import ELSEWHERE
from tianji.core.env import EnvSpec
from tianji.core.errors import TianJiError
from tianji.job.job import Job, prepare
from tianji.job.preflight import try_out

CARTPOLE = "environment = dict(type='GymEnv', gym_name='CartPole-v1')\n"
WRAPPERS = (
    "wrappers=[dict(type='MonitorEnv'), dict(type='AtariOriginalReward'), "
    "dict(type='NoopResetEnv'), dict(type='MaxAndSkipEnv'), dict(type='EpisodicLifeEnv'), "
    "dict(type='FireResetEnv'), dict(type='WarpFrame'), dict(type='ScaledFloatFrame'), "
    "dict(type='ClipRewardEnv'), dict(type='FrameStackOrder', k=4, obs_format='NCHW')]"
)
BOXING = f"environment = dict(type='GymEnv', gym_name='BoxingNoFrameskip-v4', {WRAPPERS})\n"


def config(text: str, *overrides: str) -> Config:
    return resolve(parse(text, "a.py"), overrides, "a", "/folder")


def told(config: Config) -> list[str]:
    """What each notice is about."""
    short = [line.split(" has no effect")[0].split(" is read as")[0] for line in config.notices]
    return [line.partition(": ")[2] for line in short]


def test_a_game_wrapped_by_hand_is_an_atari_env() -> None:
    boxing = config(BOXING + "model = dict(type='AtariModel', act_dim=18)")
    assert (boxing.environment.type, boxing.environment.gym_name) == (
        "AtariEnv",
        "BoxingNoFrameskip-v4",
    )
    assert (boxing.model.type, boxing.model.c2) == ("CNN", 18)
    wrapping = boxing.environment.wrapping
    assert (wrapping.noop, wrapping.skip, wrapping.life, wrapping.fire) == (30, 4, True, True)
    assert (wrapping.clip, wrapping.stack) == (True, 4)
    assert told(boxing)[0] == "environment.type 'GymEnv'"


def test_lunar_lander_is_read_as_its_successor() -> None:
    lander = config("environment = dict(type='GymEnv', gym_name='LunarLander-v2')")
    assert lander.environment.gym_name == "LunarLander-v3"
    assert told(lander) == ["environment.gym_name 'LunarLander-v2'"]


def test_lunar_lander_says_which_extra_it_needs() -> None:
    try:
        import Box2D  # noqa: F401  # only whether it is there

        pytest.skip("Box2D is installed")
    except ImportError:
        pass
    with pytest.raises(TianJiError, match=r"LunarLander-v3 needs.*gymnasium\[box2d\]"):
        try_out(config("environment = dict(type='GymEnv', gym_name='LunarLander-v2')"))


@pytest.mark.parametrize(
    "sizes", ["actor_state_dim=4, actor_action_dim=2", "state_dim=4, act_dim=2"]
)
def test_ppo_actor_critic_is_an_mlp(sizes: str) -> None:
    text = f"model = dict(type='PPOActorCritic', {sizes}, critic_state_dim=4, mlp_dim=32)\n"
    ppo = config(CARTPOLE + text)
    assert (ppo.model.type, ppo.model.c1, ppo.model.c2) == ("MLP", 4, 2)
    assert ppo.model.hidden == (32, 32)
    assert not ppo.model.shares
    assert told(ppo) == ["model.critic_state_dim"]


def test_sizes_that_do_not_fit_are_refused_under_any_name() -> None:
    text = "model = dict(type='PPOActorCritic', actor_state_dim=5, actor_action_dim=2)\n"
    with pytest.raises(TianJiError, match=r"model.c1: found 5.*size 4"):
        try_out(config(CARTPOLE + text))


def test_one_size_under_two_names_is_refused() -> None:
    text = "model = dict(type='PPOActorCritic', state_dim=4, actor_state_dim=4)\n"
    with pytest.raises(TianJiError, match=r"a.py:2: model: 'actor_state_dim' is the same key"):
        config(CARTPOLE + text)


def test_ppo_atari_is_a_cnn_whose_frames_the_wrappers_stack() -> None:
    ppo = config(BOXING + "model = dict(type='PPOAtari', state_dim=4, action_dim=18)")
    assert (ppo.model.type, ppo.model.c1, ppo.model.c2) == ("CNN", None, 18)
    assert "model.state_dim" in told(ppo)


def test_actor_critic_has_two_layers_and_no_sizes_of_its_own() -> None:
    text = "model = dict(type='ActorCritic', actor_state_dim=20, actor_action_dim=5,\n"
    maddpg = config(CARTPOLE + text + " critic_dim=100, mlp_dim=64)")
    assert (maddpg.model.type, maddpg.model.hidden) == ("MLP", (64, 64))
    assert told(maddpg) == ["model.actor_state_dim", "model.actor_action_dim", "model.critic_dim"]
    assert maddpg.notices[2].startswith("a.py:3: ")


def test_priorities_are_asked_for_by_the_head() -> None:
    text = "embryo = dict(type='DQNPrioritiesHead', hyp=dict(LR=1e-3))\nagent = dict(embryo=embryo)"
    dqn = config(CARTPOLE + text.replace("dict(embryo", "dict(type='DQN', embryo"))
    assert (dqn.agent.type, dqn.agent.embryo) == ("DQN", "DQNHead")
    assert dqn.hyp == {"LR": 1e-3, "prioritised": True}
    assert told(dqn) == ["embryo 'DQNPrioritiesHead'"]
    assert try_out(dqn).sampling.reweighs


@pytest.mark.parametrize("name", ["PredatorEnv", "AirFightEnv", "JSBSimEnv"])
def test_an_environment_that_was_never_released_says_so(name: str) -> None:
    with pytest.raises(TianJiError, match=f"a.py:1: environment.type '{name}'.*never released"):
        config(f"environment = dict(type='{name}', scenario_name='endless3')")


@pytest.mark.parametrize(
    "text",
    [
        "agent = dict(type='PredatorQMIX', embryo=dict(type='PredatorMixerHead'))",
        "agent = dict(embryo=dict(type='PredatorMixerHead'))",
    ],
)
def test_an_agent_of_such_an_environment_says_so_too(text: str) -> None:
    with pytest.raises(TianJiError, match=r"Predator.* was never released"):
        config("environment = dict(type='PredatorEnv')\n" + text)


def test_on_policy_training_keeps_no_old_rollouts() -> None:
    hyp = "hyp = dict(batch_size=1, step_len=128, warmup_size=1, buffer_size=16)\n"
    ppo = config(CARTPOLE + hyp + "agent = dict(type='PPO', alg_type='on-policy')")
    assert "buffer_size" not in ppo.hyp
    assert told(ppo) == ["hyp.buffer_size", "agent.alg_type"]
    lag_k = config(CARTPOLE + hyp + "agent = dict(type='PPO')")
    assert lag_k.hyp["buffer_size"] == 16


def test_a_fusion_publishes_where_actors_would_get_nothing_else() -> None:
    groups = "global_cfg=dict(use_group_parallel=True, group_num=2, save_iter=50)"
    learner = "learner_cfg=dict(send_interval=10_000_000, send_root_interval=12)"
    dqn = config(CARTPOLE + f"parallel_parameters = dict({groups}, {learner})")
    assert dqn.parallel.learner_cfg.send_interval == 12
    assert dqn.parallel.learner_cfg.send_root_interval == 12
    assert dqn.save_freq == 50
    assert told(dqn) == ["learner_cfg.send_interval 10000000"]
    alone = config(CARTPOLE + f"parallel_parameters = dict({learner})")
    assert alone.parallel.learner_cfg.send_interval == 10_000_000


def test_starcraft_is_not_shown_in_a_window() -> None:
    game = config("environment = dict(type='StarCraft2Env', map_name='2s3z', render=True)")
    assert game.environment.render is False
    assert game.environment.kwargs == {"map_name": "2s3z"}
    assert told(game) == ["environment.render"]


# -------------------------------------------------------------------------------------------- QMIX

MIXING = """
exp = dict(train_steps=1000, max_step=6)
hyp = dict(LR=5e-4, GAMMA=0.99, EPSILON=1, max_decay_step=70, TARGET_REPLACE_ITER=64,
           warmup_size=3, buffer_size=50, batch_size=4, double_q=False, clip_grad_norm=10)
model = dict(type='GRU', c1=42, c2=9, gru_dim=16)
mixer_model = dict(type='MixerNet', agent_num=3, state_shape=48, mixer_dim=8, hypernet_dim=12)
embryo = dict(type='MixerHead', model=model, mixer_model=mixer_model, hyp=hyp)
agent = dict(type='QMIX', embryo=embryo)
"""
TWO_STEPS = "environment = dict(type='MatrixGameEnv')"


def test_qmix_of_the_release_counts_episodes_and_explores_as_it_did() -> None:
    qmix = config(TWO_STEPS + MIXING)
    assert (qmix.model.type, qmix.model.gru) == ("GRU", 16)
    job = try_out(qmix)
    h = job.task.hyp
    assert (h.mixing_units, h.hyper_units) == (8, 12)
    assert (h.buffer_size, h.warmup_size, h.batch_size, h.step_len) == (300, 18, 4, 6)
    assert (h.epsilon, h.max_decay_step, h.decay_updates) == (0.01, 0, 70)
    assert (h.target_replace_iter, h.target_tau) == (64, None)
    assert (h.double_q, h.optimiser, h.td_lambda) == (False, "rmsprop", 0)
    assert told(qmix) == [
        "model.c1",
        "model.c2",
        "mixer_model.agent_num",
        "mixer_model.state_shape",
        "hyp",
    ]
    assert job.notices == ()


def test_without_the_releases_mixer_the_same_keys_have_their_own_meaning() -> None:
    text = MIXING.replace("mixer_model=mixer_model, ", "").replace("mixer_model = ", "unused = ")
    assert "unused" in MIXING.replace("mixer_model = ", "unused = ")
    lines = [line for line in text.split("\n") if not line.startswith("unused")]
    h = try_out(config(TWO_STEPS + "\n".join(lines).replace("EPSILON=1", "EPSILON=0.2"))).task.hyp
    assert (h.buffer_size, h.epsilon, h.max_decay_step) == (50, 0.2, 70)


def test_a_mixers_key_that_is_misspelt_is_refused() -> None:
    with pytest.raises(TianJiError, match=r"mixer_model has no key 'mixer_dims'. Did you mean"):
        config(TWO_STEPS + MIXING.replace("mixer_dim=", "mixer_dims="))


def test_starcraft_says_that_the_game_is_missing() -> None:
    if importlib.util.find_spec("smac") is not None:
        pytest.skip("SMAC is installed")
    text = "environment = dict(type='StarCraft2Env', map_name='3m', difficulty='7', seed=None)"
    with pytest.raises(TianJiError, match=r"StarCraft2Env 3m needs SMAC[\s\S]*SC2PATH"):
        try_out(config(text + MIXING))


# ---------------------------------------------------------------------------------- whole files

PARTS = {"StarCraft2Env": ("smac", "needs SMAC"), "LunarLander": ("Box2D", r"gymnasium\[box2d\]")}
MISSING = {n: words for n, (part, words) in PARTS.items() if not importlib.util.find_spec(part)}
MISSING |= dict.fromkeys(("AirFightEnv", "PredatorEnv"), "was never released")
KNOWN_GAMES: dict[str, EnvSpec] = {}  # an emulator takes .14 s to start


def started(config: Config) -> Job:
    name = config.environment.gym_name or ""
    if name in KNOWN_GAMES:
        return prepare(config, KNOWN_GAMES[name])
    job = try_out(config)
    if config.environment.type == "AtariEnv":
        KNOWN_GAMES[name] = job.task.env
    return job


@pytest.mark.parametrize("name", release_files.TABLE)
def test_a_file_of_the_release_starts_or_says_what_is_missing(name: str) -> None:
    text = release_files.text(name)
    missing = [reason for word, reason in MISSING.items() if word in text]
    if missing:
        with pytest.raises(TianJiError, match=missing[0]):
            started(config(text))
        return
    job = started(config(text))
    assert job.config.agent.type == re.findall(r"agent = .*type='(\w+)'", text)[0]


def test_the_releases_values_arrive() -> None:
    job = started(config(release_files.text("ppo/assault_group_distribution")))
    learner, h = job.config.parallel.learner_cfg, job.task.hyp
    assert (h.lr, h.clip_param, h.step_len, h.batch_size, h.update_step) == (2.5e-4, 0.1, 200, 4, 4)
    assert (job.config.n_groups, job.config.max_fusions, job.config.stop_return) == (2, 10_000, 12)
    assert (learner.cores, learner.send_interval, learner.send_root_interval) == (16, 1, 1)


def test_the_release_counts_episodes_between_evaluations() -> None:
    cartpole = config(release_files.text("dqn/cartpole_config"))
    assert cartpole.exp.eval_step == 100 * 500
    assert "exp.eval_step 100" in told(cartpole)
    assert config(release_files.text("maddpg/maddpg_mpe_config")).exp.eval_step == 5 * 25
    pong = config(release_files.text("dqn/dqn_pong_config"))  # without exp.max_step
    assert pong.exp.eval_step == 100_000
    assert "exp.eval_step 100000" in told(pong)
    ours = config(release_files.text("dqn/cartpole_config").replace("hooks = ", "# "))
    assert ours.exp.eval_step == 100 and "exp.eval_step 100" not in told(ours)
    given = config(release_files.text("dqn/cartpole_config"), "exp.eval_step=700")
    assert given.exp.eval_step == 700  # on the command line it is steps, as everywhere here


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("hyp.n_steps=8", "hyp has no key 'n_steps'. Here it is hyp.step_len."),
        ("hyp.learning_rate=1", "Here it is hyp.lr."),
        ("hyp.n_envs=8", "Here it is actor_cfg.envs, of each actor."),
        ("actor_cfg.num_envs=8", "Here it is actor_cfg.envs, of each actor."),
        ("model.net_arch=[64]", "Here it is model.hidden, as in [64, 64]."),
        ("total_timesteps=8", "there is no section 'total_timesteps'. Here it is exp.train_steps."),
        ("hyp.tau=0.1", "hyp has no key 'tau'. Its keys: "),  # of DQN, and not of PPO
    ],
)
def test_names_of_other_libraries_are_known(override: str, said: str) -> None:
    with pytest.raises(TianJiError) as caught:
        bind(PPOHyp, config(CARTPOLE, override).hyp)
    assert said in str(caught.value)


def test_a_name_of_another_library_is_known_where_a_section_should_stand() -> None:
    with pytest.raises(TianJiError, match=r"Here it is environment\.gym_name\."):
        config("env_id = 'CartPole-v1'")


def test_what_other_names_are_called_here_are_keys() -> None:
    sections = {name: kind for name, kind in SECTIONS.items() if name != "parallel"}
    sections |= {"actor_cfg": ActorConfig, "global_cfg": GlobalConfig}
    keys = {
        f"{section}.{field.name}" for section, kind in sections.items() for field in fields(kind)
    }
    keys |= {f"hyp.{field.name}" for kind in (PPOHyp, DQNHyp) for field in fields(kind)}
    assert {ours.partition(",")[0] for ours in ELSEWHERE.values()} <= keys
