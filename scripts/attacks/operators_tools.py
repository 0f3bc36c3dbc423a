"""Attacks on the operator's tools: forged commands in the ledger, and the page without its token."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Iterator
from hashlib import sha256
from urllib.parse import urlsplit

from attacks.federation import Federation, ledger_check, truthfl
from attacks.outcomes import Outcome, outcome
from attacks.row_writers import BY_NOBODY, slip_in
from attacks.strangers import connection_of
from truthfl.federation.deployed.admission import LOOK_UP_SECONDS
from truthfl.federation.deployed.node_connection import NotLetInError
from truthfl.ledger.commands import END, REMOVE, new_command
from truthfl.ledger.documents import signed
from truthfl.ledger.signing import new_key, public_line

ATTACKS = {
    "page-without-token": "another user of the operator's machine requests the operator's page",
    "command-forged": "somebody who can write the ledger adds commands of their own, and an old one of the operator's",
    "audition-forged": "somebody who can write the ledger adds commitments and passed auditions",
    "admission-forged": "somebody who can write the ledger adds the admission of their own key",
}
PATHS = ("/", "/api/status", "/api/command", "/static/console.js", "/x/api/command", "/?token=", "/x/?token=x")
SECONDS_TO_READ = 3.0


def page_without_token(made: Federation, attack: str) -> Outcome:
    """Request all paths of the page without its random path, token and cookie."""
    found = re.search(r"http://\S+", made.log("serve"))
    assert found is not None, made.log("serve")
    place, statuses = urlsplit(found.group()), set()
    for path in (*PATHS, place.path, f"{place.path}api/status", f"{place.path}?token=x"):
        for method in ("GET", "POST"):
            asked = http.client.HTTPConnection(str(place.hostname), place.port or 0, timeout=10)
            asked.request(method, path, json.dumps({"kind": "end", "why": "x"}) if method == "POST" else None)
            statuses.add(asked.getresponse().status)
            asked.close()
    held = statuses == {http.client.FORBIDDEN} and made.view().end_command is None
    return outcome(attack, held, f"{2 * len(PATHS) + 6} requests got {sorted(statuses)}, with its random path too")


def forge_commands(made: Federation) -> None:
    """Add rows to the ledger of a running job, which keep its chain whole: end, remove Ada, nonsense, an old pause."""
    for word in ("pause", "resume"):
        given = truthfl(word, "--out", "served", "--key", "keys/operator", folder=made.folder)
        assert given.returncode == 0, given.stderr
    view = made.view()
    end, remove = new_command(END, view.name, "Eve"), new_command(REMOVE, view.name, "Eve", client="Ada")
    unsigned = {"document": remove.document(), "signature": ""}
    pause = view.commands[-2].document
    documents = (pause, signed(new_key(), end.document()), unsigned, {"document": [], "signature": 1}, {})
    for number, document in enumerate(documents, start=len(view.commands) + 1):
        slip_in(made.served / "ledger.db", view.name, "command", str(number), document)
    time.sleep(SECONDS_TO_READ)


def forged_admission(made: Federation, attack: str) -> Outcome:
    """A row without the code of an invitation lets nobody in."""
    view, key, digest = made.view(), new_key(), sha256(b"x").hexdigest()
    document = {"client": "Cleo", "public_key": public_line(key), "invitation": digest, "code": "x"}
    slip_in(made.served / "ledger.db", view.name, "admission", digest, document)
    time.sleep(LOOK_UP_SECONDS)
    try:
        connection_of(made, key).greet()
        said = "they are let in"
    except NotLetInError as error:
        said = str(error)
    return outcome(attack, "does not know your key" in said, f"the row does not count: {said}")


def forge_auditions(made: Federation) -> None:
    """Claim, too early, that all have committed themselves and passed with no loss at all."""
    view = made.view()
    for person in made.people:
        offer, digest = "ab" * 32, "cd" * 32
        committed = {"client": person.name, "offer": offer, "commitment": digest}
        result = {"client": person.name, "offer": offer, "model": digest, "salt": digest, "solo_loss": 0.0}
        result |= {"level_shift": 0.0, "passed": True, "reason": None}
        slip_in(made.served / "ledger.db", view.name, "commitment", person.name, committed)
        slip_in(made.served / "ledger.db", view.name, "audition", person.name, result)


def forged_commands(made: Federation, attack: str) -> Outcome:
    """The rows are not obeyed, the operator is told, and the check names them; the old pause has no effect."""
    view = made.view()
    code, checked = ledger_check(made)
    told = [line for line in made.log("serve").splitlines() if "counts for nothing" in line]
    obeyed = view.ended is not None or len(view.valid_commands) != len(view.commands)
    held = bool(told) and not obeyed and view.finished and "Ada" in view.settlements and code == 1
    words = f"none is obeyed; the operator is told: {told[:1]} check: {checked}"
    return outcome(attack, held, words, otherwise=f"{words} {made.log('serve')[-500:]}")


def forged_auditions(made: Federation, attack: str) -> Outcome:
    """The real auditions count, and pay follows from them."""
    view = made.view()
    losses = {name: entry.document["solo_loss"] for name, entry in view.auditions.items()}
    settled = {name: entry.document["solo_loss"] for name, entry in view.settlements.items()}
    code, checked = ledger_check(made)
    held = losses == settled and set(losses) >= {"Ada", "Ben"} and all(loss != 0.0 for loss in losses.values())
    words = f"pay is by the real losses, {losses}. check: {checked}"
    return outcome(attack, held and code == 1 and BY_NOBODY in checked, words)


def while_running(made: Federation, names: set[str]) -> Iterator[Outcome]:
    """The attacks on a running job; commands are forged here and judged `afterwards`."""
    if "page-without-token" in names:
        yield page_without_token(made, "page-without-token")
    if "admission-forged" in names:
        yield forged_admission(made, "admission-forged")
    if "command-forged" in names:
        forge_commands(made)
    if "audition-forged" in names:
        forge_auditions(made)


def afterwards(made: Federation, names: set[str]) -> Iterator[Outcome]:
    """How a job with forged rows ended."""
    if "command-forged" in names:
        yield forged_commands(made, "command-forged")
    if "audition-forged" in names:
        yield forged_auditions(made, "audition-forged")
