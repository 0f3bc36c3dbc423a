"""Commit and reveal: the test draw is fixed before training by a hash that tells nothing, and opened after it.

Looks at `canonical` alone.
"""

from __future__ import annotations

import secrets
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from truthfl.ledger.canonical import digest

SECRET_BYTES = 32


def new_secret() -> str:
    """What nobody can guess, in hexadecimal."""
    return secrets.token_hex(SECRET_BYTES)


def secret_of(seed: int) -> str:
    """The same secret for the same seed, for jobs that are to be repeated; who knows the seed knows the draw."""
    return sha256(f"truthfl test draw {seed}".encode()).hexdigest()


def test_set_digest(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> str:
    """A hash of the test set: its shape, its pictures, its labels."""
    whole = sha256(repr(images.shape).encode())
    whole.update(np.ascontiguousarray(images).tobytes())
    whole.update(np.ascontiguousarray(labels, dtype="<i8").tobytes())
    return whole.hexdigest()


def commitment(test_set: str, samples: int, secret: str) -> str:
    """What is published before training."""
    return digest({"test_set": test_set, "samples": samples, "secret": secret})


def draw_seed(secret: str) -> int:
    """The seed of the test draw ξ that this secret stands for."""
    return int.from_bytes(sha256(bytes.fromhex(secret)).digest()[:8], "big")
