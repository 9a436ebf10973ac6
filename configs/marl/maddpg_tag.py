"""MADDPG on simple_tag: three predators learn to catch a prey that runs about at random."""

# JaxMARL's version of the game (extra `smax`); without backend="jax" it is mpe2's (extra `mpe`).
environment = dict(
    type="MultiagentParticleEnv",
    scenario_name="simple_tag",
    backend="jax",
    teams=dict(predators=["adversary_*"], prey=["agent_0"]),
    opponents=dict(prey="random"),  # or "module:function", or the folder of a run
)

# The return is the sum over the three predators, 10 to each for every touch: 15 at random, 122 after
# 100,000 steps.
exp = dict(train_steps=400_000, eval_step=50_000, eval_times=100, seed=0)

# One actor that steps 16 games at once; an update of 256 samples for every 32 steps.
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=8),
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, envs=16, send_size=25),
)

hyp = dict(
    LR=3e-3,
    GAMMA=0.95,
    tau=0.02,
    batch_size=256,
    buffer_size=500_000,
    warmup_size=5_000,   # steps at random before the first update
)

model = dict(type="MLP", hidden=[64, 64])

embryo = dict(type="MADDPGHead", model=model, hyp=hyp)
agent = dict(type="MADDPG", embryo=embryo)
