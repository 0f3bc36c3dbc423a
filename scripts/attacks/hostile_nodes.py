"""Admitted nodes that keep others waiting or send unwanted messages; and another operator's key.

Meanwhile the honest people train under masks. Nodes that answer falsely are in a separate federation.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict

from attacks.federation import HOST, Federation, ledger_check, truthfl
from attacks.jobs import job_text
from attacks.outcomes import Outcome, Stage, outcome
from attacks.people import Person, chosen
from attacks.strangers import connection_of, memory_of, trust_of
from truthfl.federation.deployed.node_connection import REPLY
from truthfl.flower_patches import message_bytes, message_from_bytes, set_task_identity
from truthfl.ledger.signing import new_key, read_key, write_key

ROUNDS, ROUND_SECONDS = 40, 8
SERVER = f"enrol_seconds = 75\nlabel_seconds = 120\nround_seconds = {ROUND_SECONDS}"
MASKED = "[privacy]\nsecure_aggregation = true"
GREEDY = "Flo"
PEOPLE = (
    Person("Ada"),
    Person("Ben"),
    Person("Cleo"),
    Person("Dora", "operator-other-key", words=("--operator", "elsewhere/operator.pub")),
    Person("Sid", "node-silent", "silent"),
    Person("Tess", "node-silent-in-rounds", "silent in rounds"),
)
FALSE_ANSWERS = (
    Person("Ada"),
    Person("Ben"),
    Person("Cleo"),
    Person("Una", "node-names-twice", "names twice"),
    Person("Vic", "node-answers-deep", "answers deep"),
)
ATTACKS = {
    "operator-other-key": "the operator's server offers under another key than Dora was told",
    "replies-unasked": "Flo's node sends eight replies of 16 MB that nobody waits for",
    "reply-costly": "Flo's node answers a question with 5 MB of small values, then with 96 KB of them",
    "node-silent": "Sid's node connects and never answers",
    "node-silent-in-rounds": "Tess accepts, trains alone, and answers no round",
    "node-names-twice": "Una's node signs lists that name those who are missing twice",
    "node-answers-deep": "Vic's node answers with some 990 lists in each other",
}
UNASKED, PIECE = 16_000_000, b"x" * 100_000
MOST_MEMORY, MOST_SECONDS = 20_000_000, 2.0
MOST_GAP = ROUND_SECONDS + 4.0  # seconds between two rounds, on a busy machine


def run(folder: Path, names: set[str]) -> Iterator[Outcome]:
    """Run the federations with the attackers of these attacks."""
    false = {person.attack for person in FALSE_ANSWERS if person.attack} & names
    if names - false:
        yield from run_silent(folder / "silent", names - false)
    if false:
        yield from run_false_answers(folder / "false", false)


def run_false_answers(folder: Path, names: set[str]) -> Iterator[Outcome]:
    """Run both at once: somebody must be missing, so that there are lists to sign."""
    people = [person.name for person in FALSE_ANSWERS]
    made = Federation(folder, job_text(people, rounds=ROUNDS, server=SERVER, rest=MASKED), FALSE_ANSWERS)
    with made.running():
        made.wait_for_end()
    view = made.view()
    sums = [entry for entry in view.rounds if "refused" not in entry.document]
    for person in FALSE_ANSWERS:
        if person.attack in names:
            said = sorted(
                {one.document["reason"] for one in view.rejections if one.document.get("client") == person.name}
            )
            held = view.finished and len(sums) == ROUNDS and not view.delivered.get(person.name)
            held = held and all(view.delivered.get(one.name) == ROUNDS for one in FALSE_ANSWERS if not one.attack)
            words = f"the others' {len(sums)} of {ROUNDS} sums were opened; of {person.name}: {'; '.join(said)}"
            yield outcome(person.attack, held, words, otherwise=f"{words} {made.log('serve')[-600:]}")


def run_silent(folder: Path, names: set[str]) -> Iterator[Outcome]:
    """Run silent and greedy nodes, and another operator's key."""
    people = chosen(PEOPLE, names)
    greedy = {"replies-unasked", "reply-costly"} & names
    everybody = [*(person.name for person in people), *([GREEDY] if greedy else [])]
    made = Federation(folder, job_text(everybody, rounds=ROUNDS, server=SERVER, rest=MASKED), people)
    write_key(new_key(), folder / "elsewhere" / "operator")
    if greedy:
        write_key(new_key(), folder / "people" / GREEDY, GREEDY)
    with made.running(joined=()):
        if "replies-unasked" in names:
            yield unasked(made, "replies-unasked")
        if "reply-costly" in names:
            yield costly(made, "reply-costly")
        for person in people:
            made.join(person)
        if "node-silent" in names:
            made.wait_until(lambda: made.log("serve").count("is there with") >= len(people) - 1)
            known = silent_is_known(made)
        made.wait_for_end()
    if "operator-other-key" in names:
        yield other_key(made, "operator-other-key", "Dora")
    if "node-silent" in names:
        yield silent(made, "node-silent", known)
    if "node-silent-in-rounds" in names:
        yield silent_in_rounds(made, "node-silent-in-rounds", "Tess")


