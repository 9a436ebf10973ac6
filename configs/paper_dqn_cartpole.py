"""DQN on CartPole with the values of the paper's Table 2."""

environment = dict(type="GymEnv", gym_name="CartPole-v1")
exp = dict(stop_return=475, train_steps=500_000, seed=0)

parallel_parameters = dict(
    global_cfg=dict(replay_ratio=2),  # not in the table: what reached the target soonest
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, envs=4, send_size=16),  # Table 2: rollout length
)

hyp = dict(
    GAMMA=0.99,
    EPSILON=0.02,  # the table gives the share of greedy actions, 0.98
    LR=5e-4,
    adam_eps=1e-8,
    batch_size=32,
    TARGET_REPLACE_ITER=100,
    warmup_size=32,
    buffer_size=2048,
    max_decay_step=3000,  # not in the table
    n_step=16,  # not in the table: with so few target updates value spreads n steps each
)

model = dict(type="MLP", hidden=[256, 256], act="relu")
embryo = dict(type="DQNHead", model=model, hyp=hyp)
agent = dict(type="DQN", embryo=embryo)
