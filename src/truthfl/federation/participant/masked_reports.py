"""A participant's part in secure aggregation: her peers, her masked reports, and keys of peers who are missing.

Her folder keeps the peers that she was told and, in one file per offer, a line for each round that she delivered and
for each time she was asked for keys: she answers a round once, and what an operator asked of her can be held against
the receipt. Imports the protocol's `masking`, `files`, `learning.model` and the ledger.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from truthfl.errors import InputError, ServiceError
from truthfl.federation.protocol.masking import (
    MOST_PEERS,
    Masked,
    in_fixed_point,
    mask_stream,
    mask_sum,
    pair_key,
    round_key,
)
from truthfl.files import PRIVATE_FILE_MODE, write_file
from truthfl.learning.model import Params
from truthfl.ledger.agreement_keys import AgreementKey, agreement_line, is_agreement_line
from truthfl.ledger.canonical import canonical_bytes, read_document
from truthfl.ledger.round_terms import ALWAYS, FEWEST_MASKED
from truthfl.ledger.signing import signed_by
from truthfl.ledger.terms import Offer

PEERS, MASKED = "peers", "masked-rounds"
WEIGHT_ROUNDING = 1e-9


@dataclass(frozen=True)
class MaskedRound:
    """A round as the server asks for it: its number, the server's attempt, the common model's digest, and the peers.

    changed  the number of earlier rounds that changed the model
    """

    round: int
    attempt: int
    model: str
    peers: tuple[int, ...]
    changed: int = 0


@dataclass(eq=False)
class MaskingClient:
    """One participant's masks under one accepted offer.

    key        her agreement key
    home       her folder
    stream     computes a mask; simulations share them
    peer_keys  by index: the peers' public agreement keys; None before they are read
    delivered  by (round, attempt): the rounds that she delivered; None before they are read
    """

    offer: Offer
    key: AgreementKey
    home: Path
    stream: Callable[[bytes, int], bytes] = mask_stream
    peer_keys: dict[int, str] | None = None
    delivered: dict[tuple[int, int], MaskedRound] | None = None
    pair_keys: dict[str, bytes] = field(default_factory=dict)

    @cached_property
    def line(self) -> str:
        """Her public agreement key."""
        return agreement_line(self.key)

    def keep_peers(self, acceptances: object) -> None:
        """Check and keep the peers' signed acceptances, given by index; raise InputError if they are not sound."""
        keys = _peer_keys(self.offer, self.line, acceptances)
        content = canonical_bytes({"acceptances": acceptances})
        if write_file(self._peers_file, content, keep_existing=True, sync=False):
            self.peer_keys = keys
        elif self._peers() != keys:
            raise InputError("other peers were named for this offer before.")

    def require_may_be_unmasked(self) -> None:
        """Raise InputError if her reports under this offer are masked."""
        if self.offer.job.secure_aggregation == ALWAYS or self._peers():
            raise InputError("this offer's reports are masked; one that is not is refused.")
        self._note({"unmasked": True})

    def masked(self, change: Params, weight: float, asked: MaskedRound) -> Masked:
        """Her masked report; the same when it is asked for again."""
        least, most = self.offer.client.weight, 1.0 / self.offer.client.participation
        if not least * (1.0 - WEIGHT_ROUNDING) <= weight <= most * (1.0 + WEIGHT_ROUNDING):
            raise InputError(f"the report's weight is {weight:g}; by the offer it is from {least:g} to {most:g}.")
        if len(set(asked.peers)) < FEWEST_MASKED - 1 or not set(asked.peers) <= set(self._peers()):
            raise InputError("a masked report needs at least two peers, all of them named before the first round.")
        earlier = self._delivered().get((asked.round, asked.attempt))
        if earlier is not None and earlier != asked:
            raise InputError(f"round {asked.round + 1} was asked for before, with another model or other peers.")
        if earlier is None:
            self._deliver(asked)
        keys = self._round_keys(asked, asked.peers)
        bound = self.offer.job.bound_of_round(asked.changed)
        return in_fixed_point(change, weight, bound) + mask_sum(keys, self.line, len(change), self.stream)

    def keys_of_missing(self, round_: int, attempt: int, missing: Sequence[int]) -> dict[int, bytes]:
        """The keys of one round that she shares with peers whose reports are missing.

        Only for a round that she delivered and for peers that she masked it with; and at least three reports, hers and
        two of her peers', must remain in the sum.
        """
        asked = self._delivered().get((round_, attempt))
        if asked is None:
            raise InputError(f"round {round_ + 1} was not delivered; its keys are not told.")
        if not missing or not set(missing) <= set(asked.peers):
            raise InputError("keys are told of peers in that round only.")
        told = set(missing) | self._told(round_, attempt)
        if len(asked.peers) - len(told) < FEWEST_MASKED - 1:
            raise InputError("fewer than three reports would remain in the sum; the keys are not told.")
        self._note({"round": round_, "attempt": attempt, "missing": sorted(missing)})
        return dict(zip(missing, self._round_keys(asked, missing).values(), strict=True))

    @property
    def _peers_file(self) -> Path:
        return self.home / PEERS / f"{self.offer.hash}.json"

    @cached_property
    def _rounds_file(self) -> Path:
        return self.home / MASKED / f"{self.offer.hash}.jsonl"

    def _peers(self) -> dict[int, str]:
        """The peers' public agreement keys; empty if none were named."""
        if not self.peer_keys:
            if not self._peers_file.exists():
                return {}
            document = read_document(self._peers_file.read_bytes(), str(self._peers_file))
            self.peer_keys = _peer_keys(self.offer, self.line, document.get("acceptances"))
        return self.peer_keys

    def _round_keys(self, asked: MaskedRound, peers: Sequence[int]) -> dict[str, bytes]:
        """By the public agreement keys of these peers: the keys of a round that she shares with them."""
        known, keys = self._peers(), {}
        for peer in peers:
            line = known[peer]
            pair = self.pair_keys.get(line)
            if pair is None:
                pair = self.pair_keys[line] = pair_key(self.key, line, self.offer.job.name)
            keys[line] = round_key(pair, asked.round, asked.attempt, asked.model)
        return keys

    def _delivered(self) -> dict[tuple[int, int], MaskedRound]:
        if self.delivered is None:
            rounds = [line for line in self._lines() if "peers" in line]
            self.delivered = {
                (line["round"], line["attempt"]): MaskedRound(
                    line["round"], line["attempt"], line["model"], tuple(line["peers"]), line["changed"]
                )
                for line in rounds
            }
        return self.delivered

    def _told(self, round_: int, attempt: int) -> set[int]:
        """The peers whose keys of this round she has told."""
        lines = [line for line in self._lines() if "missing" in line]
        asked = [line["missing"] for line in lines if (line["round"], line["attempt"]) == (round_, attempt)]
        return {peer for missing in asked for peer in missing}

    def _deliver(self, asked: MaskedRound) -> None:
        self._note({**vars(asked), "peers": list(asked.peers)})
        self._delivered()[asked.round, asked.attempt] = asked

    def _note(self, line: Mapping[str, Any]) -> None:
        """Append a line to the file of rounds."""
        path, text = self._rounds_file, canonical_bytes(line) + b"\n"
        try:
            try:
                _append_to(path, text)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True)
                _append_to(path, text)
        except OSError as error:
            raise ServiceError(f"{self._rounds_file} cannot be written: {error.strerror}.") from None

    def _lines(self) -> list[dict[str, Any]]:
        try:
            text = self._rounds_file.read_text(encoding="utf-8")
            return [json.loads(line) for line in text.splitlines() if line]
        except FileNotFoundError:
            return []
        except (OSError, ValueError):
            raise InputError(f"{self._rounds_file} cannot be read; without it no masked round is answered.") from None


