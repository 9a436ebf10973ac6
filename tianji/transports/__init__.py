"""Transports: what carries messages, within a process or between processes."""
