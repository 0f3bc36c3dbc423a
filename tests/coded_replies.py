"""Changed replies with the code of the participant who sends them, as a participant with other software makes them."""

from flwr.app import ConfigRecord

from truthfl.federation.protocol.messages import (
    CODE,
    MODEL,
    PARTICIPANT,
    ROUND,
    array_bytes_digest,
    code_key,
    with_code,
)
from truthfl.home import participant_folder


def recoded(home, reply, offer_home=None):
    """The same reply with the code of the participant with this folder; unchanged if it has no round or no arrays.

    offer_home  the folder that has the offer; by default her own
    """
    fields, arrays = reply.content.config_records.get(ROUND), reply.content.array_records.get(MODEL)
    if fields is not None and arrays is not None:
        offer = participant_folder.read_offer(offer_home or home, str(fields["offer"]))
        own = offer if offer_home is None else participant_folder.offers(home)[0]
        key = code_key(participant_folder.agreement_key(home, own), offer.job.agreement_key, offer.hash)
        others = {name: value for name, value in fields.items() if name != CODE}
        reply.content[ROUND] = ConfigRecord(with_code(key, PARTICIPANT, others, array_bytes_digest(arrays)))
    return reply
