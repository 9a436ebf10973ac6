"""Versions of this package, of Python and of the libraries that count."""

from __future__ import annotations

import platform
from functools import cache

from tianji import __version__


@cache
def versions() -> dict[str, str | None]:
    """Of this package, of Python and of the libraries that count; imports none of them."""
    from importlib import metadata  # late: it takes as long as all the rest of this module

    found: dict[str, str | None] = {"tianji": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "gymnasium"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found
