"""Changed replies with the code of the participant who sends them, as a participant with other software makes them."""

from flwr.app import ConfigRecord

from truthfl.federation.protocol.message_codes import CODE, PARTICIPANT, array_bytes_digest, code_key, with_code
from truthfl.federation.protocol.messages import MODEL, ROUND
from truthfl.ledger import participant_folder


def recoded(home, reply):
    """The same reply with the code of the participant with this folder; unchanged if it has no round or no arrays."""
    fields, arrays = reply.content.config_records.get(ROUND), reply.content.array_records.get(MODEL)
    if fields is not None and arrays is not None:
        offer = participant_folder.read_offer(home, str(fields["offer"]))
        key = code_key(participant_folder.agreement_key(home, offer), offer.job.agreement_key, offer.hash)
        others = {name: value for name, value in fields.items() if name != CODE}
        reply.content[ROUND] = ConfigRecord(with_code(key, PARTICIPANT, others, array_bytes_digest(arrays)))
    return reply
