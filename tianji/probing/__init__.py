"""The performance analysis of the paper's section 3.3: short measurements of a job's own roles."""
