"""Random numbers that nobody can guess who does not know their key: AES in counter mode.

Private training draws batches and noise by them, masked reports their batches.

A participant's key is a secret of hers. In simulations it follows from the seed, so that a run can be repeated.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

DrawKey = bytes
_UNIFORM, _NORMAL = 0, 1  # streams of one key


def simulated_key(seed: int) -> DrawKey:
    """The key of a simulation with this seed."""
    return sha256(b"truthfl private draws %d" % seed).digest()


def subkey(key: DrawKey, *parts: int | str) -> DrawKey:
    """A key for one purpose; other parts give other keys, which tell nothing of each other."""
    return hmac.digest(key, "/".join(map(str, parts)).encode(), "sha256")


def uniforms(key: DrawKey, count: int) -> NDArray[np.float64]:
    """Numbers in [0, 1)."""
    return np.asarray((random_bits(key, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def normals(key: DrawKey, count: int) -> NDArray[np.float32]:
    """Numbers of the standard normal distribution, by the method of Box and Muller."""
    half = (count + 1) // 2
    bits = random_bits(key, 2 * half, _NORMAL)
    radius = np.sqrt(-2.0 * np.log(((bits[:half] >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53))
    angle = (bits[half:] >> np.uint64(11)).astype(np.float64) * (2.0 * np.pi * 2.0**-53)
    return np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:count].astype(np.float32)


def random_bits(key: DrawKey, count: int, stream: int = _UNIFORM) -> NDArray[np.uint64]:
    """64 random bits `count` times."""
    encryptor = Cipher(AES(key), CTR(stream.to_bytes(8, "big") + bytes(8))).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * count)), dtype="<u8")
