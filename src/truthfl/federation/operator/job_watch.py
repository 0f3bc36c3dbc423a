"""Watch a job from another process by the operator's folder: ledger, live status, waiting plan."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from truthfl.errors import InputError, ServiceError
from truthfl.federation.operator.approval import PlanSummary, is_answered, shown_plan
from truthfl.federation.operator.job_status import JobStatus, StatusReader
from truthfl.federation.operator.kept_jobs import LEDGER_ADDRESS, kept_ledger_address
from truthfl.federation.operator.live_status import APPROVING, LiveStatus, read_live_status, read_serving
from truthfl.ledger.book import Ledger, open_for_reading
from truthfl.ledger.checking import require_contract
from truthfl.ledger.signing import read_public_line

OWN_LEDGER = "ledger.db"


class JobWatch:
    """One job of an operator's folder. Threads may share one if they call `read` one at a time."""

    def __init__(self, folder: Path, ledger: Ledger, job: str) -> None:
        self.folder, self.ledger, self.job = folder, ledger, job
        self._reader = StatusReader(ledger, job)

    def read(self) -> JobStatus:
        """The status now; the same object as before if nothing has changed."""
        return self._reader.read(self.live())

    @property
    def operator_key(self) -> str:
        """The public key whose commands the job's server obeys; "" before the job has begun."""
        return self._reader.job.commands.operator_key

    def live(self) -> LiveStatus | None:
        """The server's last live status; None if there is none."""
        return read_live_status(self.folder)

    def waiting_plan(self) -> PlanSummary | None:
        """The plan that waits for the operator's approval; None if there is none."""
        live = self.live()
        if live is None or live.job != self.job or live.stage != APPROVING or not live.is_current:
            return None
        try:
            plan = shown_plan(self.folder)
            return None if plan is None or is_answered(self.folder, plan) else plan
        except (InputError, OSError, KeyError, TypeError):
            return None


@contextmanager
def job_watch(folder: Path, ledger_address: str | None = None, job: str | None = None) -> Iterator[JobWatch]:
    """Watch this job; by default, the job for which the folder's server last started, or the ledger's last job.

    With the ledger's address and the job given, a job that has not begun can be watched, as by its server's process.
    """
    with open_for_reading(ledger_address or ledger_address_of(folder), operator_of(folder)) as ledger:
        known = job is not None and ledger_address is not None
        name = job if job is not None and known else _chosen(ledger, job, folder)
        begun = ledger.find(name, "job", "job")
        if begun is not None:
            require_contract(begun)
        yield JobWatch(folder, ledger, name)


def operator_of(folder: Path) -> str | None:
    """The public key of the operator of this folder; None if it is not there, or cannot be read."""
    serving = read_serving(folder)
    key = folder / "operator" if serving is None or not serving.key else Path(serving.key)
    try:
        return read_public_line(key.with_name(f"{key.name}.pub"))
    except InputError:
        return None


def ledger_address_of(folder: Path) -> str:
    """The address of the ledger of the jobs in this folder; for simulated jobs, the file in it."""
    try:
        names = set(os.listdir(folder))
    except FileNotFoundError:
        raise InputError(
            f"{folder} is not there; name the folder of truthfl serve or truthfl run with --out."
        ) from None
    except NotADirectoryError:
        raise InputError(f"{folder} is not a folder; name a folder of truthfl serve or run with --out.") from None
    except PermissionError:
        raise ServiceError(f"only its owner can read {folder}; run this under the operator's account.") from None
    except OSError as error:
        raise ServiceError(f"{folder} cannot be read: {error.strerror}.") from None
    if LEDGER_ADDRESS in names:
        return kept_ledger_address(folder)
    if OWN_LEDGER in names:
        return str(folder / OWN_LEDGER)
    raise InputError(f"{folder} has no job yet; truthfl serve and truthfl run put one there.")


def _chosen(ledger: Ledger, job: str | None, folder: Path) -> str:
    """The job that was named, or the folder's last; other operators may write to the same ledger."""
    jobs, serving = ledger.jobs(), read_serving(folder)
    last = serving.job if serving is not None else jobs[-1] if jobs else None
    chosen = last if job is None else job
    if chosen is None or chosen not in jobs:
        wanted = f"{folder} has no job in it yet" if job is None else f"job is {job!r}, which is not in it"
        raise InputError(f"{ledger.name}: {wanted}; it has {', '.join(jobs) or 'none'}.")
    return chosen
