"""QMIX on StarCraft II (SMAC) with the values of the paper's Table 2; also for 8m and 2s3z."""

# Other maps: --set environment.map_name=8m, or 2s3z.
environment = dict(type="StarCraft2Env", map_name="3m", difficulty="7")
exp = dict(train_steps=2_000_000, eval_step=50_000, eval_times=32, stop_win_ratio=0.95, seed=0)

parallel_parameters = dict(
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=4, envs=2),
)

hyp = dict(
    gamma=0.99,
    epsilon=0.01,  # the table gives the share of greedy actions, 0.99
    max_decay_step=0,
    decay_updates=10_000,  # "decay step"; the release counts updates
    target_tau=None,
    target_replace_iter=64,
    clip_grad_norm=10,
    optimiser="rmsprop",  # alpha 0.99
    adam_eps=1e-5,
    lr=1e-4,
    step_len=16,  # rollout length
    warmup_size=512,  # 32 sequences
    buffer_size=80_000,  # 5000 sequences
    batch_size=32,
    mixing_units=32,
    hyper_units=32,
    td_lambda=0,  # from here on not in the table: as the release has it
)

model = dict(type="GRU", hidden=[32], gru=32)

agent = dict(type="QMIX")
