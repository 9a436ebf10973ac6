"""The performance analysis of the paper's section 3.3: short measurements of a job's own roles."""

MOST_SECONDS = 20.0  # of a whole probe, unless it is given another limit
