"""Misused invitations: guessed, used twice, used late, used under another name, caught by another server, stolen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from attacks.federation import HOST, Federation, truthfl
from attacks.outcomes import Outcome, not_defended, outcome
from attacks.strangers import connection_of
from truthfl.certificates import certificates_in, make_certificates
from truthfl.errors import TruthflError
from truthfl.federation.deployed.invitations import Invitation, read_invitation
from truthfl.federation.deployed.job_server import open_job_server
from truthfl.federation.deployed.node_connection import NodeConnection
from truthfl.ledger.command_rows import new_code
from truthfl.ledger.signing import new_key, public_line

INVITED, GUESSES, A_SECOND_OF_DAYS = "Cleo", 300, 1 / 86400


def guessed(made: Federation, attack: str) -> Outcome:
    invitation(made, attack)  # there is one to be guessed
    said = {admitted(made, INVITED, new_code()) for _ in range(GUESSES)}
    held = not _admissions(made) and all("is not of this server's job" in one for one in said)
    return outcome(attack, held, f"{GUESSES} codes, of 144 bits each, are refused: {'; '.join(said)}")


def expired(made: Federation, attack: str) -> Outcome:
    late = invitation(made, attack, days=A_SECOND_OF_DAYS)
    time.sleep(1.5)
    said = admitted(made, INVITED, late.code)
    return outcome(attack, "was good until" in said and not _admissions(made), f"refused: {said}")


def other_name(made: Federation, attack: str) -> Outcome:
    """Invite a name that is not in the job, and use a valid code under another's name."""
    refused = truthfl("invite", "Zoe", "--out", "served", folder=made.folder)
    code = invitation(made, attack).code
    said = [admitted(made, name, code) for name in ("Zoe", "Ada", "\ud800", "x" * 10_000)]
    held = refused.returncode == 2 and all("is not of this server's job" in one for one in said)
    return outcome(attack, held and not _admissions(made), f"{refused.stderr} The code as Zoe or Ada: {said[0]}")


def other_server(made: Federation, attack: str) -> Outcome:
    """An attacker in between answers with a false server, and does not get the code."""
    heard: list[object] = []
    make_certificates(made.folder / "thief-keys")
    with open_job_server(
        HOST, 0, made.folder / "thief-keys", admit=lambda request: str(heard.append(request))
    ) as server:
        root = certificates_in(made.folder / "keys").root  # as the invitation has it
        said = _admitted(NodeConnection(HOST, server.port, root, new_key()), INVITED, invitation(made, attack).code)
    return outcome(attack, not heard and "does not vouch" in said, f"Cleo's computer refuses: {said}")


def stolen(made: Federation, attack: str) -> Outcome:
    """A thief uses it first. Cleo is told, and the operator can invite Cleo again."""
    code = invitation(made, attack).code
    thief, cleo = admitted(made, INVITED, code), admitted(made, INVITED, code)
    if "is admitted" not in thief or "was used already" not in cleo:
        return outcome(attack, False, f"the thief: {thief} Cleo: {cleo}")
    return not_defended(attack, f"the thief is admitted in Cleo's name; Cleo is told: {cleo}")


def used_twice(made: Federation, attack: str) -> Outcome:
    """Cleo uses the invitation; then somebody who found the file uses it."""
    invitation = made.folder / f"{attack}.invitation"
    code = invitation(made, attack).code
    made.join_invited(INVITED, invitation)
    made.wait_until(lambda: "connected" in made.log(INVITED))
    said = admitted(made, INVITED, code)
    return outcome(attack, "was used already" in said, f"refused: {said}")


def invitation(made: Federation, name: str, days: float = 1.0) -> Invitation:
    """An invitation for Cleo, in a file of this name."""
    path = Path(f"{name}.invitation")
    done = truthfl("invite", INVITED, "--out", "served", "--file", path, "--days", days, folder=made.folder)
    assert done.returncode == 0, done.stderr
    return read_invitation(str(made.folder / path))


def admitted(made: Federation, name: str, code: str) -> str:
    """The server's answer to somebody with a new key who has this code."""
    return _admitted(connection_of(made, new_key()), name, code)


def _admitted(connection: NodeConnection, name: str, code: str) -> str:
    try:
        return connection.admit({"name": name, "code": code, "public_key": public_line(connection.key)})
    except TruthflError as error:
        return str(error)
    finally:
        connection.close()


def _admissions(made: Federation) -> list[str]:
    return list(made.view().admissions)


def while_running(made: Federation, names: set[str]) -> Iterator[Outcome]:
    """The attacks on a server that waits for Cleo; in the last attack, Cleo joins."""
    for attack, (_, judge) in JUDGES.items():
        if attack in names:
            yield judge(made, attack)


JUDGES: dict[str, tuple[str, Callable[[Federation, str], Outcome]]] = {
    "invitation-guessed": ("somebody guesses codes of invitations", guessed),
    "invitation-expired": ("somebody uses Cleo's invitation after its time", expired),
    "invitation-other-name": ("a name that the job does not know is invited, or uses Cleo's code", other_name),
    "invitation-other-server": ("a false server waits for Cleo's code", other_server),
    "invitation-stolen": ("a thief uses Cleo's invitation before Cleo does", stolen),
    "invitation-twice": ("somebody uses Cleo's invitation after Cleo did", used_twice),
}
ATTACKS = {name: words for name, (words, _) in JUDGES.items()}
