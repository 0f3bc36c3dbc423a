"""A participant's Flower ClientApp."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from truthfl.coded_text import coded, sentence_of, untranslated
from truthfl.errors import InputError
from truthfl.federation.masking.participant import MaskingClient
from truthfl.federation.participant.participant import Participant, UnlabeledError
from truthfl.federation.participant.round_guard import asked_round
from truthfl.federation.participant.signatory import Signatory
from truthfl.federation.protocol.messages import (
    AUDITION_ARRIVED,
    AUDITION_COMMIT,
    AUDITION_OPEN,
    DOCUMENT,
    ECHOED,
    ENROL,
    EXAMPLES,
    FINAL,
    LABELS,
    MASK_KEYS,
    MASK_LIST,
    MASK_SHARES,
    MASK_TERMS,
    MODEL,
    NEWS,
    OFFER,
    OPERATOR,
    PARTICIPANT,
    RECEIPT,
    ROUND,
    array_bytes_digest,
    document_in,
    document_record,
    has_code,
    has_document_code,
    model_record,
    received_model,
    text_in,
    with_code,
    with_document_code,
)
from truthfl.home import participant_folder
from truthfl.home.node_state import AUDITIONING, LABELED, LABELING, note_stage
from truthfl.ledger.canonical import read_writable_document
from truthfl.texts import plain

SignatoryOf = Callable[[Context], Signatory]
ParticipantOf = Callable[[Context], Participant]


def add_query_handlers(app: ClientApp, signatory_of: SignatoryOf, warn: Callable[[str], None]) -> None:
    """Let this app reply to the protocol's query messages.

    signatory_of  returns the signatory of a node's context
    warn          called with a sentence if a receipt contradicts what was sent; truthfl join reports this separately
    """

    @app.query(ENROL)
    def enrol(message: Message, context: Context) -> Message:
        signatory = signatory_of(context)
        asked = document_in(message)
        job, challenge = str(asked.get("job")), str(asked.get("challenge"))
        signatory.note_job(job)
        return Message(document_record(signatory.signed_description(job, challenge)), reply_to=message)

    @app.query(OFFER)
    def offer(message: Message, context: Context) -> Message:
        signatory, document = signatory_of(context), document_in(message)
        if signatory.lacks_examples(document):
            return Message(document_record({"answer": None, "lacks_examples": True}), reply_to=message)
        return Message(document_record({"answer": signatory.answer_offer(document)}), reply_to=message)

    @app.query(EXAMPLES)
    def examples(message: Message, context: Context) -> Message:
        try:
            signatory_of(context).keep_examples(document_in(message))
        except InputError as error:
            return Message(document_record({"refused": plain(error)}), reply_to=message)
        return Message(document_record({"kept": True}), reply_to=message)

    @app.query(LABELS)
    def labels(message: Message, context: Context) -> Message:
        signatory, asked = signatory_of(context), document_in(message)
        offer_hash = str(asked.get("offer"))
        ready = signatory.has_labels(offer_hash)
        note_stage(signatory.folder, offer_hash, LABELED if ready else LABELING, asked.get("seconds_left"))
        number = None if ready else signatory.labels_so_far(offer_hash)
        return Message(
            document_record({"ready": ready} | ({} if number is None else {"labeled": number})), reply_to=message
        )

    @app.query(NEWS)
    def news(message: Message, context: Context) -> Message:
        signatory_of(context).keep_news(document_in(message))
        return Message(document_record({"heard": True}), reply_to=message)

    @app.query(FINAL)
    def final(message: Message, context: Context) -> Message:
        told = document_in(message)
        word = signatory_of(context).sign_final(str(told.get("offer")), str(told.get("model")))
        return Message(document_record({"word": word}), reply_to=message)

    @app.query(RECEIPT)
    def receipt(message: Message, context: Context) -> Message:
        contradiction = signatory_of(context).keep_receipt(*read_writable_document(text_in(message)))
        if contradiction is not None:
            warn(f"The receipt contradicts what this node sent: {contradiction}.")
        return Message(document_record({"kept": True}), reply_to=message)


def require_from_operator(signatory: Signatory, assignment: ConfigRecord, arrays: ArrayRecord) -> None:
    """Raise InputError unless a training message has the code of the operator whose offer was accepted."""
    key = signatory.code_key(str(assignment["offer"]))
    if not has_code(key, OPERATOR, assignment, "" if key is None else array_bytes_digest(arrays)):
        raise InputError("this message is not from the operator of the accepted offer: its code is wrong.")


def round_record(
    signatory: Signatory, assignment: ConfigRecord, report_digest: str, more: Mapping[str, Any]
) -> ConfigRecord:
    """The record of a report with this digest that says which training message it answers, with a code.

    more  further fields of a masked report
    """
    key = signatory.code_key(str(assignment["offer"]))
    fields = {name: assignment[name] for name in ECHOED if name in assignment}
    return ConfigRecord(with_code(key, PARTICIPANT, {**fields, **more}, report_digest))


def required_code(signatory: Signatory, document: Mapping[str, Any]) -> tuple[str, bytes]:
    """The offer that a query is about and the key of its codes; raise InputError unless it has the operator's code."""
    offer = str(document.get("offer"))
    key = signatory.code_key(offer)
    if key is None or not has_document_code(key, OPERATOR, document):
        raise InputError("this query is not from the operator of the accepted offer: its code is wrong.")
    return offer, key


