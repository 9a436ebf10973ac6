"""A job for the tests, whose values the presets in configs do not change."""

environment = dict(type="GymEnv", gym_name="CartPole-v1")

# Training ends when the last 100 episodes return 475 on average, or after so many steps.
exp = dict(stop_return=475, train_steps=500_000, seed=0)

parallel_parameters = dict(
    global_cfg=dict(replay_ratio="serial"),
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, send_size=16),
)

hyp = dict(
    LR=5e-4,
    GAMMA=0.99,  # how much a reward one step later is worth
    EPSILON=0.02,  # share of random actions
    batch_size=32,  # samples per update
    buffer_size=10_000,  # samples remembered
    warmup_size=500,  # samples before the first update
    TARGET_REPLACE_ITER=100,  # updates between two copies into the target network
    double_q=True,
)

model = dict(type="MLP", hidden=[128, 128], act="relu", dueling=True)

embryo = dict(type="DQNHead", model=model, hyp=hyp)
agent = dict(type="DQN", embryo=embryo)
