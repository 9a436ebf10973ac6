"""The one exception type for mistakes that a user can make and mend."""

USER_MISTAKE = 2
"""The exit status of a command that says so."""

SAYS_MISTAKE = 91
"""By which a worker process tells its launcher of one; 2 may be an environment's `os._exit(2)`."""

SAYS_SPENT = 92
"""The same of `BudgetSpent`: another process would fare no better."""


class TianJiError(Exception):
    """A mistake of the user's: where, what was found, what was wanted, what to do.

    The command line prints it without a traceback and exits with status 2. Whatever only a
    programmer of this package could get wrong is an `assert` instead.
    """


class BudgetSpent(Exception):
    """More broke than the run is allowed to mend: it ends as failed, with exit status 1."""
