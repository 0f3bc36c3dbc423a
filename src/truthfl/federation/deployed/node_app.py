"""The ClientApp of a participant's node, with the settings of the node that runs it."""

from __future__ import annotations

from flwr.app import Context

from truthfl.federation.participant.client_app import client_app as make_client_app
from truthfl.federation.participant.node_settings import participant_of, settings_from
from truthfl.federation.participant.participant import Participant


def _participant_of(context: Context) -> Participant:
    return participant_of(settings_from(context.node_config))


client_app = make_client_app(_participant_of)