@contextmanager
def telling_refusals(participant: Participant) -> Iterator[None]:
    """Tell the node's owner too when the node refuses the operator's messages during training."""
    try:
        yield
    except UnlabeledError:
        raise
    except InputError as error:
        words, reason = "Your computer refused a message of the operator: {reason}", untranslated(sentence_of(error))
        sentence = coded("news.refused_message", words, reason=reason)
        participant_folder.put_news(participant.folder, sentence, over=False)
        raise


def client_app(participant_of: ParticipantOf, warn: Callable[[str], None] = lambda _: None) -> ClientApp:
    """The whole app of a participant: query handlers, audition and training; `warn` as in `add_query_handlers`."""
    app = ClientApp()
    add_query_handlers(app, participant_of, warn)

    @app.query(AUDITION_COMMIT)
    def commit(message: Message, context: Context) -> Message:
        participant, asked = participant_of(context), document_in(message)
        offer = participant.accepted_offer(str(asked.get("offer")))
        note_stage(participant.folder, offer.hash, AUDITIONING, asked.get("seconds_left"))
        commitment = participant.commit_audition(offer.hash)
        return Message(document_record({"commitment": commitment}), reply_to=message)

    @app.query(AUDITION_OPEN)
    def open_audition(message: Message, context: Context) -> Message:
        asked = document_in(message)
        offer = str(asked.get("offer"))
        kept = participant_of(context).open_audition(offer, asked.get("word"))
        content = document_record({"offer": offer, "salt": kept.salt})
        content.array_records[MODEL] = model_record(kept.model)
        return Message(content, reply_to=message)

    @app.query(AUDITION_ARRIVED)
    def audition_arrived(message: Message, context: Context) -> Message:
        told = document_in(message)
        participant_of(context).keep_arrival(str(told.get("offer")), told.get("word"))
        return Message(document_record({"kept": True}), reply_to=message)

    @app.query(MASK_TERMS)
    def mask_terms(message: Message, context: Context) -> Message:
        participant, document = participant_of(context), document_in(message)
        offer, key = required_code(participant, document)
        with telling_refusals(participant):
            participant.masking(offer).keep_terms(document.get("terms"))
        return Message(document_record(with_document_code(key, PARTICIPANT, {"kept": True})), reply_to=message)

    def masks_query(
        action: str, answer: Callable[[MaskingClient, int, list[int], Mapping[str, Any]], dict[str, Any]]
    ) -> None:
        """Answer a query on an answered round; its document names the round, the missing and more."""

        @app.query(action)
        def query(message: Message, context: Context) -> Message:
            participant, document = participant_of(context), document_in(message)
            offer, key = required_code(participant, document)
            round_, missing = document.get("round"), document.get("missing")
            if type(round_) is not int or not isinstance(missing, list) or not all(type(one) is int for one in missing):
                raise InputError("the message does not say of which round it is, and who is missing.")
            with telling_refusals(participant):
                told = answer(participant.masking(offer), round_, missing, document)
            return Message(
                document_record(with_document_code(key, PARTICIPANT, {"round": round_} | told)), reply_to=message
            )

    masks_query(MASK_LIST, lambda masks, round_, missing, _: masks.signed_list(round_, missing))
    masks_query(
        MASK_KEYS,
        lambda masks, round_, missing, document: {
            "keys": {
                str(peer): told
                for peer, told in masks.keys_of_missing(round_, missing, document.get("signatures")).items()
            }
        },
    )
    masks_query(
        MASK_SHARES,
        lambda masks, round_, missing, document: masks.shares(
            round_, missing, document.get("signatures"), document.get("shares")
        ),
    )

    @app.train()
    def train(message: Message, context: Context) -> Message:
        assignment, arrays = message.content.get(DOCUMENT), message.content.get(MODEL)
        if not isinstance(assignment, ConfigRecord) or not isinstance(arrays, ArrayRecord):
            raise InputError("the message has no model, or does not say for which offer.")
        participant, offer_hash = participant_of(context), str(assignment["offer"])
        require_from_operator(participant, assignment, arrays)
        common, digest = received_model(arrays)
        asked = asked_round(assignment, digest)
        masks = participant.masking(offer_hash) if participant.job_terms(offer_hash).masked else None
        with telling_refusals(participant), participant.answering(offer_hash, asked, common) as answer:
            made = participant.report(offer_hash, common, asked.round)
            if masks is None:
                report = model_record(made)
                sent_digest, told = array_bytes_digest(report), {}
                answer.sent(sent_digest)
            else:
                numbers, shares = masks.masked(made - common, asked)
                report = model_record(numbers)
                sent_digest, absent = (
                    array_bytes_digest(report),
                    masks.sound_list(asked.round, assignment.get("absent")),
                )
                record = answer.sent(sent_digest, absent)
                told = masks.list_signature(record, record.missing) | {"shares": shares}
        fields = round_record(participant, assignment, sent_digest, told)
        return Message(RecordDict({MODEL: report, ROUND: fields}), reply_to=message)

    return app
