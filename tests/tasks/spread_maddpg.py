"""MADDPG: two agents of MPE cover two landmarks. A random pair returns -24, a good one -17."""

environment = dict(
    type="MultiagentParticleEnv",
    scenario_name="simple_spread",
    N=2,
    max_cycles=15,
)
exp = dict(train_steps=25_000, stop_return=-19.5)
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=8), actor_cfg=dict(num=1, envs=16, send_size=15)
)
hyp = dict(tau=0.02, batch_size=256, buffer_size=25_000, warmup_size=1_500)
model = dict(type="MLP", hidden=[64, 64])
agent = dict(type="MADDPG", embryo=dict(type="MADDPGHead", model=model, hyp=hyp))
