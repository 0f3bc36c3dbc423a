"""A participant on Flower: a ClientApp that answers the protocol's questions. Looks at `participant`, `messages`."""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from truthfl.errors import InputError
from truthfl.federation.participant.participant import Participant
from truthfl.federation.participant.signatory import Signatory
from truthfl.federation.protocol.messages import (
    ENROL,
    LABELS,
    MODEL,
    NEWS,
    OFFER,
    PAPER,
    RECEIPT,
    ROUND,
    model_in,
    model_record,
    paper_in,
    paper_record,
)

FindSignatory = Callable[[Context], Signatory]
FindParticipant = Callable[[Context], Participant]


def answer_questions(app: ClientApp, find: FindSignatory) -> None:
    """Let this app answer the protocol's questions; `find` says whose node a context is."""

    @app.query(ENROL)
    def enrol(message: Message, context: Context) -> Message:
        return Message(paper_record(find(context).describe()), reply_to=message)

    @app.query(OFFER)
    def offer(message: Message, context: Context) -> Message:
        answer = find(context).consider(paper_in(message))
        return Message(paper_record({"answer": answer}), reply_to=message)

    @app.query(LABELS)
    def labels(message: Message, context: Context) -> Message:
        ready = find(context).labeled(str(paper_in(message).get("offer")))
        return Message(paper_record({"ready": ready}), reply_to=message)

    @app.query(NEWS)
    def news(message: Message, context: Context) -> Message:
        find(context).hear(paper_in(message))
        return Message(paper_record({"heard": True}), reply_to=message)

    @app.query(RECEIPT)
    def receipt(message: Message, context: Context) -> Message:
        find(context).keep_receipt(paper_in(message))
        return Message(paper_record({"kept": True}), reply_to=message)


def client_app(find: FindParticipant) -> ClientApp:
    """The whole app of a participant with pictures: it answers, and trains."""
    app = ClientApp()
    answer_questions(app, find)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        asked, arrays = message.content.get(PAPER), message.content.array_records.get(MODEL)
        if asked is None or arrays is None:
            raise InputError("the message has no model, or does not say for which offer.")
        round_ = int(asked["round"])  # type: ignore[arg-type]
        local = find(context).report(str(asked["offer"]), model_in(arrays), round_)
        content = RecordDict({MODEL: model_record(local)})
        content.config_records[ROUND] = message.content.config_records[PAPER]
        return Message(content, reply_to=message)

    return app
