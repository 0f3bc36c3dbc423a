"""Secure aggregation: signed terms, fixed point, masks that cancel in the sum, shares of each participant's own mask.

The scheme is by Bonawitz et al. (2017), with the neighbours of Bell et al. (2020). A report's weighted change is
written in fixed point modulo 2**32, in units of bound / 2**30. So a sum of n reports is exact to n/2 units. Two masks
hide it. For each peer there is a shared mask, which one of the two adds and the other subtracts. There is also a
participant's own mask. Its seed is shared among the peers so that `threshold` of them can recover it. In a round a peer
reveals either the mask that it shares with somebody (if that participant is missing) or its share of somebody's own
mask (if not), never both. Without both, no report can be read on its own.

Everything follows from long-term keys and the `context` of a round, so a restarted computer makes the same bytes. The
operator signs the terms after the audition, once per participant, and a node accepts no others. The digest of the whole
group goes into every key, so masks cancel only among people who were told the same group and the same terms.
"""

from __future__ import annotations

import hmac
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.learning.models.model import Params
from truthfl.learning.training.draws import Purpose, bits_at, key, uniform
from truthfl.ledger.canonical import digest
from truthfl.ledger.documents import signed, terms_for_peers
from truthfl.ledger.signing import (
    AgreementKey,
    PrivateKey,
    derived_key,
    is_agreement_line,
    is_list_line,
    shared_secret,
    signed_by,
)
from truthfl.ledger.terms import (
    FEWEST_MASKED,
    MOST_OF_ALL,
    MOST_OTHER_SUMS,
    MOST_SUMS,
    WEIGHT_ROUNDING,
    Offer,
    weights_fault,
)

UNITS = 2**30  # of the bound
MOST_PEERS = 30
ROUNDING = 1e-6  # a sum may be longer than the bound by this share
MOST_LEFT = 2**24  # bytes of streams that are kept for the other peer
PRIME = 2**255 - 19  # shares are numbers modulo this one
SEED_BYTES = 31  # so that a seed is below PRIME
SHARE_BYTES, CHECK_BYTES = 32, 16
Masked = NDArray[np.uint32]


