"""The paper's section 3.3: probe, plan, re-balance, simulate."""
