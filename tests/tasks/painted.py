"""The echo task with something to look at, and some that cannot be filmed."""

import numpy as np
from echo import Echo


class Painted(Echo):
    """One bright column for the picture that is shown; an odd number of rows and columns."""

    def render(self):
        picture = np.zeros((31, 8 * self.n + 1, 3), np.uint8)
        picture[:, 8 * self.answer : 8 * self.answer + 8, self.t % 3] = 255
        return picture


class Growing(Painted):
    """Its pictures become larger."""

    def render(self):
        return np.zeros((30 + 2 * self.t, 40, 3), np.uint8)


class Grey(Echo):
    """Draws numbers that are no picture."""

    def render(self):
        return np.zeros((31, 40))


class Locked(Echo):
    """Fails when it should draw."""

    def render(self):
        raise RuntimeError("the paint has dried up")
