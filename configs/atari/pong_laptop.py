# Pong on two cores without a GPU: small frames, a small network, bfloat16 where the CPU has it.
# A game is won 21 : 0 at best; "solved" is a mean of 18 over the last 100 games.

parallel_parameters = dict(
    actor_cfg=dict(num=1, envs=32, halves=False),  # one core acts, the other one learns
    learner_cfg=dict(num=1),
)

model = dict(
    type="CNN", convs=[(16, 4, 2), (32, 4, 2), (32, 3, 2)], hidden=[256], norm=True, act="relu"
)

hyp = dict(
    lr=7e-4,
    step_len=64,
    minibatch=256,
    update_step=3,
    clip_param=0.1,
    ent_coef=0.01,
    vf_coef=0.5,
    max_grad_norm=0.5,
    adam_eps=1e-5,
    gamma=0.99,
    gae_lambda=0.95,
    mode="async",  # both cores are busy all the time; samples are one update old
    normalise_obs=True,  # minus the mean picture of the first rollout
    normalise_updates=1,
)

agent = dict(type="PPO", embryo=dict(type="PPOHead", model=model, hyp=hyp))

environment = dict(
    type="AtariEnv",
    game="Pong",
    full_actions=True,
    wrappers=["noop", "skip", dict(type="warp", height=42, width=42), "clip", "stack"],
)

exp = dict(train_steps=2_000_000, stop_return=18)
