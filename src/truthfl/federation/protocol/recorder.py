"""Rounds go into the book and the model to disk beside the training, not in its way; nothing is lost in a crash.

What is written at a time: first a checkpoint that holds the model and the rounds since the last one, then these rounds
in the book. Whoever comes back after a crash adds the checkpoint's rounds (those that are there already stay as they
are) and goes on from its model. Looks at the ledger and at nothing of Flower.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType

import numpy as np

from truthfl.errors import InputError
from truthfl.files import write_file
from truthfl.learning.model import Params
from truthfl.ledger.book import Ledger
from truthfl.ledger.entry import Item

AT_ONCE = 0.25  # seconds: the rounds of so long are written together, and are all that a crash can undo


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """After so many rounds: the model, and what may not be in the book yet."""

    rounds: int
    params: Params
    items: tuple[Item, ...]


def model_digest(params: Params) -> str:
    """A hash of the model's numbers."""
    return sha256(np.ascontiguousarray(params, dtype="<f4").tobytes()).hexdigest()


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Whole or not at all: the numbers, then a line that says what they are."""
    numbers = np.ascontiguousarray(checkpoint.params, dtype="<f4").tobytes()
    told = {"rounds": checkpoint.rounds, "items": [asdict(item) for item in checkpoint.items]}
    line = json.dumps(told | {"digest": sha256(numbers).hexdigest(), "bytes": len(numbers)}).encode()
    write_file(path, line + b"\n" + numbers)


def read_checkpoint(path: Path) -> Checkpoint | None:
    """The last checkpoint; None where there is none."""
    try:
        line, _, numbers = path.read_bytes().partition(b"\n")
        told = json.loads(line)
        if sha256(numbers).hexdigest() != told["digest"]:
            raise ValueError
        items = tuple(Item(**item) for item in told["items"])
        return Checkpoint(int(told["rounds"]), np.frombuffer(numbers, dtype="<f4").astype(np.float32), items)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"the checkpoint {path} is damaged; remove it to train from the start.") from None


class Recorder:
    """A thread that writes rounds and checkpoints in the order in which they were put; used as a context.

    Without a path there are no checkpoints.
    """

    def __init__(self, book: Ledger, path: Path | None) -> None:
        self.book, self.path = book, path
        self.queue: SimpleQueue[tuple[int, Params, list[Item]] | None] = SimpleQueue()
        self.failure: BaseException | None = None
        self.thread = Thread(target=self._write, name="truthfl recorder", daemon=True)

    def __enter__(self) -> Recorder:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.queue.put(None)
        self.thread.join()
        if error is None and self.failure is not None:
            raise self.failure

    def put(self, rounds: int, params: Params, items: list[Item]) -> None:
        """A round is over: this is the model after so many, and what is to be said of it."""
        if self.failure is not None:
            raise self.failure
        self.queue.put((rounds, params, items))

    def _write(self) -> None:
        ended = False
        while not ended:
            taken = [self.queue.get()]
            until = time.monotonic() + AT_ONCE
            while taken[-1] is not None and (left := until - time.monotonic()) > 0:
                try:
                    taken.append(self.queue.get(timeout=left))
                except Empty:
                    break
            ended = taken[-1] is None
            work = [one for one in taken if one is not None]
            if not work or self.failure is not None:
                continue
            try:
                items = tuple(item for _, _, some in work for item in some)
                if self.path is not None:
                    write_checkpoint(self.path, Checkpoint(work[-1][0], work[-1][1], items))
                self.book.append_all(items)
            except BaseException as failure:  # told to the one who trains
                self.failure = failure
