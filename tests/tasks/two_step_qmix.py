"""QMIX in the two-step game, with agents that remember."""

environment = dict(type="MatrixGameEnv")
exp = dict(train_steps=1_800, stop_return=1e9)
parallel_parameters = dict(global_cfg=dict(replay_ratio=2), actor_cfg=dict(num=1, envs=2))
hyp = dict(
    step_len=6, batch_size=8, buffer_size=600, warmup_size=100, max_decay_step=900, decay_updates=40
)
model = dict(type="GRU", hidden=[8], gru=8)
agent = dict(type="QMIX")
