# Boxing by PPO, with the recipe of fast_pong.py; not tuned for this game.

parallel_parameters = dict(
    actor_cfg=dict(num=1, envs=128),
    learner_cfg=dict(num=1, device="auto"),
)

model = dict(type="CNN", norm=True)

hyp = dict(
    lr=1e-3,
    step_len=32,
    minibatch=1024,
    update_step=4,
    clip_param=0.1,
    ent_coef=0.01,
    vf_coef=0.5,
    max_grad_norm=0.5,
    adam_eps=1e-5,
    gamma=0.99,
    gae_lambda=0.95,
)

agent = dict(type="PPO", embryo=dict(type="PPOHead", model=model, hyp=hyp))

environment = dict(
    type="AtariEnv", game="Boxing", wrappers=["noop", "skip", "warp", "clip", "stack"]
)

exp = dict(train_steps=10_000_000)
