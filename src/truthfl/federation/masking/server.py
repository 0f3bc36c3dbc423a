"""The server's side of secure aggregation: a round in which it sees the sum of the reports only.

Before the first round each participant gets signed terms that name their peers (`mask_terms`). A round has these steps:

1. Participants send masked reports, each with the signature of the list of those who are known to be absent.
2. If somebody else is missing, everybody who is left signs the longer list.
3. They reveal the masks that they share with the missing. Whoever does not is missing too, and step 2 is repeated.
4. They reveal their shares of each other's own masks; enough shares of each open the sum.

Nothing is revealed in steps 3 and 4 without the signatures of all who are left. A sum that is longer than honest
reports make it changes nothing. Nobody is named for it, since masks hide whose report caused it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
from flwr.app import Message

from truthfl.errors import InputError
from truthfl.federation.masking.shares import (
    CHECK_BYTES,
    PRIME,
    SHARE_BYTES,
    Group,
    Masked,
    Member,
    from_fixed_point,
    group_of,
    is_within,
    mask_sum,
    mask_terms_document,
    member_of,
    neighbours,
    own_mask,
    round_context,
    seed_from,
    share_check,
    survivors_text,
    threshold,
)
from truthfl.federation.protocol.enrolment import REPLY_TIMEOUT, Roster
from truthfl.federation.protocol.messages import (
    MASK_KEYS,
    MASK_LIST,
    MASK_SHARES,
    MASK_TERMS,
    OPERATOR,
    PARAMS,
    PARTICIPANT,
    ROUND,
    OpenQuestions,
    array_bytes_digest,
    coded_training_message,
    document_in,
    has_document_code,
    model_digest,
    model_record,
    query_message,
    report_mark,
    with_document_code,
)
from truthfl.federation.protocol.reports import (
    Rejection,
    RoundCall,
    RoundOutcome,
    RoundWait,
    SilentPeople,
    collect_reports,
    error_in,
    missing_reports,
    report_or_reason,
)
from truthfl.flower_patches import CLIENT_APP_FAILED
from truthfl.learning.models.model import Params
from truthfl.learning.training.aggregation import missing_factor
from truthfl.ledger.signing import KEY_BYTES, PrivateKey, list_signed_by
from truthfl.ledger.terms import (
    FEWEST_MASKED,
    MOST_OF_SUM,
    MOST_OTHER_SUMS,
    MOST_SUMS,
    Offer,
    sums_fault,
    weights_fault,
)

TOO_FEW = "fewer reports than a sum needs"
NOT_OPENED = "too few told what opens the sum"
ENOUGH = (
    f"participants' computers open at most {MOST_SUMS} sums from one model, {MOST_OTHER_SUMS} of them of other people"
)
SHORTEST_ANSWER = 1.0  # seconds
Replies = list[tuple[int, Message]]  # each with the node that it came from


@dataclass(eq=False)
class SumsFromModel:
    """The sums that were opened from one model. Participants' nodes open only a few.

    model  its digest; "" before the first round that is no repeated one
    lists  by round: who was missing in its sum, by index
    """

    model: str = ""
    lists: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def begin_round(self, masked: MaskedRounds, model: str) -> None:
        """Forget sums from other models; after a restart of the server, load those in the ledger."""
        if model == self.model:
            return
        rows, roster = [], masked.roster
        if not self.model:
            rows = [entry.document for entry in roster.ledger.entries(roster.job_name, "round")]
        self.model, self.lists = model, {}
        index_of = {offer.client.name: offer.client.index for offer in masked.taking_part}
        for row in reversed(rows):
            if (row["previous"], row["model"]) != (model, model):
                break
            if row.get("refused") not in (TOO_FEW, ENOUGH):
                self.lists[row["round"] - 1] = tuple(sorted(index_of[name] for name in row["missing"]))

    def fault(self, round_: int, missing: tuple[int, ...] | None = None) -> str | None:
        """In words, why no more sums are opened from the model; None if this round's sum may be opened."""
        return sums_fault([one for at, one in sorted(self.lists.items()) if at != round_], missing)


