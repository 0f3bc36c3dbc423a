"""An operator against masks, with invented peers, and with real peers who reveal their keys.

The nodes run truthfl unchanged; their offers come from a finished job of four, for new keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attacks.finished_job import FinishedJob
from attacks.outcomes import Outcome, not_defended, outcome
from truthfl.federation.masking.participant import MaskingClient
from truthfl.federation.masking.shares import (
    from_fixed_point,
    group_of,
    mask_sum,
    mask_terms_document,
    member_of,
    own_mask,
    pair_key,
    round_context,
    round_key,
    seed_from,
    survivors_text,
    unlocked_share,
)
from truthfl.federation.participant.round_guard import AskedRound
from truthfl.home.record import RoundRecord, open_rounds
from truthfl.ledger.documents import answer, signed_offer
from truthfl.ledger.signing import AgreementKey, PrivateKey, list_key, new_key, public_line, read_key
from truthfl.ledger.terms import Offer

SIZE, LONGEST_ERROR, LOCKED = 650, 1e-6, 96
VICTIM = 0


def invented_peers(job: FinishedJob, attack: str) -> Outcome:
    """All peers are keys that the operator made: each acceptance has a valid signature, but nobody is behind it."""
    error = _error_of_recovered(job, job.folder.with_name(attack), known=(1, 2, 3))
    if error > LONGEST_ERROR:
        return outcome(attack, True, f"what the operator recovers differs by {error:.2g}")
    return not_defended(attack, f"the node cannot tell; the report is seen to {error:.1g}; people can compare keys")


def colluding_peers(job: FinishedJob, attack: str) -> Outcome:
    """Two of three peers reveal their keys and sign that the third is missing; one peer is not enough."""
    two = _error_of_recovered(job, job.folder.with_name(attack), known=(1, 2))
    one = _error_of_recovered(job, job.folder.with_name(f"{attack}-1"), known=(1,))
    if one <= LONGEST_ERROR or two > LONGEST_ERROR:
        return outcome(attack, one > LONGEST_ERROR, f"with two of them {two:.2g} is the error, with one {one:.2g}")
    return not_defended(attack, f"with two of three peers the report is seen to {two:.1g}; with one it is not")


def _error_of_recovered(job: FinishedJob, folder: Path, known: tuple[int, ...]) -> float:
    """The distance of the operator's reconstruction from the report, relative to the report's length.

    known  the peers, of 1, 2 and 3, whose agreement keys the operator has; the others are honest
    """
    operator = read_key(job.operator_key)
    offers, keys, papers = _people(job, operator)
    members = {index: member_of(paper["document"], 1.0) for index, paper in papers.items()}
    whole = group_of(offers[VICTIM], 1.0, list(members.values()))
    group = whole.digest
    nodes = {index: MaskingClient(offer, keys[index], folder / str(index)) for index, offer in offers.items()}
    for index, node in nodes.items():
        peers = [peer for peer in offers if peer != index]
        node.keep_terms(mask_terms_document(operator, offers[index], whole, peers, papers))
    victim, asked = nodes[VICTIM], AskedRound(0, 0, 0, "ab" * 32)
    change = np.random.default_rng(0).normal(size=SIZE).astype(np.float32)
    bound = offers[VICTIM].job.bound_of_round(0)
    change *= np.float32(0.5 * bound / np.linalg.norm(change))
    seen, locked = victim.masked(change, asked)
    _keep_round(victim, asked)
    context, missing = round_context(group, 0, 0, asked.received), [peer for peer in (1, 2, 3) if peer not in known]
    signed = victim.signed_list(0, missing) if len(missing) < 2 else {"missing": []}
    text = survivors_text(context, missing)
    signatures = {str(peer): list_key(keys[peer]).sign(text).hex() for peer in known}
    lines = {index: member.agreement_key for index, member in members.items()}
    pads = {peer: round_key(pair_key(keys[peer], lines[VICTIM], group), context) for peer in known}
    shares = {}
    for at, peer in enumerate((1, 2, 3)):
        if peer in known:
            lock = bytes.fromhex(locked[LOCKED * at : LOCKED * (at + 1)])
            pair = pair_key(keys[peer], lines[VICTIM], group)
            shares[peer] = unlocked_share(lock, pair, context, VICTIM, peer)
    if signed["missing"] == missing:
        for peer, told in victim.keys_of_missing(0, missing, signatures).items():
            pads[peer] = bytes.fromhex(told)
        shares[VICTIM] = int(victim.shares(0, missing, signatures, {})["shares"][str(VICTIM)], 16)
    rest = seen - mask_sum({lines[peer]: pad for peer, pad in pads.items()}, lines[VICTIM], SIZE)
    if len(shares) >= 3:
        rest -= own_mask(seed_from(dict(list(shares.items())[:3])), SIZE)
    recovered = from_fixed_point(rest, bound) / members[VICTIM].weight
    return float(np.abs(recovered - change).max() / np.linalg.norm(change))


def _people(
    job: FinishedJob, operator: PrivateKey
) -> tuple[dict[int, Offer], dict[int, AgreementKey], dict[int, Mapping[str, Any]]]:
    """Offers, agreement keys and acceptances of four people, by index; the offers come from the finished job."""
    made, keys, papers = {}, {}, {}
    for offer in job.agreement.offers:
        identity = new_key()
        client = replace(offer.client, public_key=public_line(identity))
        new = signed_offer(replace(offer, client=client, original=None, signature=""), operator)
        index = offer.client.index
        made[index], keys[index] = new, AgreementKey.generate()
        papers[index] = answer(new, identity, accepted=True, agreement=keys[index])
    return made, keys, papers


def _keep_round(node: MaskingClient, asked: AskedRound) -> None:
    """The node's own record of a sent report, with nobody missing yet."""
    with open_rounds(node.home, node.offer.hash) as rounds:
        rounds.append(RoundRecord(asked.round, asked.received, "cd" * 32, changed=asked.changed))


JUDGES: dict[str, tuple[str, Callable[[FinishedJob, str], Outcome]]] = {
    "masks-invented-peers": ("the operator names peers whom they invented", invented_peers),
    "masks-colluding-peers": ("two of a participant's three peers tell the operator their keys", colluding_peers),
}
