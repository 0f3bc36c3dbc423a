"""The signed terms of masked reports: who a participant's peers are, their weights, and how many must be in a sum.

The operator signs them after the audition, once per participant, and a participant's node accepts no others. What they
say of a peer is what the peer signed. The digest of the whole group goes into every key, so masks cancel only among
people who accepted the same terms of the job and were told the same.
"""

from __future__ import annotations

import math
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
from truthfl.ledger.documents import signed, terms_for_peers
from truthfl.ledger.round_terms import (
    FEWEST_MASKED,
    MOST_OF_ALL,
    MOST_OTHER_SUMS,
    MOST_SUMS,
    WEIGHT_ROUNDING,
    weights_fault,
)
from truthfl.ledger.signing import PrivateKey, signed_by
from truthfl.ledger.terms import Offer

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
class Group:
    """What must be the same for all whose reports are added up: masks cancel among them alone.

    terms    the digest of the job's terms
    total    the sum of the offers' weights of those who take part; weights are divided by it
    members  how many there are
    people   the digest of all members
    """

    terms: str
    total: float
    members: int
    people: str

    @property
    def digest(self) -> str:
        return digest(vars(self))


@dataclass(frozen=True)
class MaskTerms:
    """What a participant was promised about masks.

    group    the digest of the group
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


def group_of(offer: Offer, total: float, members: Sequence[Member]) -> Group:
    """The group of all these members, one of whom has this offer; their order does not matter."""
    ordered = sorted(members, key=lambda member: member.index)
    people = digest({"members": [list(vars(member).values()) for member in ordered]})
    return Group(offer.job_digest, total, len(ordered), people)


def member_of(document: Mapping[str, Any], total: float) -> Member:
    """The member with this acceptance, where the weights of all have this sum."""
    share = document["participation"]
    keys = document["agreement_key"], document["list_key"]
    return Member(document["index"], document["weight"] / total / share, *keys, share)


def mask_terms_document(
    key_: PrivateKey,
    offer: Offer,
    group: Group,
    peers: Sequence[int],
    acceptances: Mapping[int, Mapping[str, Any]],
) -> dict[str, Any]:
    """The signed terms for the participant with this offer, with the peers' signed acceptances.

    peers, acceptances  by index; acceptances of all
    """
    document = {
        "kind": "masks",
        "job": offer.job.name,
        "offer": offer.hash,
        "group": dict(vars(group)),
        "threshold": threshold(len(peers) + 1),
        "sums": [MOST_SUMS, MOST_OTHER_SUMS],
        "peers": {str(peer): digest(acceptances[peer]) for peer in peers},
    }
    return signed(key_, document) | {"acceptances": {str(peer): acceptances[peer] for peer in peers}}


def mask_terms_from(envelope: object, offer: Offer, own_keys: tuple[str, str]) -> MaskTerms:
    """The terms in an untrusted document; raise InputError unless the operator signed them and they fit this offer.

    own_keys  the participant's public agreement key and list key
    """
    try:
        document, acceptances = dict(envelope["document"]), dict(envelope["acceptances"])  # type: ignore[index]
        signature = str(envelope["signature"])  # type: ignore[index]
        named = {int(index): str(one) for index, one in dict(document["peers"]).items()}
        told = dict(document["group"])
        group = Group(str(told["terms"]), float(told["total"]), int(told["members"]), str(told["people"]))
    except (KeyError, TypeError, ValueError):
        raise InputError("the terms of the masks do not have their parts.") from None
    if not signed_by(offer.job.operator_key, document, signature):
        raise InputError("the operator of the accepted offer did not sign the terms of the masks.")
    if (document.get("kind"), document.get("job"), document.get("offer")) != ("masks", offer.job.name, offer.hash):
        raise InputError("the terms of the masks are for another offer.")
    if group.terms != offer.job_digest:
        raise InputError("the terms of the masks are for other terms of the job than those of the accepted offer.")
    if len(named) < FEWEST_MASKED - 1 or len(named) != min(MOST_PEERS, group.members - 1):
        raise InputError(f"the terms of the masks name {len(named)} peers of {group.members} people, which is too few.")
    if document.get("threshold") != threshold(len(named) + 1):
        raise InputError(
            f"by the terms of the masks {document.get('threshold')!r} reports make a sum; it must be more than half."
        )
    if document.get("sums") != [MOST_SUMS, MOST_OTHER_SUMS]:
        raise InputError(
            "the terms of the masks do not say how many sums are opened from one model, or another number."
        )
    if not 0.0 < group.total <= 1.0 + WEIGHT_ROUNDING:
        raise InputError(f"by the terms of the masks all weights have the sum {group.total:g}, which is not up to 1.")
    papers = {index: _signed_acceptance(acceptances.get(str(index)), one, offer) for index, one in named.items()}
    own_paper = {**terms_for_peers(offer), "agreement_key": own_keys[0], "list_key": own_keys[1]}
    own = member_of(own_paper, group.total)
    if not all(0 <= index <= MOST_INDEX for index in (own.index, *named)):  # the share of -1 would be the seed itself
        raise InputError("the terms of the masks number people otherwise than from 0 on.")
    peers: dict[int, Member] = {}
    people = {offer.client.public_key, *own_keys}
    for index, paper in papers.items():
        peer = member_of(paper, group.total)
        person = {paper["public_key"], peer.agreement_key, peer.list_key}
        if index == own.index or people & person:
            raise InputError("the same person is named twice in the terms of the masks.")
        if index != peer.index:
            raise InputError("the terms of the masks give a peer another number than the peer's acceptance.")
        people |= person
        if not offer.job.least_participation * (1.0 - WEIGHT_ROUNDING) <= peer.participation <= 1:
            raise InputError(
                f"by the terms of the masks a peer is asked in {peer.participation:g} of the rounds; by the offer "
                f"nobody is in less than {offer.job.least_participation:g}."
            )
        peers[index] = peer
    terms = MaskTerms(offer.job.name, offer.job.seed, group.digest, group.members, own, peers)
    known = [own, *peers.values()]
    shares = math.fsum(member.weight * member.participation for member in known)
    if shares > 1.0 + WEIGHT_ROUNDING or (terms.knows_everybody and shares < 1.0 - WEIGHT_ROUNDING):
        raise InputError(f"by the terms of the masks all weights have the sum {group.total:g}, which is not theirs.")
    fault = weights_fault([member.weight for member in known], MOST_OF_ALL)
    if fault is not None:
        raise InputError(f"by the terms of the masks {fault}, so a sum would show a report.")
    if terms.knows_everybody and group_of(offer, group.total, known) != group:
        raise InputError("the terms of the masks name other people than their digest.")
    return terms


def _signed_acceptance(acceptance: object, named: str, offer: Offer) -> Mapping[str, Any]:
    """The document of a peer's acceptance; raise InputError unless they signed it, and the same terms of the job."""
    document = acceptance.get("document") if isinstance(acceptance, Mapping) else None
    if not isinstance(acceptance, Mapping) or not isinstance(document, Mapping) or digest(acceptance) != named:
        raise InputError("a peer's signed acceptance is missing from the terms of the masks.")
    if (document.get("kind"), document.get("job")) != ("acceptance", offer.job.name):
        raise InputError("a peer's paper is no acceptance of an offer of this job.")
    person = document.get("public_key")
    if (
        not is_agreement_line(document.get("agreement_key"))
        or not is_list_line(document.get("list_key"))
        or not isinstance(person, str)
        or not signed_by(person, document, str(acceptance.get("signature")))
    ):
        raise InputError("a peer's acceptance lacks its keys, or is not signed by the person whom it names.")
    if document.get("terms") != offer.job_digest:
        raise InputError("a peer accepted other terms of the job than those of the accepted offer.")
    index, weight, share = (document.get(name) for name in ("index", "weight", "participation"))
    if type(index) is not int or not _is_share(weight) or not _is_share(share) or not share:
        raise InputError("a peer's acceptance does not say the peer's number, weight and participation.")
    return document


def _is_share(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1  # type: ignore[operator]
