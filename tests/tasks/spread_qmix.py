"""QMIX: two agents of MPE cover two landmarks. A random pair returns -24, a good one -17."""

environment = dict(
    type="MultiagentParticleEnv",
    scenario_name="simple_spread",
    reward="team",
    N=2,
    max_cycles=15,
)
exp = dict(train_steps=50_000, stop_return=-19.5)
parallel_parameters = dict(global_cfg=dict(replay_ratio=8), actor_cfg=dict(num=1, envs=16))
hyp = dict(
    lr=2e-3, step_len=16, batch_size=32, buffer_size=50_000, warmup_size=1_500,
    max_decay_step=12_000, decay_updates=150,
)  # fmt: skip
model = dict(type="MLP", hidden=[64, 64])
agent = dict(type="QMIX")
