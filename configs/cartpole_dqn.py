"""DQN balances a pole, learning from what it remembers. Every key is explained in docs/config.md."""

environment = dict(type="GymEnv", gym_name="CartPole-v1")

# Training ends when the last 100 episodes return 475 on average, or after so many steps.
exp = dict(stop_return=475, train_steps=500_000, seed=0)

# Who works: one actor that steps 8 environments at once and hands over 16 steps of each at a time,
# one learner. Every sample is learned from 4 times on average: a batch for every 32 steps.
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=4),
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, envs=8, send_size=16),
)

hyp = dict(
    LR=2e-3,
    GAMMA=0.99,  # how much a reward one step later is worth
    EPSILON=0.01,  # share of random actions in the end ...
    max_decay_step=3000,  # ... reached after so many steps
    batch_size=128,  # samples per update
    buffer_size=50_000,  # samples remembered
    warmup_size=256,  # samples before the first update
    TARGET_REPLACE_ITER=25,  # updates between two copies into the target network
    n_step=16,  # steps of reward before the network's own estimate takes over
    double_q=True,
    clip_grad_norm=10,
)

model = dict(type="MLP", hidden=[128, 128], act="tanh")

embryo = dict(type="DQNHead", model=model, hyp=hyp)
agent = dict(type="DQN", embryo=embryo)
