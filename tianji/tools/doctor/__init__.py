"""The doctor: what this machine offers to a run, what it lacks, and what to do about it."""
