"""Translates an offer's signed English words, for terms and lies, into sentences of the catalogues.

Words are translated only if this version of truthfl writes exactly these words for the contract. Other words are shown
as they were signed. An offer states each lie in the short form of `adversary.strategy`, such as "20% labeled, rest at
random, batch × 0.5"; this module parses that form.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from truthfl.ledger.settlement import BY_EXPECTED_LOSS, BY_LOWER_LOSS, BY_REPORTS, BY_ROUNDS
from truthfl.ledger.terms import Offer
from truthfl.page.catalogue import Message

EARLY_END = {
    BY_REPORTS: "terms.early_end_fixed",
    BY_ROUNDS: "terms.early_end_by_rounds",
    BY_LOWER_LOSS: "terms.early_end_lower_loss",
    BY_EXPECTED_LOSS: "terms.early_end",
}


def signed_terms_view(offer: Offer) -> dict[str, Any]:
    """Messages for the formula and for dropping out (a list each, empty if there are none); the names of pay terms.

    lies   the signed words of the lies that were tried
    """
    return {
        "formula": [asdict(message) for message in formula_messages(offer)],
        "dropping_out": [asdict(message) for message in dropping_out_messages(offer)],
        "lies": [{"kind": lie.kind, "words": lie.words} for lie in offer.client.lies],
    }


def formula_messages(offer: Offer) -> list[Message]:
    """The formula in words."""
    from truthfl.contracts.registry import find_contract

    known = find_contract(offer.job.contract)
    return [Message(key) for key in known.formula_keys] if known.formula == offer.job.formula else []


def dropping_out_messages(offer: Offer) -> list[Message]:
    """What happens if the participant drops out, or the operator ends the job."""
    from truthfl.contracts.registry import find_contract

    known, told = find_contract(offer.job.contract), offer.job.dropping_out
    rest = told.removeprefix(known.dropping_out).strip()
    if not known.dropping_out_key or not told.startswith(known.dropping_out) or (rest and rest not in EARLY_END):
        return []
    return [Message(known.dropping_out_key), *([Message(EARLY_END[rest])] if rest else [])]


NUMBER = r"([0-9.]+(?:e[-+]?[0-9]+)?)"
PARTS = (  # words, key in the catalogues, names of the numbers
    (rf"labels × {NUMBER}", "lie.more_labels", ("number",)),
    (rf"{NUMBER}% labeled", "lie.labeled", ("percent",)),
    ("no labels", "lie.no_labels", ()),
    ("all labeled", "lie.all_labeled", ()),
    ("rest at random", "lie.rest_random", ()),
    ("rest left out", "lie.rest_left_out", ()),
    ("rest by the common model", "lie.rest_common_model", ()),
    ("rest by their own model", "lie.rest_own_model", ()),
    ("rest by nearest neighbour", "lie.rest_nearest", ()),
    ("solo model trained longer", "lie.solo_longer", ()),
    ("solo model with more penalty", "lie.solo_penalty", ()),
    ("solo model with shifts", "lie.solo_shifts", ()),
    (rf"echo × {NUMBER}", "lie.echo", ("number",)),
    (rf"echo × {NUMBER} with noise × {NUMBER}", "lie.echo_noise", ("number", "noise")),
    (rf"echo × {NUMBER} with momentum {NUMBER}", "lie.echo_momentum", ("number", "momentum")),
    (
        rf"echo × {NUMBER} with momentum {NUMBER} with noise × {NUMBER}",
        "lie.echo_momentum_noise",
        ("number", "momentum", "noise"),
    ),
    (rf"garbage × {NUMBER}", "lie.garbage", ("number",)),
    ("last bit", "lie.last_bit", ()),
    ("sends nothing", "lie.nothing", ()),
    (rf"batch × {NUMBER}", "lie.batch", ("number",)),
    (rf"report × {NUMBER}", "lie.report", ("number",)),
    (rf"report × {NUMBER} to {NUMBER}", "lie.report_growing", ("number", "last")),
    ("the truth", "lie.truth", ()),
)


def lie_form(words: str) -> dict[str, Any]:
    """A lie's words for the browser, as a list of messages; an unknown part stays in English."""
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
