"""SAC on the aiming task."""

environment = dict(type="aim:Aim")
exp = dict(stop_return=6.5, train_steps=20_000)
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=16), actor_cfg=dict(num=1, send_size=8, envs=4)
)
hyp = dict(LR=5e-3, GAMMA=0.5, tau=0.05, batch_size=64, buffer_size=4096, warmup_size=200)
model = dict(type="MLP", hidden=[32])
agent = dict(type="SAC", embryo=dict(type="SACHead", model=model, hyp=hyp))
