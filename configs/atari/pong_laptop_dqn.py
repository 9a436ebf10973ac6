# Pong by DQN on two cores without a GPU: frames and convolutions of pong_laptop.py, double, dueling,
# 3-step; four samples are learned from for each that is made, in small batches: what it needs most
# is updates.

parallel_parameters = dict(
    global_cfg=dict(replay_ratio=4),
    actor_cfg=dict(num=1, envs=32),
    learner_cfg=dict(num=1),
)

model = dict(
    type="CNN", convs=[(16, 4, 2), (32, 4, 2), (32, 3, 2)], hidden=[256], norm=True, dueling=True
)

hyp = dict(
    lr=3e-4,
    adam_eps=1.5e-4,
    gamma=0.99,
    batch_size=64,
    buffer_size=200_000,
    warmup_size=10_000,
    warmup_full_random=True,
    n_step=3,
    double_q=True,
    target_replace_iter=500,
    epsilon=0.01,
    max_decay_step=60_000,
)

agent = dict(type="DQN")

environment = dict(
    type="AtariEnv",
    game="Pong",
    wrappers=["noop", "skip", dict(type="warp", height=42, width=42), "clip", "stack"],
)

exp = dict(train_steps=3_000_000, stop_return=18)
