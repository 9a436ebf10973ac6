"""QMIX forages on a field of 8x8: two agents find one food; .9 means nine of ten are eaten."""

environment = dict(type="LBFEnv", name="Foraging-8x8-2p-1f-v3", reward="team")

exp = dict(train_steps=2_000_000, stop_return=0.9, seed=0)

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
    max_decay_step=100_000,
    decay_updates=300,
    td_lambda=0.6,
    target_tau=0.01,
)

model = dict(type="MLP", hidden=[128, 128])

agent = dict(type="QMIX")
