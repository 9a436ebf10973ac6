# Assault by PPO, with rl_games' recipe for Breakout; not tuned for this game.

environment = dict(type="AtariEnv", game="Assault")  # all seven classic wrappers
exp = dict(train_steps=10_000_000)

parallel_parameters = dict(
    actor_cfg=dict(num=1, envs=64),
    learner_cfg=dict(num=1, device="auto"),
)

model = dict(type="CNN")
hyp = dict(
    lr=8e-4,
    gamma=0.999,
    step_len=128,
    minibatch=1024,
    update_step=2,
    clip_param=0.2,
    ent_coef=0.01,
    vf_coef=1.0,  # their critic coefficient is 2, of half the squared error
    max_grad_norm=1.0,
    normalise_value=True,
)
agent = dict(type="PPO", embryo=dict(type="PPOHead", model=model, hyp=hyp))
