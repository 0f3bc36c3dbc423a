"""Secure aggregation: fixed point, masks that cancel in the sum, and shares of each participant's own mask.

The scheme is that of Bonawitz et al. (2017), with the neighbours of Bell et al. (2020). A report's weighted change is
written in fixed point modulo 2**32, in units of bound / 2**30, so a sum of n reports is exact to n/2 units. Two masks
hide it. For each peer there is a shared mask, which one of the two adds and the other subtracts. And there is a
participant's own mask, whose seed is shared out among the peers so that `threshold` of them can give it back.

In a round a peer gives back either the mask that it shares with somebody (if that participant is missing) or its share
of somebody's own mask (if not), never both: without both, no report can be read on its own.

Everything follows from long-term keys and the `context` of a round, so a participant whose computer was restarted makes
the same bytes again. These are pure functions, used by both sides.
"""

from __future__ import annotations

import hmac
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.learning.model import Params
from truthfl.ledger.agreement_keys import AgreementKey, derived_key, shared_secret
from truthfl.ledger.round_terms import FEWEST_MASKED

UNITS = 2**30  # of the bound
MOST_PEERS = 30
ROUNDING = 1e-6  # a sum may be longer than the bound by this share
MOST_LEFT = 2**24  # bytes of streams that wait for the other peer
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
    """The key that two peers share; `other` is the public agreement key, `group` the digest of who takes part how.

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
    """Streams of peers in one process: whoever asks first leaves one for the other, who may come too late for it."""

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
    for other, key in round_keys.items():
        mask = np.frombuffer(stream(key, 4 * size), dtype="<u4")
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
    """A share for its holder alone, and a check by which anybody recognizes the share once it is told."""
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
    """What participants sign before they tell anything: that in this round these, and nobody else, are missing."""
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
