"""MAPPO on simple_spread: three agents cover three landmarks, which none may do alone."""

# JaxMARL's version of the game (extra `smax`); without backend="jax" it is mpe2's (extra `mpe`).
environment = dict(type="MultiagentParticleEnv", scenario_name="simple_spread", backend="jax")

# A random policy returns -81; local_ratio is 0.5, the return is the sum over all agents.
exp = dict(train_steps=2_500_000, seed=0)

# One actor that steps 128 games at once, an episode of each per update.
parallel_parameters = dict(
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, envs=128),
)

hyp = dict(
    LR=1e-3,
    lr_decay=781,  # updates: 2,500,000 / (128 x 25), to ...
    lr_final=1e-4,
    GAMMA=0.95,
    step_len=26,       # an episode of 25 steps, and the row that resets
    update_step=10,    # epochs
    minibatch=832,     # a quarter
    ent_coef=0.01,
)

model = dict(type="MLP", hidden=[64, 64], act="tanh")

embryo = dict(type="MAPPOHead", model=model, hyp=hyp)
agent = dict(type="MAPPO", embryo=embryo)
