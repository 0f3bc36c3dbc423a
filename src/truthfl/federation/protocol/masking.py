"""Secure aggregation: reports in fixed point, and masks that cancel in the sum. Pure functions, used by both sides.

A report's weighted change is written in fixed point modulo 2**32, in units of bound / 2**30: as long as a float32, and
no sum of honest reports overflows. Rounding changes a sum of n reports by at most n/2 units per parameter. Two peers
share a key for each round; the stream of AES-256 in counter mode under it is added by one and subtracted by the other.
If both are of one process, as in simulations, it is computed once (`SharedStreams`).
Imports `learning.model` and the ledger's `agreement_keys`.
"""

from __future__ import annotations

import hmac
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from truthfl.learning.model import Params
from truthfl.ledger.agreement_keys import AgreementKey, derived_key, shared_secret

UNITS = 2**30  # of the bound
MOST_PEERS = 30
ROUNDING = 1e-6  # a sum may be longer than the bound by this share
MOST_LEFT = 2**24  # bytes of streams that wait for the other peer
Masked = NDArray[np.uint32]


def neighbours(indices: Iterable[int]) -> dict[int, list[int]]:
    """By client: the peers with whom she shares masks, all others or MOST_PEERS of them, alike for both sides."""
    order = sorted(indices)
    count = len(order)
    if count <= MOST_PEERS + 1:
        return {own: [other for other in order if other != own] for own in order}
    steps = [step for step in range(-MOST_PEERS // 2, MOST_PEERS // 2 + 1) if step]
    return {own: sorted(order[(at + step) % count] for step in steps) for at, own in enumerate(order)}


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
    """Whether a sum of reports with this total weight is no longer than those of honest clients can be."""
    return math.sqrt(float(np.square(change).sum())) <= weight * bound * (1.0 + ROUNDING) + len(change) * bound / UNITS


def pair_key(own: AgreementKey, other: str, job: str) -> bytes:
    """The key that two peers share in this job; `other` is the other's public agreement key."""
    return derived_key(shared_secret(own, other), "truthfl masks", job)


def round_key(pair: bytes, round_: int, attempt: int, model: str) -> bytes:
    """The key of two peers in one round; `model` is the digest of the common model that the round starts from."""
    return hmac.digest(pair, f"{round_}\0{attempt}\0{model}".encode(), "sha256")


def mask_stream(key: bytes, length: int) -> bytes:
    """The first bytes of AES-256 in counter mode; a key is used once, so the counter may start from 0."""
    return Cipher(AES(key), _FROM_ZERO).encryptor().update(bytes(length))


class SharedStreams:
    """Streams of peers in one process: who asks first leaves one for the other, who may come too late for it."""

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
    """The sum of a client's masks: those with greater peers are added, those with lesser ones subtracted.

    round_keys  by the peers' public agreement keys
    own         her own public agreement key
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


_FROM_ZERO = CTR(bytes(16))
