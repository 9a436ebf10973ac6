"""How fast messages travel: the paper's Figure 5 for every transport, beside what limits it."""
