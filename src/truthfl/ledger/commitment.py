"""Commit and reveal: a hash of test set and secret is published before training, the secret itself after it.

The secret determines which test samples are drawn. Clients commit themselves likewise to the models that they train
alone.
"""

from __future__ import annotations

import secrets
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from truthfl.ledger.canonical import digest

SECRET_BYTES = 32


def new_secret() -> str:
    """A random secret, in hexadecimal."""
    return secrets.token_hex(SECRET_BYTES)


def secret_from_seed(seed: int) -> str:
    """The same secret for the same seed, for repeatable jobs. The seed must be kept secret as well."""
    return sha256(f"truthfl test draw {seed}".encode()).hexdigest()


def test_set_digest(features: NDArray[np.uint8 | np.float32], labels: NDArray[np.int64]) -> str:
    """SHA-256 of the test set: the type of its features unless they are bytes, their shape, features, labels."""
    kind = "" if features.dtype == np.uint8 else features.dtype.str
    hasher = sha256(f"{kind}{features.shape!r}".encode())
    hasher.update(np.ascontiguousarray(features).tobytes())
    hasher.update(np.ascontiguousarray(labels, dtype="<i8").tobytes())
    return hasher.hexdigest()


def commitment(test_set: str, samples: int, secret: str) -> str:
    """The hash that is published before training; `test_set` is the test set's digest, `samples` the number drawn."""
    return digest({"test_set": test_set, "samples": samples, "secret": secret})


def draw_seed(secret: str) -> int:
    """The seed of the test draw ξ, derived from the secret."""
    return int.from_bytes(sha256(bytes.fromhex(secret)).digest()[:8], "big")


def audition_commitment(offer: str, salt: str, model: NDArray[np.float32]) -> str:
    """A client's commitment to the model that she trained alone: a hash of the offer's hash, her salt and the model."""
    hasher = sha256(bytes.fromhex(offer) + bytes.fromhex(salt))
    hasher.update(np.ascontiguousarray(model, dtype="<f4").tobytes())
    return hasher.hexdigest()
