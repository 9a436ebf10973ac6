"""Engines: who runs the roles, and the only ones who may wait."""
