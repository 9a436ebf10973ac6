# Pong by PQN on two cores without a GPU: frames and convolutions of pong_laptop.py, Q-learning from
# fresh rollouts without a replay.

parallel_parameters = dict(
    actor_cfg=dict(num=1, envs=64),
    learner_cfg=dict(num=1),
)

model = dict(type="CNN", convs=[(16, 4, 2), (32, 4, 2), (32, 3, 2)], hidden=[256], norm=True)

hyp = dict(
    lr=5e-4,
    step_len=32,
    minibatch=256,
    update_step=3,
    max_grad_norm=10.0,
    gamma=0.99,
    q_lambda=0.85,
    epsilon=0.005,
    max_decay_step=100_000,
)

agent = dict(type="PQN")

environment = dict(
    type="AtariEnv",
    game="Pong",
    wrappers=["noop", "skip", dict(type="warp", height=42, width=42), "clip", "stack"],
)

exp = dict(train_steps=5_000_000, stop_return=18)
