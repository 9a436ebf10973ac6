"""QMIX in the two-step game: it finds 8, where VDN (hyp.mixer="vdn") stays at 7. Some seconds.

Training explores to the end, so its mean return stays near 5; the evaluations show the 8.
"""

environment = dict(type="MatrixGameEnv")
exp = dict(train_steps=20_000, eval_step=5_000)

parallel_parameters = dict(
    global_cfg=dict(replay_ratio=4),
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, envs=16),
)

hyp = dict(
    lr=3e-3,
    step_len=6,  # two games: each has two steps, and one that only resets
    batch_size=32,  # sequences per update
    buffer_size=20_000,
    warmup_size=600,
    epsilon=1.0,  # learn from random play alone, as the paper does here ...
    max_decay_step=0,
    decay_updates=0,
    td_lambda=0,  # ... and so from what the best action would bring, not from what followed
    target_tau=0.05,
)

model = dict(type="MLP", hidden=[64])

embryo = dict(type="MixerHead", model=model, hyp=hyp)
agent = dict(type="QMIX", embryo=embryo)
