"""Checkpoints after each round, rounds written to the ledger during training, and refusals counted by cause.

A checkpoint has the model and all ledger items that may not be in the ledger yet. It is on the disk before the next
round is asked for. After a crash its items are appended to the ledger, which ignores those it already has, and training
continues from its model. Refusals are counted because a refused node comes back every few seconds, and rows are never
deleted.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from types import TracebackType
from typing import Any

import numpy as np

from truthfl.errors import InputError
from truthfl.federation.protocol.messages import model_digest
from truthfl.files import write_file
from truthfl.learning.models.model import Params
from truthfl.ledger.book import Ledger
from truthfl.ledger.entry import Item

OTHER = "other"  # the cause of refusals that have no code


class RefusalRows:
    """Counts the refusals of one job by cause; after a restart it continues from the last number in the ledger."""

    def __init__(self, ledger: Ledger, job: str) -> None:
        self.ledger, self.job = ledger, job
        self._counts: dict[str, int] | None = None

    def note(self, stage: str, who: str, cause: str, document: Mapping[str, Any]) -> None:
        """Count a refusal; write a row with this document if it is the 1st, 10th, 100th …

        who, cause  who was refused, if known, and why: one of a few short words
        """
        if self._counts is None:
            self._counts = self._recorded()
        place = f"{stage}/{who}/{cause}"
        number = self._counts[place] = self._counts.get(place, 0) + 1
        if number == 10 ** (len(str(number)) - 1):
            key = f"{place}/{number}"
            self.ledger.append(self.job, "rejection", key, {"stage": stage, **document, "count": number})

    def _recorded(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for entry in self.ledger.entries(self.job, "rejection"):
            if "count" in entry.document:
                place, _, number = entry.key.rpartition("/")
                counts[place] = max(counts.get(place, 0), int(number))
        return counts


REPEAT = "remove it, and all rounds are repeated from the first with those who delivered them"
KINDS = ("round", "rejection")  # of a checkpoint's items
BATCH_SECONDS = 0.25  # the rounds of this time are written together
MOST_ROUNDS = 45  # that wait for the ledger


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The model after `rounds` rounds, and the items that may not be in the ledger yet.

    before      the model before the last round, or `params` itself if momentum does not continue that round
    validation  validation's memory of the rounds
    """

    rounds: int
    params: Params
    before: Params
    items: tuple[Item, ...]
    validation: Mapping[str, Any] = field(default_factory=dict)


def checkpoint_path(folder: Path, job: str) -> Path:
    """Where the operator's folder has a job's checkpoint."""
    return folder / "checkpoints" / job


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write atomically: a digest of all that follows, one line of JSON, then the bytes of one or two models."""
    models = [checkpoint.params] if checkpoint.before is checkpoint.params else [checkpoint.params, checkpoint.before]
    header = {
        "rounds": checkpoint.rounds,
        "models": len(models),
        "items": [vars(item) for item in checkpoint.items],
        "validation": checkpoint.validation,
    }
    content = json.dumps(header).encode() + b"\n" + np.ascontiguousarray(models, dtype="<f4").tobytes()
    write_file(path, sha256(content).hexdigest().encode() + b"\n" + content)


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Return the checkpoint in this file; None if there is no such file."""
    try:
        own_digest, _, content = path.read_bytes().partition(b"\n")
        if sha256(content).hexdigest().encode() != own_digest:
            raise ValueError
        line, _, model_bytes = content.partition(b"\n")
        header = json.loads(line)
        items = tuple(Item(**item) for item in header["items"])
        models = list(np.frombuffer(model_bytes, dtype="<f4").astype(np.float32).reshape(header["models"], -1))
        return Checkpoint(int(header["rounds"]), models[0], models[-1], items, dict(header["validation"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"the checkpoint {path} is damaged; {REPEAT}.") from None


def required_fit(path: Path, checkpoint: Checkpoint, job: str, rows: Mapping[int, Mapping[str, Any]]) -> None:
    """Raise InputError unless a checkpoint is of this job and fits its ledger; nothing is appended before.

    rows  the ledger's documents of rounds, by number
    """
    if any(item.job != job or item.kind not in KINDS for item in checkpoint.items):
        raise InputError(f"the checkpoint {path} has rows of another job, or of kinds that no round has; {REPEAT}.")
    known = {item.payload.get("round"): item.payload for item in checkpoint.items if item.kind == "round"} | dict(rows)
    missing = next((number for number in range(1, checkpoint.rounds + 1) if number not in known), None)
    if missing is not None:
        raise InputError(
            f"the checkpoint {path} is of {checkpoint.rounds:,} rounds, and the ledger has no round {missing:,}: it is "
            f"an older one. Put the newer one back; or {REPEAT}."
        )
    if not checkpoint.rounds:
        return
    models, last = {"model": checkpoint.params, "previous": checkpoint.before}, known[checkpoint.rounds]
    if checkpoint.before is checkpoint.params:
        del models["previous"]
    if any(last[name] != model_digest(params) for name, params in models.items()):
        raise InputError(f"the checkpoint {path} has another model than the ledger's; {REPEAT}.")


class Recorder:
    """A context manager with a thread that writes the items of rounds to the ledger, in the order of `put`."""

    def __init__(self, ledger: Ledger, checkpoint_file: Path) -> None:
        self.ledger, self.checkpoint_file = ledger, checkpoint_file
        self.queue: Queue[list[Item] | None] = Queue(MOST_ROUNDS)  # None ends the thread
        self.waiting: deque[list[Item]] = deque()  # by round, those not in the ledger yet
        self.failure: BaseException | None = None
        self.thread = Thread(target=self._write_queue, name="truthfl recorder", daemon=True)

    def __enter__(self) -> Recorder:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.ledger.stop_waiting()
        self.queue.put(None)
        self.thread.join()
        if error is None and self.failure is not None:
            raise self.failure

    def put(
        self, rounds: int, params: Params, before: Params, items: list[Item], validation: Mapping[str, Any]
    ) -> None:
        """Write a checkpoint after `rounds` rounds, queue the last one's items; raise the error of a failed write."""
        if self.failure is not None:
            raise self.failure
        self.waiting.append(items)
        waiting = tuple(item for one in list(self.waiting) for item in one)
        write_checkpoint(self.checkpoint_file, Checkpoint(rounds, params, before, waiting, validation))
        self.queue.put(items)

    def _write_queue(self) -> None:
        ended = False
        while not ended:
            batch, ended = self._next_batch()
            if batch and self.failure is None:
                try:
                    self._write_batch(batch)
                except BaseException as failure:  # raised again in the training thread
                    self.failure = failure

    def _next_batch(self) -> tuple[list[list[Item]], bool]:
        """The rounds queued within BATCH_SECONDS, up to MOST_ROUNDS, and whether they are the last."""
        queued = [self.queue.get()]
        deadline = time.monotonic() + BATCH_SECONDS
        while (
            queued[-1] is not None and len(queued) < MOST_ROUNDS and (seconds_left := deadline - time.monotonic()) > 0
        ):
            try:
                queued.append(self.queue.get(timeout=seconds_left))
            except Empty:
                break
        return [items for items in queued if items is not None], queued[-1] is None

    def _write_batch(self, batch: list[list[Item]]) -> None:
        self.ledger.append_all([item for items in batch for item in items])
        for _ in batch:
            self.waiting.popleft()
