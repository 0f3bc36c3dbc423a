"""Let any Flower ClientApp take part in a paid job, without changes to its training code.

Imports `client_app`, `signatory`, `node_settings`, `round_guard`, the protocol's `messages` and `record_digests`,
`ledger.signing` and Flower.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from truthfl.errors import InputError
from truthfl.federation.participant.client_app import add_query_handlers, require_from_operator, round_record
from truthfl.federation.participant.node_settings import decision, settings_from
from truthfl.federation.participant.round_guard import answering, asked_round
from truthfl.federation.participant.signatory import Signatory
from truthfl.federation.protocol.messages import DOCUMENT, MODEL, ROUND, arrays_digest
from truthfl.federation.protocol.record_digests import array_bytes_digest
from truthfl.ledger.signing import read_key

BATCH_SIZE = "batch-size"
Next = Callable[[Message, Context], Message]


def paid(app: ClientApp, samples: Callable[[Context], int]) -> ClientApp:
    """Let this app enrol, answer offers and keep receipts; `samples` returns the number of the node's samples."""
    warn = logging.getLogger("flwr").error
    add_query_handlers(app, lambda context: _signatory(context, samples(context)), warn)
    return app


def assigned_batch(message: Message, context: Context, call_next: Next) -> Message:
    """A Flower mod: sets `batch-size` to the assigned batch size, in the run config and in the message's `config`."""
    assignment = message.content.config_records.get(DOCUMENT) if message.has_content() else None
    if assignment is None or message.metadata.message_type.split(".")[0] != "train":
        return call_next(message, context)
    signatory = _signatory(context, 0)
    offer = signatory.accepted_offer(str(assignment["offer"]))
    arrays = message.content.array_records.get(MODEL, ArrayRecord())
    require_from_operator(signatory, assignment, arrays)
    context.run_config[BATCH_SIZE] = offer.client.batch_size
    config = ConfigRecord(
        dict(message.content.config_records.get("config", {})) | {BATCH_SIZE: offer.client.batch_size}
    )
    other_records = {name: record for name, record in message.content.items() if name != DOCUMENT}
    message.content = RecordDict(other_records | {"config": config})
    with answering(signatory.folder, offer, asked_round(assignment, arrays_digest(arrays))) as sent:
        reply = call_next(message, context)
        if reply.has_content():
            report_digest = array_bytes_digest(reply.content.array_records.get(MODEL, ArrayRecord()))
            sent(report_digest)
            reply.content[ROUND] = round_record(signatory, assignment, report_digest)
    return reply


def _signatory(context: Context, samples: int) -> Signatory:
    """The participant that the node was started for; the setting `data` is left to her app."""
    settings = settings_from({"data": ""} | dict(context.node_config))
    if not settings.key:
        raise InputError("the node was started without a key; truthfl keys participant makes one.")
    return Signatory(
        name=settings.name,
        samples=samples,
        key=read_key(Path(settings.key)),
        folder=Path(settings.home),
        decide=lambda offer: decision(settings, offer),
        labeling_cost=settings.labeling_cost or None,
        sample_cost=settings.sample_cost or None,
    )
