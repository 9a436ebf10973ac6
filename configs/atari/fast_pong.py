# Pong by PPO on a machine with a GPU and many cores; without a GPU it learns on the CPU.
# "Solved" is a mean of 18 over the last 100 games. For two cores see pong_laptop.py.

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

environment = dict(type="AtariEnv", game="Pong", wrappers=["noop", "skip", "warp", "clip", "stack"])

exp = dict(train_steps=10_000_000, stop_return=18)
