# Pong by DQN: double, dueling, 3-step; eight samples are learned from for each that is made.

parallel_parameters = dict(
    global_cfg=dict(replay_ratio=8),
    actor_cfg=dict(num=1, envs=64),
    learner_cfg=dict(num=1, device="auto"),
)

model = dict(type="CNN", norm=True, dueling=True)

hyp = dict(
    lr=1.5e-4,
    adam_eps=1.5e-4,
    batch_size=256,
    buffer_size=400_000,
    warmup_size=20_000,
    warmup_full_random=True,
    n_step=3,
    double_q=True,
    target_replace_iter=200,
    epsilon=0.01,
    max_decay_step=100_000,
)

agent = dict(type="DQN")

environment = dict(type="AtariEnv", game="Pong", wrappers=["noop", "skip", "warp", "clip", "stack"])

exp = dict(train_steps=10_000_000, stop_return=18)