def unasked(made: Federation, attack: str) -> Outcome:
    """Each request is refused at its head, and its connection is closed; little can be sent, and nothing is kept."""
    connection = connection_of(made, read_key(made.folder / "people" / GREEDY))
    connection.greet()
    before, began, sent = memory_of(made), time.monotonic(), 0
    with ExitStack() as stack:
        asked = []
        for _ in range(8):
            one = http.client.HTTPSConnection(HOST, made.port, timeout=20, context=trust_of(made))
            stack.callback(one.close)
            one.putrequest("POST", f"{REPLY}?message=x")
            one.putheader("Content-Length", str(UNASKED))
            one.putheader("Authorization", f"Bearer {connection.token}")
            one.endheaders()
            asked.append(one)
        for _ in range(UNASKED // len(PIECE)):
            for one in tuple(asked):
                try:
                    one.send(PIECE)
                    sent += len(PIECE)
                except OSError:
                    asked.remove(one)
        grown, seconds = memory_of(made) - before, time.monotonic() - began
    connection.leave()
    more = max(grown, 0) / 1e6
    words = f"{sent / 1e6:.1f} of 128 MB could be sent in {seconds:.1f} s; the server needs {more:.0f} MB more"
    return outcome(attack, grown < MOST_MEMORY and sent < UNASKED, words)


def costly(made: Federation, attack: str) -> Outcome:
    """A reply that is too long is not read; the longest allowed reply takes little time and memory."""
    set_task_identity(1)
    replies = [_hostile(count) for count in (300_000, 7_500)]
    connection = connection_of(made, read_key(made.folder / "people" / GREEDY))
    connection.greet()
    message = None
    while message is None:
        found = connection.next_message((connection.token, 0))
        message = None if found is None else message_from_bytes(found[1])
    before, busy = memory_of(made), _cpu_seconds(made)
    refused = ""
    try:
        connection.send_reply(message.metadata.message_id, replies[0])
    except Exception as error:  # raised by the attacker's own code: the server takes no reply that long
        refused = str(error)
    connection.send_reply(message.metadata.message_id, replies[1])
    time.sleep(4.0)  # the server reads it meanwhile
    grown, seconds = memory_of(made) - before, _cpu_seconds(made) - busy
    connection.leave()
    held = bool(refused) and grown < MOST_MEMORY and seconds < MOST_SECONDS
    return outcome(
        attack,
        held,
        f"{refused} The second, of {len(replies[1]):,} bytes, and all else took the server {seconds:.1f} s of "
        f"processor time and {max(grown, 0) / 1e6:.0f} MB",
    )


def other_key(made: Federation, attack: str, name: str) -> Outcome:
    """The offer is refused with a sentence and not kept; the job goes on with the others."""
    said = [line for line in made.log(name).splitlines() if "another key than the operator's has signed" in line]
    kept = list((made.home(name) / "offers").glob("*"))
    held = bool(said) and not kept and made.view().finished and name not in made.pay()
    return outcome(attack, held, f"Dora is told: {said[0] if said else made.log(name)[-300:]}")


def silent_is_known(made: Federation) -> str:
    """The output of the status and of `truthfl remove` for a connected participant who never answered."""
    shown = json.loads(truthfl("status", "--out", "served", "--json", folder=made.folder).stdout)
    here = next(one["connected"] for one in shown["participants"] if one["name"] == "Sid")
    removed = truthfl("remove", "Sid", "--out", "served", "--why", "they are silent", folder=made.folder)
    return f"connected: {here}; remove: {(removed.stdout + removed.stderr).strip()}"


def silent(made: Federation, attack: str, known: str) -> Outcome:
    """Nobody waits for Sid in a round; the operator sees Sid and can remove them."""
    held = made.view().finished and known.startswith("connected: True; ") and "nothing more is asked of Sid" in known
    return outcome(attack, held, f"Sid is seen and removed ({known}); the others' job ended", otherwise=known)


def silent_in_rounds(made: Federation, attack: str, name: str) -> Outcome:
    """The server waits for Tess in few rounds, and in fewer as time goes on; the others lose none."""
    view = made.view()
    times = [datetime.fromisoformat(entry.at).timestamp() for entry in view.rounds]
    waits = [later - earlier for earlier, later in pairwise(times)]
    long = sum(wait > ROUND_SECONDS / 2 for wait in waits)
    code, said = ledger_check(made)
    honest = [person.name for person in made.people if not person.attack]
    held = code == 0 and len(times) == ROUNDS and all(view.delivered.get(one) == ROUNDS for one in honest)
    held = held and long < ROUNDS / 4 and max(waits, default=0.0) < MOST_GAP
    words = (
        f"{long} of {ROUNDS} rounds waited for them, {max(waits, default=0.0):.0f} s at most; the others delivered all"
    )
    return outcome(attack, held, f"{words}, {name} {view.delivered.get(name, 0)}", otherwise=f"{words}? {said}")


def _hostile(count: int) -> bytes:
    """A reply with many small values, each of which needs much more memory than its bytes."""
    message = Message(RecordDict(), dst_node_id=1, message_type="query")
    content = RecordDict({"c": ConfigRecord({str(number): number for number in range(count)})})
    return message_bytes(Message(content, reply_to=message))


def _cpu_seconds(made: Federation) -> float:
    """The processor time that the server has used; 0 if the system does not report it."""
    with suppress(OSError):
        fields = (
            Path(f"/proc/{made.processes['serve'].pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / 100
    return 0.0


STAGE = Stage("nodes that are let in: silent, greedy; another operator's key", ATTACKS, run)
