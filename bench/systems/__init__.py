"""The paper's Figure 1: how five kinds of systems would spend the time of the same cores."""
