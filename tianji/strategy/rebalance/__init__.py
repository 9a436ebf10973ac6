"""The balance at run time: paused actors, more threads, a buffer with a thread of its own."""
