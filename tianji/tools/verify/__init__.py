"""Whether distributed training is as good as serial training, from runs with the same seeds."""
