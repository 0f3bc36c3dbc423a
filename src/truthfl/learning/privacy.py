"""Private training: clipped gradients with noise that nobody can guess. docs/security.md.

Private training draws both batches and noise by secret keys. For masked reports, only the batches are drawn so.

A participant's key is their secret. In simulations it follows from the seed, so that a run can be repeated.

A step draws every sample with the same probability, so a batch has the prescribed size only on average. (ε, δ) is
computed for such draws (`privacy_accounting`). Nothing else in a step depends on the samples: the sum is divided by the
prescribed size, and the penalty does not count the drawn samples.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from truthfl.contracts.setting import number
from truthfl.learning.models.cnn import ConvolutionalNetwork
from truthfl.learning.models.model import Features, Labels, Params
from truthfl.learning.models.softmax import SoftmaxRegression

DrawKey = bytes
_UNIFORM, _NORMAL = 0, 1  # streams of one key


def simulated_key(seed: int) -> DrawKey:
    """The key of a simulation with this seed."""
    return sha256(b"truthfl private draws %d" % seed).digest()


def subkey(key: DrawKey, *parts: int | str) -> DrawKey:
    """A key for one purpose; other parts give other keys, and no key reveals another."""
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


TINY = 1e-30  # in place of the length of a gradient that is 0


@dataclass(frozen=True)
class PrivateModel:
    """One of truthfl's models with private training.

    clip   C, the length to which a sample's gradient (without the penalty) is shortened
    noise  z, the standard deviation of the noise in a step's sum of gradients, as a multiple of `clip`
    """

    plain: SoftmaxRegression | ConvolutionalNetwork
    clip: float
    noise: float = 0.0

    def __post_init__(self) -> None:
        number("clip", self.clip, positive=True)
        number("noise", self.noise, at_least=0.0)

    @property
    def size(self) -> int:
        return self.plain.size

    @property
    def classes(self) -> int:
        return self.plain.classes

    @property
    def penalty(self) -> float:
        return self.plain.penalty

    def with_penalty(self, penalty: float) -> PrivateModel:
        """The same model with another factor of the penalty."""
        return replace(self, plain=replace(self.plain, penalty=penalty))

    def init(self, seed: int) -> Params:
        return self.plain.init(seed)

    def scores(self, params: Params, features: Features) -> NDArray[np.float32]:
        return self.plain.scores(params, features)

    def loss(self, params: Params, features: Features, labels: Labels) -> float:
        return self.plain.loss(params, features, labels)

    def accuracy(self, params: Params, features: Features, labels: Labels) -> float:
        return self.plain.accuracy(params, features, labels)

    def predict(self, params: Params, features: Features) -> Labels:
        return self.plain.predict(params, features)

    def weighted_gradient(self, params: Params, features: Features, labels: Labels, weight: Params) -> Params:
        """Σ_k weight_k · (clipped gradient of sample k + penalty · params), without noise."""
        gradient = self._clipped_sum(params, features, labels, weight)
        return gradient + np.float32(self.penalty * weight.sum(dtype=np.float64)) * params

    def noisy_gradient(
        self, params: Params, features: Features, labels: Labels, batch_size: int, key: DrawKey
    ) -> Params:
        """The gradient of one step of training on all these samples. The key decides the draw and the noise."""
        drawn = uniforms(key, len(labels)) * len(labels) < batch_size
        weight = np.full(int(drawn.sum()), 1.0 / batch_size, dtype=np.float32)
        gradient = self._clipped_sum(params, features[drawn], labels[drawn], weight)
        if self.noise:
            gradient += np.float32(self.noise * self.clip / batch_size) * normals(key, self.size)
        return gradient + np.float32(self.penalty) * params

    def noise_variance(self, batch_size: float) -> float:
        """The variance of the noise in one step's gradient, summed over all parameters."""
        return self.size * (self.noise * self.clip / batch_size) ** 2

    def _clipped_sum(self, params: Params, features: Features, labels: Labels, weight: Params) -> Params:
        if not len(labels):
            return np.zeros(self.size, dtype=np.float32)
        bare = replace(self.plain, penalty=0.0)
        lengths = np.maximum(bare.gradient_lengths(params, features, labels), TINY)
        clipped = weight * np.minimum(1.0, self.clip / lengths).astype(np.float32)
        return bare.weighted_gradient(params, features, labels, clipped)
