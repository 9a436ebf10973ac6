"""A real run under faults: a schedule from a seed, and what must hold checked after every fault."""
