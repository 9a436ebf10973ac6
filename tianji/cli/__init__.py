"""The verbs of the command line: a module for each, loaded only when its verb is used.

A module of a verb has `arguments(parser)`, which declares its options, and `run(options)`, which
does the work and returns the exit status. What the work is stands elsewhere: a verb is a thin skin.
"""
