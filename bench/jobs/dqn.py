"""DQN on CartPole with costs: what scaling.py trains, each sample learned from once on average."""

environment = dict(
    type="GymEnv", gym_name="sleepy:SleepyCartPole-v1", kwargs=dict(step_seconds=0.0)
)
exp = dict(stop_return=1e9, train_steps=1_000_000_000, seed=0, save_seconds=None)

parallel_parameters = dict(
    global_cfg=dict(group_num=1, replay_ratio="balanced"),
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, envs=16, send_size=16),
)

# Table 2's values for CartPole, but for the batch, which scaling.py changes.
hyp = dict(
    LR=5e-4,
    GAMMA=0.99,
    EPSILON=0.02,
    batch_size=64,
    buffer_size=65_536,
    warmup_size=256,
    TARGET_REPLACE_ITER=100,
    sample_seconds=0.0,
)

model = dict(type="MLP", hidden=[256, 256], act="relu")
embryo = dict(type="DQNHead", model=model, hyp=hyp)
agent = dict(type="costs:SlowDQN", embryo=embryo)
