"""A QR code in characters, for a terminal with dark or light background."""

from __future__ import annotations

QUIET = 4  # modules around the code that must be light
LIGHT_ON_DARK = "\x1b[38;5;231;48;5;16m"  # white and black that no colour scheme changes
RESET = "\x1b[0m"
HALVES = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}  # of upper and lower module: 1 is dark


def qr_matrix(text: str) -> list[list[int]]:
    """The modules of the code with its light border, row by row: 1 is dark."""
    import segno

    return [list(map(int, row)) for row in segno.make_qr(text, error="l").matrix_iter(border=QUIET)]


def qr_lines(text: str, *, colours: bool) -> list[str]:
    """The code with two modules in each character, light ones drawn.

    colours  sets white and black by escape codes; without them, the terminal's background must be dark
    """
    rows = qr_matrix(text)
    if len(rows) % 2:
        rows.append([0] * len(rows[0]))
    lines = [
        "".join(HALVES[pair] for pair in zip(upper, lower, strict=True))
        for upper, lower in zip(rows[::2], rows[1::2], strict=True)
    ]
    return [f"{LIGHT_ON_DARK}{line}{RESET}" for line in lines] if colours else lines
