"""QMIX wins SMAX's 3m: three marines against three. Written for two cores."""

environment = dict(
    type="SMAXEnv",
    map_name="3m",
    see_enemy_actions=True,
    walls_cause_death=True,
    attack_mode="closest",
)

exp = dict(train_steps=3_000_000, eval_step=100_000, eval_times=100, seed=0)

# One actor that steps 64 battles at once; 32 chunks of 20 steps for every 320 steps made.
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=2),
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, envs=64),
)

hyp = dict(
    lr=5e-4,
    step_len=20,
    batch_size=32,
    buffer_size=200_000,
    warmup_size=5_000,
    max_decay_step=250_000,
    decay_updates=500,
    td_lambda=0.6,
    target_tau=0.01,
)

model = dict(type="MLP", hidden=[128, 128])

agent = dict(type="QMIX")
