"""What is seen of a run: metrics, live table, summary, sinks, trace, report."""
