"""Who is there: nodes are asked who they are, and taken in if the job knows them.

Looks at `ask_nodes`, `messages`, `notices`, `node_keys`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.serverapp import Grid

from truthfl.errors import InputError, ServiceError
from truthfl.federation.protocol.ask_nodes import ask
from truthfl.federation.protocol.messages import ENROL, paper_in, question
from truthfl.federation.protocol.node_keys import registrations
from truthfl.federation.protocol.notices import tell
from truthfl.job import ServerSettings
from truthfl.ledger.book import Ledger
from truthfl.ledger.signing import normal_public_line
from truthfl.mechanism.checks import number, whole_number

LOOK_EVERY = 2.0  # seconds
ANSWER_WITHIN = 60.0
SHORTEST_PATIENCE = 10.0


@dataclass(eq=False)
class Roster:
    """Which node is which client.

    names          whom the job knows
    image_shape    of the job's pictures; None where the server does not know what clients train on
    authenticated  nodes are registered with Flower, by name and key: clients must be who they are registered as
    described      what each client said of herself, as it stands in the book
    """

    grid: Grid
    book: Ledger
    job_name: str
    names: tuple[str, ...]
    server: ServerSettings
    image_shape: tuple[int, ...] | None
    authenticated: bool = False
    described: dict[str, dict[str, Any]] = field(default_factory=dict)
    node_of: dict[str, int] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)

    def look(self) -> None:
        """Forget nodes that are gone, ask new ones who they are."""
        there = set(self.grid.get_node_ids())
        self.node_of = {name: node for name, node in self.node_of.items() if node in there}
        self.asked &= there
        strangers = sorted(there - self.asked)
        if not strangers:
            return
        questions = [question(ENROL, node, {"job": self.job_name}) for node in strangers]
        registered = registrations(self.grid) if self.authenticated else {}
        for node, reply in ask(self.grid, questions, timeout=self._patience()):
            if node not in strangers or reply.has_error():
                continue  # asked again at the next look
            self.asked.add(node)
            try:
                told = described(paper_in(reply), self.image_shape)
                if self.authenticated and registered.get(node) != (told["name"], told["public_key"]):
                    raise InputError(f"{told['name']} is not whom this node is registered for.")
                self._take_in(node, told)
            except InputError as error:
                self._refuse(node, str(error))

    def _patience(self) -> float:
        """Who answers later than a round lasts would miss the round anyway; a dead node holds up all the others."""
        return min(ANSWER_WITHIN, max(SHORTEST_PATIENCE, self.server.round_seconds))

    def _take_in(self, node: int, told: dict[str, Any]) -> None:
        name = told["name"]
        if name not in self.names:
            raise InputError(f"{name!r} is not among the job's clients.")
        before = self.described.get(name)
        if before is not None and before["public_key"] != told["public_key"]:
            raise InputError(f"{name} enrolled with another key.")
        if name in self.node_of:
            raise InputError(f"{name} is there already, on another node.")
        if before is None:
            self.book.append(self.job_name, "enrolment", name, told)
            self.described[name] = told
        self.node_of[name] = node

    def _refuse(self, node: int, reason: str) -> None:
        key = f"enrolment/{node}/{time.time_ns()}"
        said = {"stage": "enrolment", "round": None, "client": None, "node": str(node), "reason": reason}
        self.book.append(self.job_name, "rejection", key, said)
        tell(self.grid, [node], f"The operator's server does not take you in: {reason}", over=True)


def described(told: Mapping[str, Any], image_shape: tuple[int, ...] | None) -> dict[str, Any]:
    """What a client says of herself, if it can be used."""
    wanted = {"name", "samples", "public_key"} | (set() if image_shape is None else {"image_shape"})
    costs = {"labeling_cost", "sample_cost"}
    if not wanted <= set(told) <= wanted | costs:
        raise InputError(f"a client describes herself with {', '.join(sorted(told)) or 'nothing'}.")
    if not isinstance(told["name"], str) or not 0 < len(told["name"]) <= 200:
        raise InputError(f"name is {str(told['name'])[:200]!r}; it must be a text of at most 200 letters.")
    key = normal_public_line(str(told["public_key"]))
    if image_shape is not None and told["image_shape"] != list(image_shape):
        raise InputError(f"{told['name']}'s pictures are {told['image_shape']}; the job's are {list(image_shape)}.")
    samples = whole_number("samples", told["samples"], at_least=1)
    asked_for = {name: number(name, told[name], positive=True) for name in sorted(costs & set(told))}
    return {"name": told["name"], "samples": samples, "public_key": key, **asked_for}


def wait_for_clients(roster: Roster) -> None:
    """Until all of the job's clients are there, or time is up and some are."""
    deadline = time.monotonic() + roster.server.enrol_seconds
    while True:
        roster.look()
        if len(roster.described) == len(roster.names) or time.monotonic() >= deadline:
            break
        time.sleep(min(LOOK_EVERY, max(0.0, deadline - time.monotonic())))
    if not roster.described:
        raise ServiceError(f"no client enrolled within {roster.server.enrol_seconds:g} seconds.")
