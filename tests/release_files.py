"""The values of the 47 config files of the paper's public release, without comments and layout.

`FILES` says of each file which other one or which family it resembles, and what is different:
values changed, added, or (`-key`) left out. `learner`, `actor`, `buffer` and `fusion` are the
sections of `parallel_parameters`, and `parallel` is all of them.
"""

import ast
from typing import Any

FAMILIES = """
= dqn
environment = dict(type='GymEnv', gym_name='CartPole-v1', render=False)
exp = dict(max_step=500, save_freq=100, eval_step=100)
hyp = dict(LR=5e-4, GAMMA=0.99, EPSILON=0.02, TARGET_REPLACE_ITER=100, warmup_size=1000,
    warmup_full_random=True, buffer_size=50000, batch_size=32)
model = dict(type='MLP', c1=4, c2=2, dueling=True)
embryo = dict(type='DQNHead')
agent = dict(type='DQN')
hooks = [dict(type='DQNHook')]
learner = dict(num=1, send_interval=128, exit_val=dict(learn_step=25000))
actor = dict(num=4, send_size=16)
buffer = dict(global_buffer=dict(type='StepBuffer', max_size=10000), send_size=32)
= ppo
environment = dict(type='GymEnv', gym_name='CartPole-v1', render=False)
exp = dict(train_steps=25000, max_step=500, save_freq=100, eval_step=100)
hyp = dict(lr=1e-4, clip_param=0.2, gamma=0.99, gae_lambda=0.95, update_step=10, batch_size=1,
    step_len=2048, warmup_size=1, buffer_size=16)
model = dict(type='PPOActorCritic', state_dim=4, action_dim=2, mlp_dim=64)
embryo = dict(type='PPOHead')
agent = dict(type='PPO', alg_type='on-policy')
hooks = [dict(type='PPOHook')]
learner = dict(num=1, cores=1, send_interval=1, finish_reward=300, exit_val=dict(learn_step=100))
actor = dict(num=1, send_size=1)
buffer = dict(global_buffer=dict(type='MultiStepBuffer', max_size=1000, step_limit=2048),
    send_size=1)
= maddpg
environment = dict(type='MultiagentParticleEnv', scenario_name='simple_tag', render=False)
exp = dict(episodes=25000, max_step=25, save_freq=100, eval_step=5)
hyp = dict(actor_lr=0.01, critic_lr=0.01, gamma=0.95, tau=0.01, batch_size=64, warmup_size=2048,
    buffer_size=1000000, epsilon=0.97, target_replace_iter=4)
model = dict(type='ActorCritic', actor_state_dim=20, actor_action_dim=5, critic_dim=100,
    mlp_dim=64)
embryo = dict(type='MADDPGHead')
agent = dict(type='MADDPG', agent_num=4)
hooks = [dict(type='MADDPGHook'), dict(type='TensorboardHook')]
learner = dict(num=1, send_interval=4, exit_val=dict(learn_step=25000),
    eval_val=dict(eval_count=100, reward_opt=dict(step_opt='sum', episode_opt='mean')))
actor = dict(num=2, send_size=16)
buffer = dict(global_buffer=dict(type='StepBuffer', max_size=80000), send_size=16)
= qmix
environment = dict(type='StarCraft2Env', map_name='8m', difficulty='7', render=False, seed=None)
exp = dict(train_steps=1000000, max_step=120, save_freq=100, eval_times=20, eval_step=100)
hyp = dict(LR=1e-4, GAMMA=0.99, EPSILON=0.99, max_decay_step=20000, TARGET_REPLACE_ITER=64,
    warmup_size=32, buffer_size=5000, batch_size=32, double_q=True, clip_grad_norm=10)
model = dict(type='GRU', c1=102, c2=14)
mixer_model = dict(type='MixerNet', agent_num=8, state_shape=168)
embryo = dict(type='MixerHead')
agent = dict(type='QMIX')
hooks = [dict(type='QmixHook')]
learner = dict(num=1, cores=1, send_interval=32, exit_val=dict(learn_step=32000))
actor = dict(num=2, send_size=16)
buffer = dict(global_buffer=dict(type='EpisodeBuffer', max_size=10000, episode_limit=120),
    send_size=32)
"""
FILES = """
dqn/cartpole_config like dqn: -parallel exp.train_steps=25000
dqn/dqn_priorities_config like dqn/cartpole_config: embryo.type='DQNPrioritiesHead'
dqn/dqn_priorities_config_distributed like dqn: embryo.type='DQNPrioritiesHead'
    learner.finish_reward=300 learner.eval_val.eval_count=100
    learner.eval_val.reward_opt.step_opt='mean' learner.eval_val.reward_opt.episode_opt='sum'
dqn/cartpole_distribution like dqn/dqn_priorities_config_distributed: embryo.type='DQNHead'
    hyp.TARGET_REPLACE_ITER=200 learner.cores=1 buffer.send_size=160 hooks.1.type='TensorboardHook'
dqn/cartpole_group_distribution like dqn/cartpole_distribution: fusion.use_group_parallel=True
    fusion.group_num=2 -learner.cores learner.send_root_interval=16 actor.num=8 -hooks.1
benchmark/dqn/dqn_config_group_distributed like dqn/cartpole_group_distribution: fusion.group_num=1
    hyp.batch_size=256 learner.cores=1 learner.exit_val.learn_step=10000 actor.num=4
    actor.send_size=32 buffer.send_size=32 buffer.cores=1 hooks.0.type='DQNCartPoleV1Hook'
benchmark/dqn/dqn_config_distributed like dqn: hyp.warmup_size=32 hyp.buffer_size=2048 actor.num=1
    learner.cores=1 learner.finish_reward=300 learner.exit_val.learn_step=40000 actor.send_size=32
dqn/dqn_acrobot_distributed like dqn: environment.gym_name='Acrobot-v1' model.c1=6 model.c2=3
    -exp.eval_step learner.send_interval=54 learner.exit_val.learn_step=3000
dqn/dqn_mountainCar_distributed like dqn/dqn_acrobot_distributed: model.c1=2 exp.max_step=200
    environment.gym_name='MountainCar-v0'
benchmark/dqn/dqn_lunarLander_distributed like dqn: environment.gym_name='LunarLander-v2'
    exp.max_step=1000 -exp.eval_step hyp.TARGET_REPLACE_ITER=128 hyp.warmup_size=2000
    hyp.buffer_size=5000000 hyp.batch_size=64 model.c1=8 model.c2=4 learner.send_interval=32
    learner.exit_val.learn_step=200000 actor.num=1 actor.send_size=32 buffer.send_size=64
dqn/dqn_lunarLander_distributed like benchmark/dqn/dqn_lunarLander_distributed:
    learner.send_interval=16
dqn/dqn_lunarLander like dqn/dqn_lunarLander_distributed: -parallel exp.episodes=25000
    hyp.buffer_size=50000 hooks.1.type='TensorboardHook'
dqn/dqn_qbert_distributed like dqn: environment.gym_name='QbertNoFrameskip-v4'
    environment.wrappers=PLAIN -exp.max_step exp.train_steps=10000000 exp.save_freq=100000
    exp.eval_step=100000 hyp.LR=3e-4 hyp.warmup_size=50000 -hyp.warmup_full_random
    hyp.buffer_size=1000000 -model.c1 -model.c2 -model.dueling model.type='AtariModel'
    model.act_dim=6 learner.send_interval=54 learner.exit_val.learn_step=500000
dqn/dqn_qbert like dqn/dqn_qbert_distributed: -parallel
dqn/dqn_pong_config like dqn/dqn_qbert: environment.gym_name='PongNoFrameskip-v4'
dqn/pong_config like dqn/dqn_pong_config: environment.wrappers=ORIGINAL
dqn/dqn_assault like dqn/dqn_qbert: environment.gym_name='AssaultNoFrameskip-v4' model.act_dim=7
dqn/dqn_boxing like dqn/dqn_qbert: environment.gym_name='BoxingNoFrameskip-v4' model.act_dim=18
dqn/dqn_breakout like dqn/dqn_qbert: environment.gym_name='BreakoutNoFrameskip-v4' model.act_dim=4
dqn/dqn_breakout_distributed like dqn/dqn_qbert_distributed: -exp.train_steps -exp.eval_step
    environment.gym_name='BreakoutNoFrameskip-v4' model.act_dim=4 hyp.TARGET_REPLACE_ITER=2500
    learner.exit_val.learn_step=30000
dqn/dqn_pong_distribute_config like dqn/dqn_qbert_distributed: hyp.TARGET_REPLACE_ITER=200
    environment.gym_name='PongNoFrameskip-v4' hyp.warmup_size=10000 learner.send_interval=128
    learner.finish_reward=21 learner.exit_val.learn_step=10000000 actor.num=2 actor.send_size=4
    buffer.send_size=8
dqn/pong_group_distribution like dqn/dqn_pong_distribute_config: environment.wrappers=ORIGINAL
    exp.save_freq=5000 exp.eval_step=10000000 hyp.LR=2.5e-4 hyp.TARGET_REPLACE_ITER=100
    hyp.warmup_size=625 hyp.buffer_size=25000 hyp.batch_size=16 fusion.use_group_parallel=True
    fusion.group_num=1 fusion.save_freq=5000 fusion.exit_val.fusion_step=80000 learner.cores=16
    learner.send_interval=1000000 learner.send_root_interval=12 learner.finish_reward=12
    actor.num=4 buffer.global_buffer.max_size=1000 buffer.cores=1 buffer.send_size=4
dqn/boxing_group_distribution like dqn/pong_group_distribution: exp.save_freq=10000000
    environment.gym_name='BoxingNoFrameskip-v4' model.act_dim=18 -fusion.save_freq
    fusion.save_iter=10000 fusion.exit_val.fusion_step=110000 learner.send_interval=10000000
dqn/assault_group_distribution like dqn/boxing_group_distribution: exp.save_freq=5000
    environment.gym_name='AssaultNoFrameskip-v4' model.act_dim=7 fusion.exit_val.fusion_step=80000
    learner.exit_val.learn_step=100000000
benchmark/dqn/dqn_pong_group_distributed like dqn/pong_group_distribution: -fusion.save_freq
    environment.wrappers=PLAIN fusion.save_iter=125 fusion.exit_val.fusion_step=37500
    learner.send_root_interval=8 learner.finish_reward=18 learner.exit_val.learn_step=1000000
    actor.send_size=16 buffer.send_size=16
ppo/cartpole_distribution like ppo:
ppo/cartpole_config like ppo: -parallel exp.train_steps=2500000 hyp.update_step=80
    hyp.buffer_size=1000
ppo/ppo_cartpole_distributed_config like ppo: -model.state_dim -model.action_dim
    model.actor_state_dim=4 model.actor_action_dim=2 model.critic_state_dim=4
benchmark/ppo/ppo_cartpole_distributed_config like ppo/ppo_cartpole_distributed_config:
    hyp.buffer_size=64 learner.exit_val.learn_step=700
ppo/pong_group_distribution like ppo: environment.gym_name='PongNoFrameskip-v4' -exp.max_step
    environment.wrappers=ORIGINAL exp.train_steps=10000000 exp.save_freq=100000
    exp.eval_step=100000 hyp.lr=2.5e-4 hyp.clip_param=0.1 hyp.update_step=4 hyp.batch_size=2
    hyp.step_len=200 hyp.warmup_size=2 hyp.buffer_size=2 model.type='PPOAtari' model.action_dim=6
    -model.mlp_dim fusion.use_group_parallel=True fusion.group_num=1 fusion.save_freq=10
    fusion.exit_val.fusion_step=4500 learner.cores=16 learner.send_interval=10000000
    learner.send_root_interval=1 learner.finish_reward=12 learner.exit_val.learn_step=10000000
    actor.num=2
ppo/assault_group_distribution like ppo/pong_group_distribution: model.action_dim=7 actor.num=1
    environment.gym_name='AssaultNoFrameskip-v4' hyp.batch_size=4 hyp.warmup_size=4
    hyp.buffer_size=4 fusion.group_num=2 fusion.exit_val.fusion_step=10000
ppo/boxing_group_distribution like ppo/assault_group_distribution: model.action_dim=18
    environment.gym_name='BoxingNoFrameskip-v4' fusion.exit_val.fusion_step=7000
maddpg/maddpg_mpe_config_distributed like maddpg:
maddpg/maddpg_mpe_config like maddpg: -parallel environment.render=True hyp.target_replace_iter=100
maddpg/maddpg_mpe_simp_config_distributed like maddpg: environment.scenario_name='simple'
    hyp.target_replace_iter=1 model.actor_state_dim=4 model.critic_dim=18 agent.agent_num=2
    learner.exit_val.reward=-10 learner.eval_val.reward_opt.step_opt='mean'
    learner.eval_val.reward_opt.episode_opt='sum'
benchmark/maddpg/maddpg_simple like maddpg/maddpg_mpe_simp_config_distributed: -exp.episodes
    -exp.eval_step -hooks.1 -learner.eval_val -learner.exit_val.reward
    learner.exit_val.learn_step=8000 actor.num=1 buffer.global_buffer.max_size=10000
maddpg/maddpg_3v3_config like maddpg/maddpg_mpe_config: environment.type='AirFightEnv'
    environment.scenario_name='mulity_attack' environment.action_space_option=None
    -environment.render hyp.buffer_size=10240 hyp.epsilon=0.9 hyp.target_replace_iter=1000
    model.actor_state_dim=16 model.actor_action_dim=3 model.critic_dim=114 agent.agent_num=6
    hooks.1.priority='HIGH'
maddpg/maddpg_config like maddpg/maddpg_3v3_config: environment.scenario_name='1v1_simple'
    hyp.batch_size=1024 -hyp.warmup_size model.critic_dim=38 agent.agent_num=2 -hooks.1.priority
qmix/qmix_config_distributed like qmix: -learner.cores
benchmark/qmix/qmix_config_distributed2 like qmix: hyp.max_decay_step=10000
qmix/qmix_config_distributed1 like qmix: learner.send_interval=64 actor.num=1 actor.send_size=32
qmix/qmix_config_distributed4 like qmix: hyp.max_decay_step=5000 learner.send_interval=16
    actor.num=4 actor.send_size=8
qmix/qmix_config_distributed8 like qmix: hyp.max_decay_step=2500 learner.send_interval=8
    actor.num=8 actor.send_size=4
qmix/qmix_config like qmix: -parallel hooks.1.type='TensorboardHook'
qmix/qmix_3m_config like qmix/qmix_config: environment.map_name='3m' exp.max_step=60 hyp.LR=5e-4
    hyp.EPSILON=1 hyp.warmup_size=100 hyp.batch_size=16 hyp.double_q=False model.c1=42 model.c2=9
    mixer_model.agent_num=3 mixer_model.state_shape=48
qmix/qmix_2s3z_config like qmix/qmix_3m_config: environment.map_name='2s3z' model.c1=96 model.c2=11
    environment.render=True mixer_model.agent_num=5 mixer_model.state_shape=120
qmix/qmix_predator_config like qmix/qmix_config: environment.type='PredatorEnv'
    environment.scenario_name='endless3' -environment.map_name -environment.difficulty
    -environment.render -environment.seed exp.train_steps=100000 exp.max_step=200
    hyp.max_decay_step=10000 hyp.TARGET_REPLACE_ITER=30 hyp.buffer_size=10000 model.type='MLP'
    model.c1=9 model.c2=5 mixer_model.agent_num=2 mixer_model.state_shape=6
    embryo.type='PredatorMixerHead' agent.type='PredatorQMIX' hooks.0.type='QmixPredatorHook'
"""
WRAPPERS = ("NoopResetEnv", "MaxAndSkipEnv", "EpisodicLifeEnv", "FireResetEnv", "WarpFrame")
SCALED = ("ScaledFloatFrame", "ClipRewardEnv")
STACKED = dict(type="FrameStackOrder", k=4, obs_format="NCHW")
CONSTANTS = {
    name: [*(dict(type=each) for each in ("MonitorEnv", *own, *WRAPPERS, *SCALED)), STACKED]
    for name, own in (("PLAIN", ()), ("ORIGINAL", ("AtariOriginalReward",)))
}
PARALLEL = {"fusion": "global_cfg"} | {n: f"{n}_cfg" for n in ("learner", "actor", "buffer")}


