# Pong on a machine with a GPU and many cores: three actors act on the GPU in one half of their
# games while the other half moves, and the learner on the GPU never waits for one of them. Without
# a GPU the same file trains on the CPU; one of both devices set to "cpu" mixes them.

parallel_parameters = dict(
    actor_cfg=dict(num=3, envs=64, device="auto"),
    learner_cfg=dict(num=1, device="auto"),
)

model = dict(type="CNN", hidden=[512], norm=True)

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
    mode="async",  # samples are about two updates old
    batch_size=2,
    normalise_obs=True,  # minus the mean picture of the first rollouts
    normalise_updates=1,
)

agent = dict(type="PPO", embryo=dict(type="PPOHead", model=model, hyp=hyp))

environment = dict(type="AtariEnv", game="Pong", wrappers=["noop", "skip", "warp", "clip", "stack"])

exp = dict(train_steps=5_000_000, stop_return=18)
