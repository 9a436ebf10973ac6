"""Stores: how a buffer keeps trajectories and makes batches out of them."""