def neighbours(indices: Iterable[int]) -> dict[int, list[int]]:
    """By participant: their peers, all others or MOST_PEERS of them; if i is a peer of j, then j is one of i."""
    order = sorted(indices)
    count = len(order)
    if count <= MOST_PEERS + 1:
        return {own: [other for other in order if other != own] for own in order}
    steps = [step for step in range(-MOST_PEERS // 2, MOST_PEERS // 2 + 1) if step]
    return {own: sorted(order[(at + step) % count] for step in steps) for at, own in enumerate(order)}


def threshold(count: int) -> int:
    """How many of a participant and their peers, `count` in all, must be in a sum: more than half, at least three."""
    return max(FEWEST_MASKED, count // 2 + 1)


def in_fixed_point(change: Params, weight: float, bound: float) -> Masked:
    """The change, shortened to the bound if it is longer, times the weight, in fixed point."""
    wide = change.astype(np.float64)
    length = math.sqrt(float(np.square(wide).sum()))
    factor = weight * min(1.0, bound / length if length else 1.0) * (UNITS / bound)
    return np.asarray(np.rint(wide * factor).astype(np.int64).astype(np.uint32))


def from_fixed_point(total: Masked, bound: float) -> NDArray[np.float64]:
    """The sum of weighted changes that these numbers stand for."""
    return total.astype(np.int32).astype(np.float64) * (bound / UNITS)


def is_within(change: NDArray[np.float64], weight: float, bound: float) -> bool:
    """Whether a sum of reports with this total weight is no longer than those of honest participants can be."""
    return math.sqrt(float(np.square(change).sum())) <= weight * bound * (1.0 + ROUNDING) + len(change) * bound / UNITS


def pair_key(own: AgreementKey, other: str, group: str) -> bytes:
    """The key that two peers share; `other` is the public agreement key, `group` the digest of all members.

    Two participants to whom the operator named another group have another key, and their masks do not cancel.
    """
    return derived_key(shared_secret(own, other), "truthfl masks", group)


def round_context(group: str, round_: int, changed: int, model: str) -> bytes:
    """What all keys of a round follow from: the group, the round, and the model that it starts from.

    changed  the number of earlier rounds that changed the model, by which reports are scaled
    """
    return sha256(f"{group}\0{round_}\0{changed}\0{model}".encode()).digest()


def round_key(pair: bytes, context: bytes) -> bytes:
    """The key of the mask that two peers share in one round."""
    return hmac.digest(pair, b"mask" + context, "sha256")


def mask_stream(key: bytes, length: int) -> bytes:
    """The first bytes of AES-256 in counter mode; a key is used once, so the counter may start from 0."""
    return Cipher(AES(key), _FROM_ZERO).encryptor().update(bytes(length))


class SharedStreams:
    """Streams of peers in one process: the first caller leaves a stream for the other peer, for a limited time."""

    def __init__(self) -> None:
        self._left: OrderedDict[bytes, bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._left)

    def mask_stream(self, key: bytes, length: int) -> bytes:
        """As the function of the same name."""
        left = self._left.pop(key, None)
        if left is not None and len(left) == length:
            return left
        stream = self._left[key] = mask_stream(key, length)
        while len(self._left) * length > MOST_LEFT:
            with suppress(KeyError):
                self._left.popitem(last=False)
        return stream


def mask_sum(
    round_keys: Mapping[str, bytes], own: str, size: int, stream: Callable[[bytes, int], bytes] = mask_stream
) -> Masked:
    """The sum of the masks that a participant shares: those with greater peers are added, with lesser ones subtracted.

    round_keys  by the peers' public agreement keys
    own         the participant's public agreement key
    size        the number of parameters
    """
    total = np.zeros(size, dtype=np.uint32)
    for other, shared in round_keys.items():
        mask = np.frombuffer(stream(shared, 4 * size), dtype="<u4")
        if own < other:
            total += mask
        else:
            total -= mask
    return total


def own_seed(secret: bytes, context: bytes) -> int:
    """The seed of a participant's own mask in a round."""
    return int.from_bytes(hmac.digest(secret, b"seed" + context, "sha256")[:SEED_BYTES], "big")


def own_mask(seed: int, size: int) -> Masked:
    """The mask with this seed."""
    key = sha256(b"truthfl own mask" + seed.to_bytes(SHARE_BYTES, "big")).digest()
    return np.frombuffer(mask_stream(key, 4 * size), dtype="<u4")


def shares_of(secret: bytes, context: bytes, holders: Sequence[int], needed: int) -> dict[int, int]:
    """Shamir's shares of the seed that `own_seed` gives, by holder; any `needed` of them give it back.

    The polynomial's coefficients follow from the secret and the round, so that asked again the shares are the same.
    """
    coefficients = [own_seed(secret, context)]
    for power in range(1, needed):
        drawn = hmac.digest(secret, b"coefficient%d" % power + context, "sha256")
        coefficients.append(int.from_bytes(drawn, "big") % PRIME)
    return {holder: _polynomial(coefficients, holder + 1) for holder in holders}


def seed_from(shares: Mapping[int, int]) -> int:
    """The seed whose shares these are, as many as are needed; raise InputError if it is none."""
    seed = 0
    for holder, share in shares.items():
        above = below = 1
        for other in shares:
            if other != holder:
                above = above * (other + 1) % PRIME
                below = below * (other - holder) % PRIME
        seed += share * above * pow(below, -1, PRIME)
    seed %= PRIME
    if seed >= 256**SEED_BYTES:
        raise InputError("the shares do not fit each other.")
    return seed


def locked_share(share: int, pair: bytes, context: bytes, owner: int, holder: int) -> bytes:
    """A share that only its holder can read, and a check that identifies the share once it is revealed."""
    content = share.to_bytes(SHARE_BYTES, "big")
    return _xor(content, _share_pad(pair, context, owner, holder)) + share_check(share, context, owner, holder)


def unlocked_share(locked: bytes, pair: bytes, context: bytes, owner: int, holder: int) -> int:
    """The share for this holder; raise InputError if it does not have its check."""
    content = _xor(locked[:SHARE_BYTES], _share_pad(pair, context, owner, holder))
    share = int.from_bytes(content, "big")
    if len(locked) != SHARE_BYTES + CHECK_BYTES or share_check(share, context, owner, holder) != locked[SHARE_BYTES:]:
        raise InputError(f"the share of participant {owner} does not fit.")
    return share


def share_check(share: int, context: bytes, owner: int, holder: int) -> bytes:
    """The check of a share."""
    about = b"%d>%d:" % (owner, holder)
    return sha256(about + context + share.to_bytes(SHARE_BYTES, "big")).digest()[:CHECK_BYTES]


def survivors_text(context: bytes, missing: Iterable[int]) -> bytes:
    """The text that participants sign before they reveal anything: that exactly these are missing in this round."""
    return b"truthfl survivors" + context + b":" + b",".join(b"%d" % index for index in sorted(missing))


def _polynomial(coefficients: Sequence[int], place: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * place + coefficient) % PRIME
    return value


def _share_pad(pair: bytes, context: bytes, owner: int, holder: int) -> bytes:
    return hmac.digest(pair, b"share%d>%d:" % (owner, holder) + context, "sha256")


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(SHARE_BYTES, "big")


_FROM_ZERO = CTR(bytes(16))


MOST_INDEX = 2**31


@dataclass(frozen=True)
class Member:
    """A participant whose reports are added up.

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
    """The values that all members must share: masks cancel only among participants with the same values.

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
    """The promises to a participant about masks.

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
        """The peers who are asked in this round; this follows from the seed and the terms."""
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
    """The group of all these members, one of whom has this offer. Their order does not matter."""
    ordered = sorted(members, key=lambda member: member.index)
    people = digest({"members": [list(vars(member).values()) for member in ordered]})
    return Group(offer.job_digest, total, len(ordered), people)


def member_of(document: Mapping[str, Any], total: float) -> Member:
    """The member with this acceptance, for this sum of all weights."""
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
