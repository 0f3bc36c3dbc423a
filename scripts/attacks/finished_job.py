"""The ledger, keys and receipts of a job that `truthfl run` conducted, and the commands that check them.

`truthfl run` uses a federation's protocol in one process; ledger and receipts are the same.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from copy import deepcopy
from pathlib import Path
from typing import Any

from attacks.jobs import job_text
from truthfl.cli.app import main as truthfl_main
from truthfl.federation.simulated.in_process import run_job
from truthfl.job import read_job
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.canonical import canonical_bytes
from truthfl.ledger.entry import CheckedItem, Entry, entry_after, new_salt, row_key
from truthfl.ledger.job_view import job_view
from truthfl.ledger.signing import PrivateKey, read_key
from truthfl.ledger.terms import Agreement

NAMES = ("Ada", "Ben", "Cleo", "Dora")
QUICK = PilotDesign(seeds=2, honest_seeds=6, batch_sizes=(4, 8, 16, 32))
LABEL_COST = 0.3  # low enough that labeling is worthwhile under this contract
LCEME = '[contract]\nkind = "lceme"'


class FinishedJob:
    """A finished job in a folder: its ledger, the operator's key, and the participants' homes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "out"
        self.job_file = folder / "job.toml"
        folder.mkdir(parents=True, exist_ok=True)
        text = job_text(NAMES, rounds=3, server="margin = 100.0", rest=LCEME, label_cost=LABEL_COST)
        self.job_file.write_text(text, encoding="utf-8")
        run_job(read_job(self.job_file), self.folder, design=QUICK)
        self.ledger, self.operator_key = self.folder / "ledger.db", self.folder / "operator"
        with open_for_reading(self.ledger) as ledger:
            self.entries = ledger.entries()
        self.key = read_key(self.operator_key)

    @property
    def agreement(self) -> Agreement:
        """The job's offers; all were accepted."""
        agreement = job_view(self.entries[0].job, self.entries).agreement
        assert agreement is not None
        return agreement

    def receipt_file(self, name: str) -> Path:
        return next((self.folder / "participants" / name / "receipts").glob("*.json"))

    def receipt(self, name: str) -> dict[str, Any]:
        return json.loads(self.receipt_file(name).read_bytes())

    def copy(self, name: str) -> Path:
        """A copy of the folder under another name; returns the ledger in it."""
        return shutil.copytree(self.folder, self.folder.with_name(name)) / "ledger.db"


def command(*words: object) -> tuple[int, str]:
    """Run a truthfl command in this process; return exit code and output."""
    said, before = io.StringIO(), sys.argv
    sys.argv = ["truthfl", *map(str, words)]
    try:
        with redirect_stdout(said), redirect_stderr(said):
            truthfl_main()
    except SystemExit as ended:
        return int(ended.code or 0), said.getvalue()
    finally:
        sys.argv = before
    return 0, said.getvalue()


def chained_anew(
    entries: list[Entry],
    change: Callable[[dict[str, Any], Entry], None] | None = None,
    *,
    without: str = "",
    time: Callable[[Entry], str] = lambda entry: entry.at,
    key: PrivateKey,
) -> list[Entry]:
    """The chain, rewritten by the operator with this key; some entries are changed, left out or have other dates."""
    made: list[Entry] = []
    for entry in entries:
        if entry.kind == without:
            continue
        document = deepcopy(entry.document)
        if change is not None:
            change(document, entry)
        item = CheckedItem(entry.job, entry.kind, entry.key, canonical_bytes(document).decode())
        made.append(entry_after(made[-1] if made else None, item, time(entry), new_salt(), row_key(key)))
    return made
