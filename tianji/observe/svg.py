"""Pieces that every SVG drawing of this package is made of."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

INK = "#222222"


def page(width: int, height: int, parts: Iterable[str]) -> str:
    """A whole file: the parts on white."""
    size = f'width="{width}" height="{height}"'
    style = f'font-family="sans-serif" font-size="12" fill="{INK}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>'
    return "\n".join(
        [head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""]
    )


def text(
    x: float, y: float, words: str, anchor: str = "start", size: int = 12, weight: str = "normal"
) -> str:
    """Words that begin, end or have their middle at a point."""
    how = f'text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"'
    return f'<text x="{x:g}" y="{y:g}" {how}>{escape(words)}</text>'


def rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    """A filled box."""
    return f'<rect x="{x:.2f}" y="{y:g}" width="{width:.2f}" height="{height:g}" fill="{colour}"/>'
