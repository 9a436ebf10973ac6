"""TianJi: distributed reinforcement-learning training in which no role waits for another."""

__version__ = "0.1.0"
