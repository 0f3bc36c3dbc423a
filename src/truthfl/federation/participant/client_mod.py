"""What somebody's own ClientApp needs to take part in a paid job; her training code stays as it is.

Looks at `client_app`, `signatory`, `node_settings`, and Flower.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from truthfl.errors import InputError
from truthfl.federation.participant.client_app import answer_questions
from truthfl.federation.participant.node_settings import decision, settings_from
from truthfl.federation.participant.signatory import Signatory
from truthfl.federation.protocol.messages import PAPER, ROUND
from truthfl.ledger.signing import read_key

BATCH_SIZE = "batch-size"
Next = Callable[[Message, Context], Message]


def paid(app: ClientApp, samples: Callable[[Context], int]) -> ClientApp:
    """Let this app enrol, pass offers on, and keep receipts; `samples` says how many samples the node holds."""
    answer_questions(app, lambda context: _signatory(context, samples(context)))
    return app


def assigned_batch(message: Message, context: Context, call_next: Next) -> Message:
    """A mod: hands the assigned batch size to the training code, as `batch-size` in the run config and the message."""
    paper = message.content.config_records.get(PAPER) if message.has_content() else None
    if paper is None or message.metadata.message_type.split(".")[0] != "train":
        return call_next(message, context)
    offer = _signatory(context, 0).accepted_offer(str(paper["offer"]))
    context.run_config[BATCH_SIZE] = offer.client.batch_size
    config = ConfigRecord(
        dict(message.content.config_records.get("config", {})) | {BATCH_SIZE: offer.client.batch_size}
    )
    rest = {name: record for name, record in message.content.items() if name != PAPER}
    message.content = RecordDict(rest | {"config": config})
    reply = call_next(message, context)
    if reply.has_content():
        reply.content[ROUND] = paper
    return reply


def _signatory(context: Context, samples: int) -> Signatory:
    """Whoever the node was started for; where her data are is her app's matter."""
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
