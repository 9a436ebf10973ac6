"""MADDPG on simple_spread: three agents cover three landmarks, which none may do alone."""

# JaxMARL's version of the game (extra `smax`); without backend="jax" it is mpe2's (extra `mpe`).
environment = dict(type="MultiagentParticleEnv", scenario_name="simple_spread", backend="jax")

# A random policy returns -81; local_ratio is 0.5, the return is the sum over all agents.
exp = dict(train_steps=1_500_000, seed=0)

# One actor that steps 16 games at once; an update of 256 samples for every 32 steps.
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=8),
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, envs=16, send_size=25),
)

hyp = dict(
    LR=1e-3,
    lr_decay=46_000,  # updates: 1,500,000 / 32, to ...
    lr_final=2e-4,
    GAMMA=0.97,
    tau=0.01,
    batch_size=256,
    buffer_size=500_000,
    warmup_size=5_000,   # steps at random before the first update
    logits_penalty=1e-4,
)

model = dict(type="MLP", hidden=[128, 128])

embryo = dict(type="MADDPGHead", model=model, hyp=hyp)
agent = dict(type="MADDPG", embryo=embryo)
