"""Outsiders: another user of the operator's machine, who sends requests to the server and opens the operator's files.

If this script runs as root, the outsider is the user `nobody`; otherwise it is the same user, and file modes show what
others could read.
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from attacks.federation import HOST, Federation
from attacks.outcomes import Outcome, outcome
from truthfl.federation.deployed.node_connection import ADMIT, HELLO, LEAVE, NEXT, REPLY

NOBODY = 65534
ATTACKS = {
    "outsider-asks": "another user of the operator's machine requests all paths of the server, and those of Flower's",
    "outsider-reads": "another user opens ledger, keys, status, homes",
}
FOREIGN = (
    "/",
    "/docs",
    "/metrics",
    "/api/command",
    "/v1/control/start-run",
    "/v1/control/register-node",
    "/v1/runtime/acquire-task",
    "/v1/fleet/pull-messages",
    "/../served/ledger.db",
)
OWN = (HELLO, ADMIT, NEXT, REPLY, LEAVE)
REFUSED = {400, 401, 403}
ASK = """
import http.client, ssl, sys
for path in sys.argv[3:]:
    for method in ("POST", "GET", "PUT"):
        asked = http.client.HTTPSConnection(sys.argv[1], int(sys.argv[2]), context=ssl._create_unverified_context())
        asked.request(method, path, b"[]")
        print(method, path, asked.getresponse().status)
"""
OPEN = """
import os, sys
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_RDONLY))
        print(path)
    except OSError:
        pass
"""


def asks(made: Federation, attack: str) -> Outcome:
    """Only the participants' paths respond, and they refuse everybody without a key."""
    said = [line.split() for line in _as_another_user(ASK, HOST, str(made.port), *FOREIGN, *OWN).splitlines()]
    own = [int(status) for method, path, status in said if path in OWN and method == "POST"]
    others = {int(status) for method, path, status in said if path not in OWN or method != "POST"}
    held = len(own) == len(OWN) and set(own) <= REFUSED and others == {http.client.NOT_FOUND}
    paths = ", ".join(path.rsplit("/", 1)[1] for path in OWN)
    return outcome(attack, held, f"{_who()} got {own} for {paths}, {sorted(others)} for {len(said) - len(own)} others")


def reads(made: Federation, attack: str) -> Outcome:
    """Open every file of the operator's and the participants' folders."""
    homes = [made.home(person.name) for person in made.people]
    paths = [path for folder in (made.served, *homes) for path in (folder, *folder.rglob("*"))]
    private = [*paths, *made.folder.glob("keys/*.key"), made.folder / "keys" / "operator"]
    wide = [path.name for path in private if _others_may_reach(path, made.folder)]
    opened = _as_another_user(OPEN, *map(str, private)).split("\n")[:-1] if _can_be_nobody() else []
    files = sum(path.is_file() for path in private)
    readable = f"readable: {wide[:5]} {opened[:5]}"
    return outcome(attack, not (wide or opened), f"{_who()} opened none of {files} files", otherwise=readable)


def _others_may_reach(path: Path, top: Path) -> bool:
    """Whether the modes of this file and of all folders above it, up to `top`, let others through."""
    return all(one.stat().st_mode & 0o077 for one in (path, *path.parents) if one.is_relative_to(top) and one != top)


def while_running(made: Federation, names: set[str]) -> Iterator[Outcome]:
    """The attacks on a federation that runs."""
    if "outsider-asks" in names:
        yield asks(made, "outsider-asks")


def afterwards(made: Federation, names: set[str]) -> Iterator[Outcome]:
    """The attacks on what a federation has left behind."""
    if "outsider-reads" in names:
        yield reads(made, "outsider-reads")


def _can_be_nobody() -> bool:
    return os.getuid() == 0 and Path("/usr/bin/python3").exists()


def _who() -> str:
    return "the user nobody" if _can_be_nobody() else "a process without a key"


def _as_another_user(code: str, *arguments: str) -> str:
    other: dict[str, object] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if _can_be_nobody() else {}
    python = "/usr/bin/python3" if _can_be_nobody() else str(shutil.which("python3"))
    command = [python, "-I", "-c", code, *arguments]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60, check=False, **other)  # type: ignore[call-overload]
    return str(done.stdout)
