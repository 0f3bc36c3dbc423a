"""The server's side of secure aggregation: a round in which it sees sums of reports only.

Before her first round a client is told her peers, by their signed acceptances. A round is one message and one reply per
client when nobody is missing; else those who delivered are asked for the keys of the masks that they share with those
who are missing. A sum that is longer than honest reports can make it is left out, and the next rounds add up small
groups, by which `suspects` finds whose reports make sums too long. Imports `enrolment`, `masking`,
`message_codes`, `messages`, `record_digests`, `reports`, `round_entries`, `round_outcome`, `suspects`, `learning`, the
ledger and Flower.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from flwr.app import Message

from truthfl.errors import InputError
from truthfl.federation.protocol.enrolment import REPLY_TIMEOUT, Roster
from truthfl.federation.protocol.masking import Masked, from_fixed_point, is_within, mask_sum, neighbours
from truthfl.federation.protocol.message_codes import (
    OPERATOR,
    PARTICIPANT,
    coded_training_message,
    has_document_code,
    with_document_code,
)
from truthfl.federation.protocol.messages import MASKS, PARAMS, PEERS, document_in, model_record, query_message
from truthfl.federation.protocol.record_digests import array_bytes_digest
from truthfl.federation.protocol.reports import report_or_reason
from truthfl.federation.protocol.round_entries import RoundCall
from truthfl.federation.protocol.round_outcome import Rejection, RoundOutcome, missing_reports
from truthfl.federation.protocol.suspects import Suspects
from truthfl.learning.aggregation import missing_factor
from truthfl.learning.model import Params
from truthfl.ledger.agreement_keys import KEY_BYTES
from truthfl.ledger.round_terms import FEWEST_MASKED
from truthfl.ledger.terms import Offer

TOO_FEW = "fewer than three reports"
EXCLUDED = "excluded: sums with her reports were too long, three times, and those without her were not"


@dataclass(eq=False)
class Group:
    """Clients whose reports are added up under masks of their own.

    offers     by index
    peers      by index: with whom each shares masks
    reports    by index: the masked reports that arrived
    told_keys  by (who told, who is missing): the keys of this round
    """

    offers: dict[int, Offer]
    peers: dict[int, list[int]]
    reports: dict[int, Masked] = field(default_factory=dict)
    told_keys: dict[tuple[int, int], bytes] = field(default_factory=dict)

    @property
    def unknown_keys(self) -> dict[int, list[int]]:
        """By client who delivered: her missing peers whose keys she has not told."""
        wanted = {
            own: [peer for peer in self.peers[own] if peer not in self.reports and (own, peer) not in self.told_keys]
            for own in self.reports
        }
        return {own: missing for own, missing in wanted.items() if missing}


@dataclass(eq=False)
class MaskedRounds:
    """The masked rounds of one start of the server.

    taking_part  the offers of all who take part
    weights      by client: the weight of her report
    code_keys    by client: the key of the codes of her messages
    acceptances  by client: her signed acceptance
    informed     names of the clients who have confirmed their peers
    """

    roster: Roster
    taking_part: Sequence[Offer]
    weights: Mapping[str, float]
    code_keys: Mapping[str, bytes]
    acceptances: Mapping[str, Mapping[str, Any]]
    informed: set[str] = field(default_factory=set)
    suspects: Suspects = field(default_factory=Suspects)

    @cached_property
    def peers(self) -> dict[int, list[int]]:
        return neighbours(offer.client.index for offer in self.taking_part)

    @cached_property
    def lines(self) -> dict[int, str]:
        """By index: the public agreement key."""
        return {
            offer.client.index: str(self.acceptances[offer.client.name]["document"]["agreement_key"])
            for offer in self.taking_part
        }

    def groups(self, offers: Sequence[Offer], call: RoundCall) -> list[Group]:
        """Those of these clients who are connected, know their peers and are not excluded, in groups to be added up."""
        self._name_peers(offers)
        present = {offer.client.index: offer for offer in offers if self._is_ready(offer)}
        made = [self._group({own: present[own] for own in members}) for members in self.suspects.split(present, call)]
        return [group for group in made if len(group.offers) >= FEWEST_MASKED]

    def messages(self, groups: Sequence[Group], params: Params, call: RoundCall) -> list[Message]:
        """The training messages of a round: as others, with the report's weight and the peers."""
        arrays = model_record(params)
        digest = array_bytes_digest(arrays)
        made = []
        for group in groups:
            for own, offer in group.offers.items():
                name = offer.client.name
                fields = {**call.fields(offer), "weight": self.weights[name], "peers": group.peers[own]}
                node = self.roster.node_of[name]
                made.append(coded_training_message(self.code_keys.get(name), node, arrays, digest, fields))
        return made

    def delivered(self, groups: Sequence[Group], offers: Sequence[Offer]) -> list[str]:
        """The names of those who delivered; if there was no group to ask, of those who could have."""
        if groups:
            present = {own for group in groups for own in group.reports}
            return [offer.client.name for offer in offers if offer.client.index in present]
        return [offer.client.name for offer in offers if self._is_ready(offer)]

    def exclusion(self, offer: Offer) -> str | None:
        """Why this client is not asked any more; None if she is."""
        removed = self.roster.control.removed.get(offer.client.name)
        return removed or (EXCLUDED if offer.client.index in self.suspects.excluded else None)

    @property
    def seconds(self) -> float:
        """How long the server waits for reports."""
        return self.taking_part[0].job.round_seconds

    def take(self, group: Group, offer: Offer, reply: Message, call: RoundCall, size: int) -> str | None:
        """Keep the masked report in a reply; return the reason why it is refused, or None."""
        blank = {PARAMS: np.zeros(size, dtype=np.uint32)}
        report = report_or_reason(reply, blank, call.fields(offer), code_key=self.code_keys.get(offer.client.name))
        if isinstance(report, str):
            return report
        group.reports[offer.client.index] = report[PARAMS]
        return None

    def total(self, group: Group, call: RoundCall) -> tuple[Params | None, str | None, list[Rejection]]:
        """The sum of a group's weighted changes, or None and why there is none; and who did not help to unmask it."""
        rejected = self._recover(group, call)
        if len(group.reports) < FEWEST_MASKED:
            return None, TOO_FEW, rejected
        bound = group.offers[next(iter(group.offers))].job.bound_of_round(call.changed)
        summed = np.zeros_like(next(iter(group.reports.values())))
        for own, report in group.reports.items():
            summed += report
            keys = {self.lines[peer]: key for (teller, peer), key in group.told_keys.items() if teller == own}
            if keys:
                summed -= mask_sum(keys, self.lines[own], len(summed))
        change = from_fixed_point(summed, bound)
        weight = math.fsum(self.weights[group.offers[own].client.name] for own in group.reports)
        good = is_within(change, weight, bound)
        self.suspects.note(group.reports, good=good)
        if good:
            return change.astype(np.float32), None, rejected
        length = float(np.linalg.norm(change))
        reason = f"the sum of {len(group.reports)} reports has length {length:.3g}, beyond {weight * bound:.3g}"
        return None, reason, rejected

    def _is_ready(self, offer: Offer) -> bool:
        """Whether a client is connected, knows her peers and is not excluded."""
        name = offer.client.name
        return name in self.informed and name in self.roster.node_of and self.exclusion(offer) is None

    def _group(self, members: dict[int, Offer]) -> Group:
        """A group of these, without those who have fewer than two peers in it."""
        while True:
            peers = {own: [peer for peer in self.peers[own] if peer in members] for own in members}
            lonely = [own for own, known in peers.items() if len(known) < FEWEST_MASKED - 1]
            if not lonely:
                return Group(members, peers)
            members = {own: offer for own, offer in members.items() if own not in lonely}

    def _name_peers(self, offers: Sequence[Offer]) -> None:
        """Tell connected clients their peers, unless they have confirmed them."""
        name_of = {offer.client.index: offer.client.name for offer in self.taking_part}
        documents = {}
        for offer in offers:
            name = offer.client.name
            if name in self.roster.node_of and name not in self.informed and self.exclusion(offer) is None:
                named = {str(peer): self.acceptances[name_of[peer]] for peer in self.peers[offer.client.index]}
                documents[name] = {"offer": offer.hash, "acceptances": named}
        self.informed |= {name for name, reply in self._ask(PEERS, documents).items() if reply.get("kept") is True}

    def _recover(self, group: Group, call: RoundCall) -> list[Rejection]:
        """Ask for the keys shared with missing peers until all are known; who does not tell them is missing too."""
        rejected: list[Rejection] = []
        while len(group.reports) >= FEWEST_MASKED and group.unknown_keys:
            wanted = group.unknown_keys
            documents = {
                group.offers[own].client.name: {
                    "offer": group.offers[own].hash,
                    "round": call.round,
                    "attempt": call.attempt,
                    "missing": missing,
                }
                for own, missing in wanted.items()
            }
            replies = self._ask(MASKS, documents)
            for own, missing in wanted.items():
                name = group.offers[own].client.name
                keys = _keys_in(replies.get(name, {}), missing)
                if keys is None:
                    del group.reports[own]
                    rejected.append((name, self.roster.node_of.get(name), "she did not tell the keys of missing peers"))
                else:
                    group.told_keys |= {(own, peer): key for peer, key in keys.items()}
        return rejected

    def _ask(self, action: str, documents: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Ask connected clients, by name; return the documents of those who answered with their code."""
        node_of = {name: self.roster.node_of[name] for name in documents if name in self.roster.node_of}
        name_at = {node: name for name, node in node_of.items()}
        messages = [
            query_message(action, node, with_document_code(self.code_keys[name], OPERATOR, documents[name]))
            for name, node in node_of.items()
        ]
        answers: dict[str, dict[str, Any]] = {}
        for node, reply in self.roster.ask(messages, timeout=REPLY_TIMEOUT) if messages else ():
            name = name_at.get(node)
            try:
                document = {} if name is None or reply.has_error() else document_in(reply)
            except InputError:
                continue
            if name is not None and document and has_document_code(self.code_keys[name], PARTICIPANT, document):
                answers.setdefault(name, document)
        return answers


def run_masked_round(masked: MaskedRounds, params: Params, call: RoundCall, offers: Sequence[Offer]) -> RoundOutcome:
    """Run a round in which the server sees sums of reports only."""
    roster, groups = masked.roster, masked.groups(offers, call)
    node_of = {offer.client.name: roster.node_of.get(offer.client.name) for offer in offers}
    place_of = {node_of[offer.client.name]: (group, offer) for group in groups for offer in group.offers.values()}
    rejected: list[Rejection] = [
        (offer.client.name, node_of[offer.client.name], reason)
        for offer in offers
        if (reason := masked.exclusion(offer)) is not None
    ]
    for node, reply in roster.ask(masked.messages(groups, params, call), timeout=masked.seconds):
        place = place_of.get(node)
        if place is None:
            rejected.append((None, node, "the node is not in the contract"))
        elif place[1].client.index in place[0].reports:
            rejected.append((place[1].client.name, node, "duplicated: it came after another report of hers"))
        else:
            reason = masked.take(*place, reply, call, len(params))
            if reason is not None:
                rejected.append((place[1].client.name, node, reason))
    change, refused, weight = np.zeros_like(params), [] if groups else [TOO_FEW], 0.0
    for group in groups:
        part, reason, silent = masked.total(group, call)
        rejected += silent
        if part is None:
            refused.append(str(reason))
        else:
            change += part
            weight += math.fsum(masked.weights[group.offers[own].client.name] for own in group.reports)
    if offers[0].job.rescales:
        asked = math.fsum(masked.weights[offer.client.name] for offer in offers)
        change *= np.float32(missing_factor(asked, weight))
    masked.suspects.conclude()
    taken = masked.delivered(groups, offers)
    rejected += missing_reports(node_of, taken, rejected)
    return RoundOutcome(params + change, taken, rejected, "; ".join(refused) or None)


def _keys_in(document: Mapping[str, Any], missing: Sequence[int]) -> dict[int, bytes] | None:
    """The keys that a client tells of these peers; None if they are not all there."""
    told = document.get("keys")
    try:
        keys = {peer: bytes.fromhex(told[str(peer)]) for peer in missing}  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        return None
    return keys if all(len(key) == KEY_BYTES for key in keys.values()) else None
