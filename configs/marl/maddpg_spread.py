"""MADDPG on simple_spread: three agents cover three landmarks, which none may do alone."""

# JaxMARL's version of the game (extra `smax`); without backend="jax" it is mpe2's (extra `mpe`).
environment = dict(type="MultiagentParticleEnv", scenario_name="simple_spread", backend="jax")

# A random policy returns -81; local_ratio is 0.5, the return is the sum over all agents.
exp = dict(train_steps=2_000_000, stop_return=-35, seed=0)

# One actor that steps 16 games at once; an update of 1024 samples for every 64 steps.
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=16),
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, envs=16, send_size=25),
)

hyp = dict(
    LR=3e-3,
    GAMMA=0.95,
    tau=0.02,
    batch_size=1024,
    buffer_size=500_000,
    warmup_size=5_000,   # steps at random before the first update
)

model = dict(type="MLP", hidden=[64, 64])

embryo = dict(type="MADDPGHead", model=model, hyp=hyp)
agent = dict(type="MADDPG", embryo=embryo)
