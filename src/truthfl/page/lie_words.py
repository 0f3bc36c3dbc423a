"""The words of a lie in an offer, part by part in sentences of the catalogues.

An offer says what was tried in a few words and numbers of `adversary.lie_point`, such as "20% labeled, rest at random,
batch × 0.5". These stand in the signed offer; here they are read.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from truthfl.page.catalogue import Message

NUMBER = r"([0-9.]+(?:e[-+]?[0-9]+)?)"
PARTS = (  # words, key in the catalogues, names of the numbers
    (rf"labels × {NUMBER}", "lie.more_labels", ("number",)),
    (rf"{NUMBER}% labeled", "lie.labeled", ("percent",)),
    ("no labels", "lie.no_labels", ()),
    ("all labeled", "lie.all_labeled", ()),
    ("rest at random", "lie.rest_random", ()),
    ("rest left out", "lie.rest_left_out", ()),
    ("rest by the common model", "lie.rest_common_model", ()),
    ("rest by her own model", "lie.rest_own_model", ()),
    ("rest by nearest neighbour", "lie.rest_nearest", ()),
    ("solo model trained longer", "lie.solo_longer", ()),
    ("solo model with more penalty", "lie.solo_penalty", ()),
    ("solo model with shifts", "lie.solo_shifts", ()),
    (rf"echo × {NUMBER}", "lie.echo", ("number",)),
    (rf"echo × {NUMBER} with noise × {NUMBER}", "lie.echo_noise", ("number", "noise")),
    (rf"garbage × {NUMBER}", "lie.garbage", ("number",)),
    ("last bit", "lie.last_bit", ()),
    ("sends nothing", "lie.nothing", ()),
    (rf"batch × {NUMBER}", "lie.batch", ("number",)),
    (rf"report × {NUMBER}", "lie.report", ("number",)),
    (rf"report × {NUMBER} to {NUMBER}", "lie.report_growing", ("number", "last")),
    ("the truth", "lie.truth", ()),
)


def lie_form(words: str) -> dict[str, Any]:
    """What the browser gets of a lie's words: a list of messages; a part that is not known stays in English."""
    return {"list": [_part(part) for part in words.split(", ")], "separator": ", "}


def _part(words: str) -> dict[str, Any]:
    for pattern, key, names in PARTS:
        match = re.fullmatch(pattern, words)
        if match:
            try:
                return asdict(Message(key, dict(zip(names, map(float, match.groups()), strict=True))))
            except ValueError:
                break
    return {"english": words}