@dataclass(eq=False)
class MaskedRounds:
    """The masked rounds of one start of the server.

    taking_part   the offers of all who take part
    total         the sum of the offers' weights of all who take part
    code_keys     by participant: the key of the codes of their messages
    acceptances   by participant: their signed acceptance
    operator_key  signs the terms of the masks
    informed      names of the participants who have confirmed the terms of the masks
    refusals      by name: the reasons of nodes that refuse these terms
    repeats       the rounds, not in the ledger, that an earlier start of the server may have asked for
    waited_for    participants whose confirmation was awaited once; nobody waits for them again
    late          questions to participants who did not confirm in time
    sums          the sums that were opened from this round's model
    """

    roster: Roster
    taking_part: Sequence[Offer]
    total: float
    code_keys: Mapping[str, bytes]
    acceptances: Mapping[str, Mapping[str, Any]]
    operator_key: PrivateKey
    informed: set[str] = field(default_factory=set)
    refusals: dict[str, str] = field(default_factory=dict)
    repeats: range = range(0)
    silent: SilentPeople = field(default_factory=SilentPeople)
    waited_for: set[str] = field(default_factory=set)
    late: OpenQuestions = field(init=False)
    sums: SumsFromModel = field(default_factory=lambda: SumsFromModel())

    def __post_init__(self) -> None:
        self.late = OpenQuestions(self.roster.grid)

    @cached_property
    def peers(self) -> dict[int, list[int]]:
        return neighbours(offer.client.index for offer in self.taking_part)

    @cached_property
    def members(self) -> dict[int, Member]:
        return {
            offer.client.index: member_of(self.acceptances[offer.client.name]["document"], self.total)
            for offer in self.taking_part
        }

    @cached_property
    def weights(self) -> dict[str, float]:
        """By participant: the weight of their report in a round in which they are asked."""
        return {offer.client.name: self.members[offer.client.index].weight for offer in self.taking_part}

    @cached_property
    def group(self) -> Group:
        """The group that all of them are told."""
        return group_of(self.taking_part[0], self.total, list(self.members.values()))

    @property
    def seconds(self) -> float:
        """How long the server waits for reports."""
        return self.taking_part[0].job.round_seconds

    def is_ready(self, offer: Offer) -> bool:
        """Whether a participant is connected, has the terms of the masks and was not removed."""
        name = offer.client.name
        return name in self.informed and name in self.roster.node_of and name not in self.roster.control.removed

    def send_terms(self, offers: Iterable[Offer]) -> None:
        """Send the terms of the masks to connected participants, unless they have confirmed them.

        Each is waited for once. A participant who does not answer in time is asked again, without waiting.
        """
        removed, node_of = self.roster.control.removed, self.roster.node_of
        refused: dict[str, str] = {}
        self._note_informed(self._answers({node: name for name, node in node_of.items()}, self.late.replies(), refused))
        new = [one for one in offers if one.client.name in node_of and one.client.name not in removed]
        by_index = {offer.client.index: self.acceptances[offer.client.name] for offer in self.taking_part}
        documents = {
            offer.client.name: {
                "offer": offer.hash,
                "terms": mask_terms_document(
                    self.operator_key, offer, self.group, self.peers[offer.client.index], by_index
                ),
            }
            for offer in new
            if offer.client.name not in self.informed
        }
        fresh = {name: told for name, told in documents.items() if name not in self.waited_for}
        again = {
            name: told for name, told in documents.items() if name not in fresh and node_of[name] not in self.late.nodes
        }
        if again:
            self.ask(MASK_TERMS, again, self._ask_later)
        if fresh:
            self.waited_for |= set(fresh)
            ask = partial(self.roster.ask, timeout=min(REPLY_TIMEOUT, self.seconds))
            self._note_informed(self.ask(MASK_TERMS, fresh, ask, refused))
        self.refusals = {name: why for name, why in (self.refusals | refused).items() if name not in self.informed}

    def _ask_later(self, messages: list[Message]) -> Replies:
        self.late.send(messages, REPLY_TIMEOUT)
        return []

    def _note_informed(self, answers: Mapping[str, Mapping[str, Any]]) -> None:
        self.informed |= {name for name, answer in answers.items() if answer.get("kept") is True}

    def ask(
        self,
        action: str,
        documents: Mapping[str, Mapping[str, Any]],
        ask: Callable[[list[Message]], Replies],
        refused: dict[str, str] | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Ask connected participants, by name; return the documents of those who answered with their code.

        ask      sends the messages and returns the replies
        refused  gets the refusals of the others' nodes
        """
        node_of = {name: self.roster.node_of[name] for name in documents if name in self.roster.node_of}
        name_at = {node: name for name, node in node_of.items()}
        messages = [
            query_message(action, node, with_document_code(self.code_keys[name], OPERATOR, documents[name]))
            for name, node in node_of.items()
        ]
        return self._answers(name_at, ask(messages) if messages else (), refused)

    def _answers(
        self, name_at: Mapping[int, str], replies: Iterable[tuple[int, Message]], refused: dict[str, str] | None
    ) -> dict[str, dict[str, Any]]:
        """By participant: the documents with their codes in these replies; `refused` as in `ask`."""
        answers: dict[str, dict[str, Any]] = {}
        for node, reply in replies:
            name = name_at.get(node)
            if name is not None and reply.has_error() and reply.error.code == CLIENT_APP_FAILED and refused is not None:
                refused[name] = error_in(reply)
            try:
                document = {} if name is None or reply.has_error() else document_in(reply)
            except InputError:
                continue
            if name is not None and document and has_document_code(self.code_keys[name], PARTICIPANT, document):
                answers.setdefault(name, document)
        return answers


@dataclass(eq=False)
class Sum:
    """One round's sum while it is collected and opened.

    offers      of those who are asked, by index
    peers       by index: the peers who are asked too
    context     of the round
    reports     by index: the masked reports that arrived and count
    locked      by index of the owner: the shares of their own mask, by holder
    marks       by name: the mark that identifies their report
    signed      by index: the list of who is missing that they signed last, and its signature
    told_keys   by participant who revealed them, and by missing participant: the keys of their shared masks
    rejected    why somebody's report or answer does not count
    asked       those who were asked for a report, with the list of who is absent that they were to sign
    repeated    whether participants may have signed lists in this round before the server was stopped
    counted     whether the round is a new one, whose sum counts among those from its model
    unjoined    why a list conflicts with the others' lists in such a round; without a sum, its signer delivered
    """

    masked: MaskedRounds
    wait: RoundWait
    call: RoundCall
    offers: dict[int, Offer]
    peers: dict[int, list[int]]
    context: bytes
    reports: dict[int, Masked] = field(default_factory=dict)
    locked: dict[int, dict[int, bytes]] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)
    signed: dict[int, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    told_keys: dict[int, dict[int, bytes]] = field(default_factory=dict)
    rejected: list[Rejection] = field(default_factory=list)
    asked: dict[int, list[int]] = field(default_factory=dict)
    repeated: bool = False
    counted: bool = True
    unjoined: dict[int, str] = field(default_factory=dict)

    @cached_property
    def needed(self) -> dict[int, tuple[frozenset[int], int]]:
        """By index: the peers, and how many of these must be in the sum too."""
        return {own: (frozenset(peers), threshold(len(peers) + 1) - 1) for own, peers in self.peers.items()}

    def left_with(self, present: Iterable[int]) -> set[int]:
        """The participants among these with enough peers among them; none if too few or not hiding each other.

        Nobody is left out for too much weight, so nobody present loses the round.
        """
        left = set(present)
        while True:
            lonely = {own for own in left for peers, fewest in (self.needed[own],) if len(left & peers) < fewest}
            if not lonely:
                return left if len(left) >= FEWEST_MASKED and self._hide_each_other(left) else set()
            left -= lonely

    def _hide_each_other(self, left: set[int]) -> bool:
        """Whether everybody's node agrees that nobody has too much weight in this sum."""
        weights = {own: self.masked.members[own].weight for own in left}
        heaviest, fewest = max(weights.values()), min(fewest for _, fewest in self.needed.values())
        worst = [heaviest, heaviest, *[min(weights.values())] * (fewest - 1)]
        if weights_fault(worst, MOST_OF_SUM) is None:
            return True
        return all(
            weights_fault([weights[own], *(weights[peer] for peer in self.needed[own][0] & left)], MOST_OF_SUM) is None
            for own in left
        )

    def take(self, offer: Offer, reply: Message, size: int) -> str | None:
        """Keep the masked report in a reply; return the reason why it is refused, or None."""
        own, name = offer.client.index, offer.client.name
        if own in self.reports:
            return "duplicated: it came after another report of theirs"
        blank = {PARAMS: np.zeros(size, dtype=np.uint32)}
        report = report_or_reason(reply, blank, self.call.fields(offer), code_key=self.masked.code_keys[name])
        if isinstance(report, str):
            return report
        told = reply.content.config_records[ROUND]
        locked = _locked_shares(told.get("shares"), self.peers[own])
        if locked is None:
            return "it has no shares of its own mask for all peers"
        if not self._take_signature(own, told, None if self.repeated else self.asked[own]):
            return "its signed list of who is missing is not the one that was sent"
        self.reports[own], self.locked[own], self.marks[name] = report[PARAMS], locked, report_mark(reply)
        return None

    def agree(self) -> tuple[int, ...] | None:
        """Have all who are left sign the same list of who is missing; return it, or None if there is none in time.

        Whoever answers with another list is left out, so there are at most as many steps as participants.
        """
        asked_before = False
        while True:
            self._let_removed_go()
            left = self.left_with(self.reports)
            signers = {own for own in left if not left.isdisjoint(self.signed[own][0])}
            if signers:  # before a restart they signed that people are missing who are back, or claim this
                back = {index for own in signers for index in self.signed[own][0]} & left
                if 2 * len(signers) > len(left):
                    self._unjoin(back, "late: others had signed that it is missing")
                else:
                    self._unjoin(signers, "others were back after it had signed that they are missing")
                continue
            if not left:
                return None
            self.drop(set(self.reports) - left, TOO_FEW)
            missing = tuple(sorted(set(self.offers) - left))
            behind = [own for own in left if self.signed[own][0] != missing]
            if not behind:
                return missing
            if asked_before and self.wait.gives_up:
                return None
            asked_before = True
            asked = {own: {"missing": list(missing)} for own in behind}
            answers = self._ask(MASK_LIST, asked)
            for own in behind:
                answer = answers.get(own, {})
                if self._take_signature(own, answer, missing):
                    continue
                if self.repeated and self._take_signature(own, answer, None):
                    self._unjoin({own}, "it signed another list of who is missing before the server was stopped")
                else:
                    self.drop({own}, "no signature of who is missing came in time")

    def learn_keys(self, missing: tuple[int, ...]) -> bool:
        """Get the masks that the remaining participants share with the missing; False if one did not come."""
        gone = set(missing)
        wanted = {
            own: peers
            for own in self.reports
            if (peers := [peer for peer in self.peers[own] if peer in gone and peer not in self.told_keys.get(own, ())])
        }
        if not wanted:
            return True
        asked = {own: {"missing": list(missing), "signatures": self._signatures(own)} for own in wanted}
        answers, silent = self._ask(MASK_KEYS, asked), set()
        for own, peers in wanted.items():
            keys = _keys_in(answers.get(own, {}), peers)
            if keys is None:
                silent.add(own)
            else:
                self.told_keys.setdefault(own, {}).update(keys)
        self.drop(silent, "the masks shared with missing peers were not told")
        return not silent

    def learn_seeds(self, missing: tuple[int, ...]) -> dict[int, int] | None:
        """The seeds of the remaining participants' own masks; None if one has too few shares."""
        asked = {
            own: {
                "missing": list(missing),
                "signatures": self._signatures(own),
                "shares": {str(peer): self.locked[peer][own].hex() for peer in self.peers[own] if peer in self.reports},
            }
            for own in self.reports
        }
        shares: dict[int, dict[int, int]] = {own: {} for own in self.reports}
        unfit: Counter[int] = Counter()
        for holder, answer in self._ask(MASK_SHARES, asked).items():
            told, named = answer.get("shares"), answer.get("unfit")
            unfit.update(peer for peer in self.peers[holder] if isinstance(named, list) and peer in named)
            for owner in (holder, *self.peers[holder]):
                share = _share_in(told, owner)
                if owner not in shares or share is None:
                    continue
                if owner == holder or self._fits(share, owner, holder):
                    shares[owner][holder] = share
                else:
                    self._reject(holder, f"the share of {self.offers[owner].client.name}'s mask does not fit")
        seeds: dict[int, int] = {}
        for owner, told in shares.items():
            needed = threshold(len(self.peers[owner]) + 1)
            seed = _seed_of(told, needed, owner)
            if seed is None:
                if unfit[owner] >= needed - 1:  # so many who work together could read reports anyway
                    self.drop({owner}, "the shares of its own mask do not fit")
                return None
            seeds[owner] = seed
        return seeds

    def total(self, seeds: Mapping[int, int]) -> Masked:
        """The sum of the weighted changes, in fixed point."""
        lines = {index: member.agreement_key for index, member in self.masked.members.items()}
        summed = np.zeros_like(next(iter(self.reports.values())))
        for own, report in self.reports.items():
            summed += report
            summed -= own_mask(seeds[own], len(summed))
            keys = {lines[peer]: key for peer, key in self.told_keys.get(own, {}).items()}
            if keys:
                summed -= mask_sum(keys, lines[own], len(summed))
        return summed

    def drop(self, indices: Iterable[int], reason: str) -> None:
        """Leave these reports out, for a reason."""
        for own in sorted(indices):
            self.reports.pop(own, None)
            self._reject(own, reason)

    def _unjoin(self, indices: Iterable[int], reason: str) -> None:
        """Leave these out of the sum; they are named if the sum succeeds without them."""
        for own in indices:
            del self.reports[own]
            self.unjoined[own] = reason

    def _let_removed_go(self) -> None:
        """Continue without those whom the operator has removed in the meantime."""
        removed = self.masked.roster.control.removed
        for own in [own for own in self.reports if self.offers[own].client.name in removed]:
            del self.reports[own]

    def _reject(self, own: int, reason: str) -> None:
        name = self.offers[own].client.name
        if all(name != rejected for rejected, _, _ in self.rejected):  # the first reason counts
            self.rejected.append((name, self.masked.roster.node_of.get(name), reason))

    def _take_signature(self, own: int, told: Mapping[str, Any], wanted: Iterable[int] | None) -> bool:
        """Keep the last list that somebody signed; False if there is none or it is invalid.

        The list must be the one that was sent, so nobody can exclude others by their own list. Only in a round that the
        server repeats may it be longer, or, if `wanted` is None, any list that was signed then.
        """
        missing, signature = told.get("missing"), told.get("signature")
        if not isinstance(missing, Sequence) or isinstance(missing, str) or not isinstance(signature, str):
            return False
        if not all(type(index) is int and index in self.offers for index in missing):
            return False
        if not all(one < other for one, other in pairwise(missing)):  # the signature is the same in any order
            return False
        if wanted is not None and not (set(missing) >= set(wanted) if self.repeated else set(missing) == set(wanted)):
            return False
        text = survivors_text(self.context, missing)
        if not list_signed_by(self.masked.members[own].list_key, text, signature):
            return False
        self.signed[own] = tuple(missing), signature
        return True

    def _signatures(self, own: int) -> dict[str, str]:
        """By index: the signatures of the peers who are left."""
        return {str(peer): self.signed[peer][1] for peer in self.peers[own] if peer in self.reports}

    def _fits(self, share: int, owner: int, holder: int) -> bool:
        return share_check(share, self.context, owner, holder) == self.locked[owner][holder][SHARE_BYTES:]

    def _ask(self, action: str, asked: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
        """Ask participants about this round, by index; wait for those whom the sum needs."""
        answers: dict[int, dict[str, Any]] = {}
        while True:
            documents = {
                self.offers[own].client.name: {"offer": self.offers[own].hash, "round": self.call.round, **document}
                for own, document in asked.items()
                if own not in answers
            }
            seconds = min(REPLY_TIMEOUT, max(self.wait.seconds_left, SHORTEST_ANSWER))
            told = self.masked.ask(action, documents, partial(self.wait.ask, seconds=seconds))
            for own in asked:
                document = told.get(self.offers[own].client.name, {})
                if document.get("round") == self.call.round:
                    answers[own] = document
            silent, removed = set(asked) - set(answers), self.masked.roster.control.removed
            awaited = [name for own in silent if (name := self.offers[own].client.name) not in removed]
            if not awaited or self.left_with(set(self.reports) - silent) or self.wait.over:
                self.wait.ends()
                for own in silent:
                    self.masked.silent.note(self.offers[own].client.name, self.call.round, answered=False)
                return answers
            self.wait.for_people(awaited)


def run_masked_round(
    masked: MaskedRounds, params: Params, call: RoundCall, offers: Sequence[Offer], only: Collection[str] | None = None
) -> RoundOutcome:
    """Run a round in which the server sees the sum of the reports only.

    only  in a round that is repeated: the names of those who delivered it; all of them are needed
    """
    round_sum = _collected(masked, params, call, offers, only)
    change, refused = _opened(round_sum)
    removed = masked.roster.control.removed
    taken = set(round_sum.reports)
    if refused is not None:  # participants who were present and not asked also count as delivering
        refusals = {name for name, _, _ in round_sum.rejected}
        waiting = {
            own for own, offer in round_sum.offers.items() if own not in round_sum.asked and masked.is_ready(offer)
        }
        taken |= {own for own in waiting if round_sum.offers[own].client.name not in refusals} | set(round_sum.unjoined)
    else:
        for own, reason in round_sum.unjoined.items():
            round_sum.drop({own}, reason)
    names = [offer.client.name for offer in offers if offer.client.index in taken]
    node_of = {offer.client.name: masked.roster.node_of.get(offer.client.name) for offer in offers}
    gone = [name for name in node_of if name in removed and name not in names]
    rejected: list[Rejection] = [(name, node_of[name], removed[name]) for name in gone]
    rejected += [one for one in round_sum.rejected if one[0] not in gone]
    refusing = masked.refusals.keys() & node_of.keys() - {name for name, _, _ in rejected}
    rejected += [(name, node_of[name], masked.refusals[name]) for name in node_of if name in refusing]
    rejected += missing_reports(node_of, names, rejected)
    if change is None:
        return RoundOutcome(params, names, rejected, refused, round_sum.marks)
    if offers[0].job.rescales:
        asked = math.fsum(masked.weights[offer.client.name] for offer in offers)
        change *= np.float32(missing_factor(asked, math.fsum(masked.weights[name] for name in names)))
    return RoundOutcome(params + change, names, rejected, marks=round_sum.marks)


def _collected(
    masked: MaskedRounds, params: Params, call: RoundCall, offers: Sequence[Offer], only: Collection[str] | None
) -> Sum:
    """The masked reports of a round; while there are too few, the server waits for those who are not connected."""
    by_index = {offer.client.index: offer for offer in offers}
    index_of = {offer.client.name: offer.client.index for offer in offers}
    peers = {own: [peer for peer in masked.peers[own] if peer in by_index] for own in by_index}
    model = model_digest(params)
    context = round_context(masked.group.digest, call.round, call.changed, model)
    round_sum = Sum(masked, RoundWait(masked.roster, call.round, masked.seconds), call, by_index, peers, context)
    round_sum.repeated = only is not None or call.round in masked.repeats
    arrays = model_record(params)
    digest = array_bytes_digest(arrays)
    wanted = offers if only is None else [offer for offer in offers if offer.client.name in only]
    all_wanted = {offer.client.index for offer in wanted}

    round_sum.counted = only is None
    if round_sum.counted:
        masked.sums.begin_round(masked, model)
        if masked.sums.fault(call.round) is not None:
            masked.send_terms(wanted)
            return round_sum

    def ready() -> list[Offer]:
        masked.send_terms(wanted)
        return [offer for offer in wanted if masked.is_ready(offer)]

    def messages(people: Sequence[Offer]) -> list[Message]:
        present = round_sum.left_with({*round_sum.reports, *(offer.client.index for offer in people)})
        if only is not None and present != all_wanted:
            return []
        absent = sorted(set(by_index) - present)
        asked = [offer for offer in people if offer.client.index in present]
        round_sum.asked |= {offer.client.index: absent for offer in asked}
        return [
            coded_training_message(
                masked.code_keys[offer.client.name],
                masked.roster.node_of[offer.client.name],
                arrays,
                digest,
                call.fields(offer) | {"absent": absent},
            )
            for offer in asked
        ]

    def enough(names: Collection[str]) -> bool:
        left = round_sum.left_with({*round_sum.reports, *(index_of[name] for name in names)})
        return bool(left) if only is None else left == all_wanted

    round_sum.rejected += collect_reports(
        round_sum.wait,
        wanted,
        ready,
        messages,
        lambda offer, reply: round_sum.take(offer, reply, len(params)),
        enough,
        masked.silent,
    )
    return round_sum


def _opened(round_sum: Sum) -> tuple[Params | None, str | None]:
    """The weighted sum of the changes, or None and why there is none."""
    sums, round_ = round_sum.masked.sums, round_sum.call.round
    if round_sum.counted and sums.fault(round_) is not None:
        return None, ENOUGH
    missing = round_sum.agree()
    while missing is not None and not round_sum.learn_keys(missing):
        missing = None if round_sum.wait.gives_up else round_sum.agree()
    if missing is None:
        return None, NOT_OPENED if round_sum.left_with(round_sum.reports) else TOO_FEW
    if round_sum.counted:
        if sums.fault(round_, missing) is not None:
            return None, ENOUGH
        sums.lists[round_] = missing
    seeds = round_sum.learn_seeds(missing)
    if seeds is None:
        return None, NOT_OPENED
    masked = round_sum.masked
    bound = next(iter(round_sum.offers.values())).job.bound_of_round(round_sum.call.changed)
    change = from_fixed_point(round_sum.total(seeds), bound)
    weight = math.fsum(masked.weights[round_sum.offers[own].client.name] for own in round_sum.reports)
    if not is_within(change, weight, bound):
        length = float(np.linalg.norm(change))
        return None, f"the sum of {len(round_sum.reports)} reports has length {length:.3g}, beyond {weight * bound:.3g}"
    return change.astype(np.float32), None


def _locked_shares(told: object, peers: Sequence[int]) -> dict[int, bytes] | None:
    """By holder: the locked shares in a report; None if there is not one for each peer."""
    length = SHARE_BYTES + CHECK_BYTES
    try:
        content = bytes.fromhex(told)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    if len(content) != length * len(peers):
        return None
    return {peer: content[at * length : (at + 1) * length] for at, peer in enumerate(sorted(peers))}


def _keys_in(document: Mapping[str, Any], peers: Sequence[int]) -> dict[int, bytes] | None:
    """The keys of these peers' masks in an answer; None if they are not all there."""
    told = document.get("keys")
    try:
        keys = {peer: bytes.fromhex(told[str(peer)]) for peer in peers}  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        return None
    return keys if all(len(key) == KEY_BYTES for key in keys.values()) else None


def _share_in(told: object, owner: int) -> int | None:
    """The share of this owner's mask among the shares in an answer; None if there is none."""
    text = told.get(str(owner)) if isinstance(told, Mapping) else None
    if not isinstance(text, str) or not text.isascii() or not text.isalnum() or len(text) > 2 * SHARE_BYTES:
        return None
    try:
        share = int(text, 16)
    except ValueError:
        return None
    return share if share < PRIME else None


def _seed_of(shares: Mapping[int, int], needed: int, owner: int) -> int | None:
    """The seed that these shares give; None if there are too few, or they do not fit each other.

    The owner's own share has no check, so it is used only if it is needed.
    """
    ordered = sorted(shares, key=lambda holder: (holder == owner, holder))[:needed]
    if len(ordered) < needed:
        return None
    try:
        return seed_from({holder: shares[holder] for holder in ordered})
    except InputError:
        return None
