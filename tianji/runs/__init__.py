"""A run's life: launch, folder, checkpoints, resume and outcome."""
