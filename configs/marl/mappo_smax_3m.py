"""MAPPO on SMAX 3m: three marines against three of the script's."""

# JaxMARL's game (extra `smax`); StarCraft II is type="StarCraft2Env".
environment = dict(type="SMAXEnv", map_name="3m", see_enemy_actions=True, walls_cause_death=True)

exp = dict(train_steps=2_000_000, eval_step=100_000, eval_times=100, seed=0)

# One actor that steps 64 games at once.
parallel_parameters = dict(
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, envs=64),
)

hyp = dict(
    LR=1e-3,
    lr_decay=244,  # updates: 2,000,000 / (64 x 128)
    GAMMA=0.99,
    gae_lambda=0.95,
    step_len=128,
    update_step=4,     # epochs
    minibatch=1_024,   # steps, of all agents
    ent_coef=0.003,
    max_grad_norm=0.25,
)

model = dict(type="MLP", hidden=[128, 128])

embryo = dict(type="MAPPOHead", model=model, hyp=hyp)
agent = dict(type="MAPPO", embryo=embryo)
