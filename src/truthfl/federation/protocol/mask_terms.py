"""The signed terms of masked reports: who a participant's peers are, their weights, and how many must be in a sum.

The operator signs them after the audition, once per participant, and a participant's node accepts no others. The digest
of the whole group goes into every key, so masks cancel only among people who were told the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from truthfl.errors import InputError
from truthfl.federation.protocol.masking import MOST_PEERS, threshold
from truthfl.learning.draws import Purpose, bits_at, key, uniform
from truthfl.ledger.agreement_keys import is_agreement_line, is_list_line
from truthfl.ledger.canonical import digest
from truthfl.ledger.documents import signed
from truthfl.ledger.round_terms import FEWEST_MASKED
from truthfl.ledger.signing import PrivateKey, signed_by
from truthfl.ledger.terms import Offer

WEIGHT_ROUNDING = 1e-9
MOST_INDEX = 2**31


@dataclass(frozen=True)
class Member:
    """One of those whose reports are added up.

    weight         of their report in a round in which they are asked
    agreement_key  public; peers share masks by it
    list_key       public; it signs lists of who is missing
    participation  the probability that they are asked in a round
    """

    index: int
    weight: float
    agreement_key: str
    list_key: str
    participation: float


@dataclass(frozen=True)
class MaskTerms:
    """What a participant was promised about masks.

    group    the digest of all members
    members  how many there are
    peers    by index: those with whom the participant shares masks
    """

    job: str
    seed: int
    group: str
    members: int
    own: Member
    peers: Mapping[int, Member]

    def peers_in(self, round_: int) -> dict[int, Member]:
        """The peers who are asked in this round, as everybody can tell from the seed and the terms."""
        return {index: peer for index, peer in self.peers.items() if is_asked(self.seed, peer, round_)}

    @cached_property
    def knows_everybody(self) -> bool:
        """Whether all members are peers."""
        return self.members == len(self.peers) + 1


def is_asked(seed: int, member: Member, round_: int) -> bool:
    """Whether a member is asked in a round."""
    if member.participation >= 1.0:
        return True
    return bool(
        uniform(bits_at(key(seed, Purpose.AVAILABILITY, np.array([member.index]), round_), 0))[0] < member.participation
    )


def group_digest(job: str, members: Sequence[Member]) -> str:
    """The digest of all members; the order does not matter."""
    ordered = sorted(members, key=lambda member: member.index)
    return digest({"job": job, "members": [list(vars(member).values()) for member in ordered]})


def member_of(offer: Offer, weight: float, acceptance: Mapping[str, Any]) -> Member:
    """The member with this offer and this signed acceptance."""
    document = acceptance["document"]
    keys = str(document["agreement_key"]), str(document["list_key"])
    return Member(offer.client.index, weight, *keys, offer.client.participation)


def mask_terms_document(
    key_: PrivateKey,
    offer: Offer,
    group: str,
    members: Mapping[int, Member],
    peers: Sequence[int],
    acceptances: Mapping[int, Mapping[str, Any]],
) -> dict[str, Any]:
    """The signed terms for the participant with this offer, with the peers' signed acceptances.

    members, acceptances  by index, of all
    """
    document = {
        "kind": "masks",
        "job": offer.job.name,
        "offer": offer.hash,
        "group": group,
        "members": len(members),
        "weight": members[offer.client.index].weight,
        "threshold": threshold(len(peers) + 1),
        "peers": {
            str(peer): {
                "weight": members[peer].weight,
                "participation": members[peer].participation,
                "acceptance": digest(acceptances[peer]),
            }
            for peer in peers
        },
    }
    return signed(key_, document) | {"acceptances": {str(peer): acceptances[peer] for peer in peers}}


def mask_terms_from(envelope: object, offer: Offer, own_keys: tuple[str, str]) -> MaskTerms:
    """The terms in an untrusted document; raise InputError unless the operator signed them and they fit this offer.

    own_keys  the participant's public agreement key and list key
    """
    try:
        document, acceptances = dict(envelope["document"]), dict(envelope["acceptances"])  # type: ignore[index]
        signature = str(envelope["signature"])  # type: ignore[index]
        named = {int(index): dict(one) for index, one in dict(document["peers"]).items()}
        weight, members, group = float(document["weight"]), int(document["members"]), str(document["group"])
    except (KeyError, TypeError, ValueError):
        raise InputError("the terms of the masks do not have their parts.") from None
    if not signed_by(offer.job.operator_key, document, signature):
        raise InputError("the operator of the accepted offer did not sign the terms of the masks.")
    if (document.get("kind"), document.get("job"), document.get("offer")) != ("masks", offer.job.name, offer.hash):
        raise InputError("the terms of the masks are for another offer.")
    if len(named) < FEWEST_MASKED - 1 or len(named) != min(MOST_PEERS, members - 1):
        raise InputError(f"the terms of the masks name {len(named)} peers of {members} people, which is too few.")
    if document.get("threshold") != threshold(len(named) + 1):
        raise InputError(
            f"by the terms of the masks {document.get('threshold')!r} reports make a sum; it must be more than half."
        )
    least, most = offer.client.weight, 1.0 / offer.client.participation
    if not least * (1.0 - WEIGHT_ROUNDING) <= weight <= most * (1.0 + WEIGHT_ROUNDING):
        raise InputError(f"the report's weight is {weight:g}; by the offer it is from {least:g} to {most:g}.")
    own = Member(offer.client.index, weight, *own_keys, offer.client.participation)
    if not all(0 <= index <= MOST_INDEX for index in (own.index, *named)):  # the share of -1 would be the seed itself
        raise InputError("the terms of the masks number people otherwise than from 0 on.")
    peers: dict[int, Member] = {}
    people = {offer.client.public_key, *own_keys}
    for index, one in named.items():
        acceptance = acceptances.get(str(index))
        person, keys = _signed_acceptance(acceptance, one, offer)
        if index == own.index or people & {person, *keys}:
            raise InputError("the same person is named twice in the terms of the masks.")
        people |= {person, *keys}
        share, peer_weight = one.get("participation"), one.get("weight")
        if not isinstance(share, int | float) or not isinstance(peer_weight, int | float):
            raise InputError("the terms of the masks do not say a peer's weight and participation.")
        if not offer.job.least_participation * (1.0 - WEIGHT_ROUNDING) <= share <= 1:
            raise InputError(
                f"by the terms of the masks a peer is asked in {share:g} of the rounds; by the offer nobody is in less "
                f"than {offer.job.least_participation:g}."
            )
        peers[index] = Member(index, peer_weight, *keys, share)
    terms = MaskTerms(offer.job.name, offer.job.seed, group, members, own, peers)
    if terms.knows_everybody and group_digest(offer.job.name, [own, *peers.values()]) != group:
        raise InputError("the terms of the masks name other people than their digest.")
    return terms


def _signed_acceptance(acceptance: object, named: Mapping[str, Any], offer: Offer) -> tuple[str, tuple[str, str]]:
    """The identity of a peer, and their two public keys; raise InputError unless they signed."""
    document = acceptance.get("document") if isinstance(acceptance, Mapping) else None
    if (
        not isinstance(acceptance, Mapping)
        or not isinstance(document, Mapping)
        or digest(acceptance) != named.get("acceptance")
    ):
        raise InputError("a peer's signed acceptance is missing from the terms of the masks.")
    if (document.get("kind"), document.get("job")) != ("acceptance", offer.job.name):
        raise InputError("a peer's paper is no acceptance of an offer of this job.")
    identity, line, list_line = str(document.get("public_key")), document.get("agreement_key"), document.get("list_key")
    if (
        not is_agreement_line(line)
        or not is_list_line(list_line)
        or not signed_by(identity, document, str(acceptance.get("signature")))
    ):
        raise InputError("a peer's acceptance lacks its keys, or is not signed by the person whom it names.")
    return identity, (str(line), str(list_line))