def _append_to(path: Path, text: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE_MODE)
    try:
        if os.write(handle, text) != len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(handle)


def _peer_keys(offer: Offer, own: str, acceptances: object) -> dict[int, str]:
    """By index: the agreement keys in these acceptances of the same job, each signed by its own identity key."""
    if not isinstance(acceptances, Mapping) or not FEWEST_MASKED - 1 <= len(acceptances) <= MOST_PEERS:
        raise InputError(f"peers are named by {FEWEST_MASKED - 1} to {MOST_PEERS} signed acceptances.")
    keys: dict[int, str] = {}
    identities = {offer.client.public_key}
    for index, acceptance in acceptances.items():
        document = acceptance.get("document") if isinstance(acceptance, Mapping) else None
        if not isinstance(document, Mapping) or not str(index).isdecimal():
            raise InputError("a peer is named by no signed acceptance.")
        line, identity = document.get("agreement_key"), str(document.get("public_key"))
        if (document.get("kind"), document.get("job")) != ("acceptance", offer.job.name):
            raise InputError("a peer's paper is no acceptance of an offer of this job.")
        if not is_agreement_line(line) or not signed_by(identity, document, str(acceptance.get("signature"))):
            raise InputError("a peer's acceptance has no agreement key, or is not signed by the key that it names.")
        if identity in identities or line in (own, *keys.values()) or int(index) == offer.client.index:
            raise InputError("the same person is named twice among the peers.")
        identities.add(identity)
        keys[int(index)] = str(line)
    return keys
