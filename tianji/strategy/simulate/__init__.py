"""A discrete-event model of a run: what a split of the cores would give, without having them."""
