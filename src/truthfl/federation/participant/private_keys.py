"""The secret from which a participant draws batches and noise, and a note of each model that she answered with noise.

Batches of masked reports follow from it: whoever knew which samples are in which batch could solve for single samples,
for sums are linear in the samples' gradients.

The noise of a round follows from the secret, the offer, the round and the model: who asks again for the same gets the
same report. A second report on another model would halve the noise, so a round is answered for one model only; then the
(ε, δ) of the offer holds.
"""

from __future__ import annotations

import secrets
from hashlib import sha256
from pathlib import Path

from truthfl.errors import InputError
from truthfl.files import write_file
from truthfl.learning.model import Params
from truthfl.learning.private_draws import DrawKey, subkey

SECRET, ANSWERED = "noise.secret", "noise"
SECRET_BYTES = 32


def kept_secret(home: Path) -> DrawKey:
    """The secret in the participant's folder; made if there is none."""
    path = home / SECRET
    write_file(path, secrets.token_bytes(SECRET_BYTES), private=True, keep_existing=True)
    secret = path.read_bytes()
    if len(secret) != SECRET_BYTES:
        raise InputError(f"{path} is damaged: it has {len(secret)} bytes and not {SECRET_BYTES}; remove it.")
    return secret


def key_of_audition(secret: DrawKey, offer_hash: str) -> DrawKey:
    """The key of the draws of her solo training."""
    return subkey(secret, offer_hash, "audition")


def key_of_batches(secret: DrawKey, offer_hash: str, round_: int) -> DrawKey:
    """The key of the batches of a masked report; a round is answered from one model only: see `round_guard`."""
    return subkey(secret, offer_hash, "batches", round_)


def key_of_round(secret: DrawKey, home: Path, offer_hash: str, round_: int, common: Params) -> DrawKey:
    """The key of the draws of a round; raise InputError if the round was answered for another common model."""
    digest = sha256(common.tobytes()).hexdigest()
    note = home / ANSWERED / offer_hash / str(round_)
    write_file(note, digest, private=True, keep_existing=True)
    if note.read_text(encoding="utf-8") != digest:
        raise InputError(
            f"round {round_ + 1} was answered for another model; with noise, it is answered for one model only."
        )
    return subkey(secret, offer_hash, round_, digest)
