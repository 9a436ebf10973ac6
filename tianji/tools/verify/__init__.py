"""Verify: serial against distributed training, with what is taken for what nobody has said.

Loads nothing, so that help is quick.
"""

SEEDS = 10
STEPS = 150_000  # of each run, or what the configuration asks for if that is less
QUICK_SEEDS = 3
QUICK_STEPS = 30_000
MARGIN = 0.1  # of what serial training gained in return
STEPS_MARGIN = 0.25  # of the steps that serial training took to the target
