"""The distribution strategy of the paper's section 3.3: measure, solve, write down, compare."""
