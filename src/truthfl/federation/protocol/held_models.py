"""Solo models on which the operator decides before they are paid, and those that an earlier job knows.

They are in the ledger as rows "hold" (`ledger.holds`). The job waits in a stage of its own until the operator has
accepted or refused each, for so long as it waited for solo models. What was tested until then is kept in a file, so
that a server that is started again asks nobody once more.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from truthfl.coded_text import CodedText, coded, moment
from truthfl.errors import InputError
from truthfl.federation.protocol.command_news import clock_time
from truthfl.federation.protocol.enrolment import Roster
from truthfl.federation.protocol.known_models import KnownModels
from truthfl.federation.protocol.live_status import DECIDING
from truthfl.federation.protocol.model_digest import model_digest
from truthfl.federation.protocol.news import HELD
from truthfl.federation.protocol.openings import Opened
from truthfl.files import write_file
from truthfl.learning.array_files import npz_bytes, read_npz
from truthfl.ledger.commands import REFUSE
from truthfl.ledger.entry import Item
from truthfl.ledger.holds import REFUSED, decision_on, known_model, waiting_names
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.solo_evidence import is_too_good, level_shifts
from truthfl.ledger.terms import Agreement

FOLDER = "held"


@dataclass(frozen=True, eq=False)
class Tested:
    """The solo models of a job and their losses, by client; why others have none, or sent another one after it."""

    opened: Mapping[str, Opened]
    losses: Mapping[str, float]
    refused: Mapping[str, str]
    again: Mapping[str, str]


def hold_models(roster: Roster, agreement: Agreement, tested: Tested, known: KnownModels, folder: Path) -> None:
    """Write to the ledger which models are known, or too good to be paid unseen."""
    offers = {offer.client.name: offer for offer in agreement.offers}
    like = known.known({name: one.model for name, one in tested.opened.items()})
    losses = {name: None if name in like else tested.losses.get(name) for name in offers}
    shifts = level_shifts(agreement.offers, losses)
    held = [name for name in offers if name in like or is_too_good(offers[name], losses[name], shifts[name])]
    if not held:
        return
    _keep_tested(folder, roster.job_name, tested)
    items = []
    for name in held:
        document = {
            "client": name,
            "offer": offers[name].hash,
            "model": model_digest(tested.opened[name].model),
            "solo_loss": tested.losses[name],
            "level_shift": shifts[name],
            "known": like[name].document() if name in like else None,
        }
        items.append(Item(roster.job_name, "hold", name, document))
    roster.ledger.append_all(items)


def wait_for_decisions(roster: Roster, seconds: float) -> None:
    """Wait until the operator has decided on each model that is too good, or the time is up."""
    waiting = _waiting(roster)
    if not waiting or not seconds:
        return
    clock, seen = roster.stage(DECIDING, seconds), len(roster.control.commands)
    told: set[str] = set()
    while waiting and not clock.over:
        new = {name for name in waiting if name in roster.node_of} - told
        told |= new
        until = datetime.now(UTC) + timedelta(seconds=clock.seconds_left)
        roster.tell([roster.node_of[name] for name in new], held_news(until), over=False, about=HELD)
        clock.wait()
        roster.refresh()
        if len(roster.control.commands) != seen:
            waiting, seen = _waiting(roster), len(roster.control.commands)


def unpaid_reasons(view: JobView) -> dict[str, str]:
    """Why held models are not paid, by client; a model that the operator has not refused is."""
    reasons: dict[str, str] = {}
    for name, entry in view.holds.items():
        known, decided = entry.document["known"], decision_on(view, name)
        if known is not None:
            reasons[name] = f"The model is nearly {known_model(known)}; it is known already."
        elif decided is not None and decided[1].kind == REFUSE:
            reasons[name] = f"{REFUSED}{decided[1].reason}."
    return reasons


def held_news(until: datetime) -> CodedText:
    """What somebody is told on whose model the operator decides."""
    words = (
        "Your model is better than honest ones are once in 10,000 times. The operator looks at it, and may refuse it "
        "until {time}; otherwise your pay is settled as offered, and paid out once the operator has accepted the model."
    )
    return coded("news.held", words, time=moment(clock_time(until), until.timestamp()))


def _waiting(roster: Roster) -> list[str]:
    return waiting_names(job_view(roster.job_name, roster.ledger.entries(roster.job_name)))


def _keep_tested(folder: Path, job: str, tested: Tested) -> None:
    salts = {name: one.salt for name, one in tested.opened.items()}
    words = {"salts": salts, "losses": dict(tested.losses)}
    words |= {"refused": dict(map(_texts, tested.refused.items())), "again": dict(map(_texts, tested.again.items()))}
    models = np.stack([tested.opened[name].model for name in salts])
    text = np.frombuffer(json.dumps(words).encode(), dtype=np.uint8)
    write_file(_path(folder, job), npz_bytes({"words": text, "models": models}), private=True)


def read_tested(folder: Path, job: str) -> Tested | None:
    """What a server that was stopped had tested before it waited; None if it had not."""
    path = _path(folder, job)
    if not path.exists():
        return None
    arrays = read_npz(path, ["words", "models"])
    try:
        words = json.load(io.BytesIO(arrays["words"].tobytes()))
        opened = {
            name: Opened(salt, model)
            for (name, salt), model in zip(words["salts"].items(), arrays["models"], strict=True)
        }
        return Tested(opened, words["losses"], words["refused"], words["again"])
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} cannot be read; without it job {job} cannot go on.") from None


def _texts(pair: tuple[str, str]) -> tuple[str, str]:
    return pair[0], str(pair[1])


def _path(folder: Path, job: str) -> Path:
    return folder / FOLDER / f"{job}.npz"
