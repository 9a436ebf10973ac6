"""QMIX wins SMAX's 3m, three marines against three. SMAX (extra `smax`) is not SMAC."""

environment = dict(
    type="SMAXEnv",
    map_name="3m",
    see_enemy_actions=True,
    walls_cause_death=True,
    attack_mode="closest",
)

# Other maps: --set environment.map_name=2s3z. VDN: --set agent.type=VDN.
exp = dict(train_steps=2_000_000, eval_step=100_000, eval_times=100, seed=0)

# One actor that steps 64 battles at once; an update of 64 sequences for every 160 steps.
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=8),
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, envs=64),
)

hyp = dict(
    lr=1e-3,
    lr_decay=8_000,  # updates over which lr falls to ...
    lr_final=1e-4,
    step_len=20,
    batch_size=64,  # sequences per update
    buffer_size=200_000,
    warmup_size=5_000,
    max_decay_step=250_000,  # epsilon falls over so many steps ...
    decay_updates=500,  # ... and updates, whichever takes longer
    td_lambda=0.6,
    target_tau=0.01,
)

model = dict(type="MLP", hidden=[128, 128])

agent = dict(type="QMIX")
