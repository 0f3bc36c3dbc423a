"""Attacks on what the operator rules her job with: commands in the ledger without her key, her page without its token.

Imports `federation`, `outcomes`, `strangers` and `truthfl`.
"""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Iterator
from hashlib import sha256
from urllib.parse import urlsplit

from attacks.federation import Federation, ledger_check
from attacks.outcomes import Outcome, outcome
from attacks.strangers import connection_of
from truthfl.federation.deployed.known_keys import LOOK_UP_SECONDS
from truthfl.federation.deployed.node_connection import NotLetInError
from truthfl.ledger.book import open_ledger
from truthfl.ledger.commands import END, REMOVE, new_command
from truthfl.ledger.documents import signed
from truthfl.ledger.signing import new_key, public_line

ATTACKS = {
    "page-without-token": "another user of the operator's machine asks her page",
    "command-forged": "who can write the ledger adds commands that the operator did not sign",
    "admission-forged": "who can write the ledger adds the admission of his own key",
}
PATHS = ("/", "/api/status", "/api/command", "/static/console.js", "/x/api/command", "/?token=", "/x/?token=x")
SECONDS_TO_READ = 3.0


def page_without_token(made: Federation, attack: str) -> Outcome:
    """All paths of the page without its random path, token and cookie."""
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
    """Add rows to the ledger of a running job, which keep its chain whole: end, remove Ada, and nonsense."""
    view = made.view()
    end, remove = new_command(END, view.name, "Eve"), new_command(REMOVE, view.name, "Eve", client="Ada")
    unsigned = {"document": remove.document(), "signature": ""}
    documents = (signed(new_key(), end.document()), unsigned, {"document": [], "signature": 1}, {})
    with open_ledger(str(made.served / "ledger.db")) as ledger:
        for number, document in enumerate(documents, start=len(view.commands) + 1):
            ledger.append(view.name, "command", str(number), document)
    time.sleep(SECONDS_TO_READ)


def forged_admission(made: Federation, attack: str) -> Outcome:
    """A row without the code of an invitation lets nobody in."""
    view, key, digest = made.view(), new_key(), sha256(b"x").hexdigest()
    document = {"client": "Cleo", "public_key": public_line(key), "invitation": digest, "code": "x"}
    with open_ledger(str(made.served / "ledger.db")) as ledger:
        ledger.append(view.name, "admission", digest, document)
    time.sleep(LOOK_UP_SECONDS)
    try:
        connection_of(made, key).greet()
        said = "he is let in"
    except NotLetInError as error:
        said = str(error)
    return outcome(attack, "does not know your key" in said, f"the row does not count: {said}")


def forged_commands(made: Federation, attack: str) -> Outcome:
    """Refused in the ledger, not obeyed, and named by the check."""
    view = made.view()
    said = [str(one.document["reason"]) for one in view.rejections if one.document["stage"] == "command"]
    code, checked = ledger_check(made)
    held = len(said) == 4 and view.ended is None and view.finished and "Ada" in view.settlements and code == 1
    words = f"{len(said)} refused, none obeyed: {'; '.join(said[:2])}. check: {checked}"
    return outcome(attack, held, words, otherwise=f"{words} {made.log('serve')[-500:]}")


def while_running(made: Federation, names: set[str]) -> Iterator[Outcome]:
    """The attacks on a job that runs; commands are forged here, and judged `afterwards`."""
    if "page-without-token" in names:
        yield page_without_token(made, "page-without-token")
    if "admission-forged" in names:
        yield forged_admission(made, "admission-forged")
    if "command-forged" in names:
        forge_commands(made)


def afterwards(made: Federation, names: set[str]) -> Iterator[Outcome]:
    """How a job with forged rows ended."""
    if "command-forged" in names:
        yield forged_commands(made, "command-forged")
