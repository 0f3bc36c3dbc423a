"""Participants with impossible descriptions: another's name and key, escape codes, half a letter."""

import os
from pathlib import Path

PARTICIPANT = "truthfl.federation.participant.participant"
CLIENT_APP = "truthfl.federation.participant.client_app"
ESCAPES = "\x1b[2J\x1b]0;owned\x07Eve"


def other_description(**fields):
    """Change fields of the participant's description; a function is called for its field's value."""

    def apply(module):
        honest = module.Participant.describe

        def describe(self):
            return honest(self) | {name: value() if callable(value) else value for name, value in fields.items()}

        module.Participant.describe = describe

    return apply


def key_of_ada():
    """Ada's public key, which everybody may know."""
    line = (Path(os.environ["TRUTHFL_ATTACK_FOLDER"]) / "people" / "Ada.pub").read_text(encoding="utf-8")
    return " ".join(line.split()[:2])


def half_a_letter(module):
    """JSON can spell half of a surrogate pair."""
    honest = module.document_record

    def document_record(document):
        made = honest(document)
        description = document.get("document", {})
        if "samples" in description:
            record = made[module.DOCUMENT]
            record["document"] = record["document"].replace(f'"name":"{description["name"]}"', '"name":"\\ud800"')
        return made

    module.document_record = document_record


CHANGES = {
    "as Ada": {PARTICIPANT: other_description(name="Ada", public_key=key_of_ada)},
    "escape codes": {PARTICIPANT: other_description(name=ESCAPES)},
    "half a letter": {CLIENT_APP: half_a_letter},
}
