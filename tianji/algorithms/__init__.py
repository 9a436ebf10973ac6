"""Algorithms: what they have in common, and one file for each."""
