"""MADDPG in the two-step game."""

environment = dict(type="MatrixGameEnv")
exp = dict(train_steps=3_000, stop_return=1e9)
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=8), actor_cfg=dict(num=1, envs=2, send_size=9)
)
hyp = dict(lr=3e-3, gamma=0.9, batch_size=64, buffer_size=2048, warmup_size=200, delay=2, twin=True)
model = dict(type="MLP", hidden=[16])
agent = dict(type="MADDPG", embryo=dict(type="MADDPGHead", model=model, hyp=hyp))
