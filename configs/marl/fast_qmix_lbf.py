"""QMIX forages on a field of 8x8: two agents, one food, which is 1 if it is eaten."""

environment = dict(type="LBFEnv", name="Foraging-8x8-2p-1f-v3", reward="team")

# No stop_return: exploring agents do better than greedy ones at first, which wait for each other.
exp = dict(train_steps=400_000, eval_step=50_000, eval_times=100, seed=0)

# One actor that steps 32 fields at once.
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=8),
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, envs=32),
)

hyp = dict(
    lr=1e-3,
    step_len=20,
    batch_size=32,  # sequences per update
    buffer_size=200_000,
    warmup_size=5_000,
    max_decay_step=50_000,
    decay_updates=300,
    td_lambda=0.6,
    target_tau=0.01,
)

model = dict(type="MLP", hidden=[128, 128])

agent = dict(type="QMIX")