def _read() -> dict[str, tuple[str, list[str]]]:
    """For each file what it is like, and its changes."""
    found: dict[str, tuple[str, list[str]]] = {}
    for line in FILES.strip().replace("\n    ", " ").splitlines():
        head, changes = line.split(":", 1)
        name, base = head.split(" like ")
        found[name] = base, changes.split()
    return found


TABLE = _read()


def text(name: str) -> str:
    """One of the files."""
    values = _values(name)
    parallel = {PARALLEL[n]: values.pop(n) for n in PARALLEL if n in values}
    parts = {n: f"{n}={n}" for n in ("model", "mixer_model", "hyp") if n in values}
    embryo, agent = values.pop("embryo"), values.pop("agent")
    lines = [f"{name} = {value!r}" for name, value in values.items()]
    lines.append(f"embryo = dict(type={embryo['type']!r}, {', '.join(parts.values())})")
    own = "".join(f", {key}={value!r}" for key, value in agent.items())
    lines.append(f"agent = dict(embryo=embryo{own})")
    if parallel:
        lines.append(f"parallel_parameters = {parallel!r}")
    return "\n".join(lines) + "\n"


def _values(name: str) -> dict[str, Any]:
    if name not in TABLE:
        body = FAMILIES.split(f"= {name}\n")[1].split("\n= ")[0]
        values: dict[str, Any] = {}
        exec(body, {}, values)
        return values
    base, changes = TABLE[name]
    values = _values(base)
    for change in changes:
        _change(values, change)
    return values


def _change(values: Any, change: str) -> None:
    path, _, value = change.removeprefix("-").partition("=")
    if path == "parallel":
        for section in PARALLEL:
            values.pop(section, None)
        return
    *sections, last = path.split(".")
    for section in sections:
        if isinstance(values, list) and int(section) == len(values):
            values.append({})
        values = (
            values[int(section)] if isinstance(values, list) else values.setdefault(section, {})
        )
    if change.startswith("-"):
        del values[int(last) if isinstance(values, list) else last]
    else:
        values[last] = CONSTANTS.get(value) or ast.literal_eval(value)
