"""The largest sizes of a `DataJob`, all in one place, each with its reason.

They are checked when a job is read, before anything is trained or written. A job without data has no such limits: its
plan takes as long for any number of rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from truthfl.errors import InputError

if TYPE_CHECKING:
    from truthfl.job.jobs import DataJob

YEAR = 366 * 86_400
SECONDS = ("enrol_seconds", "answer_seconds", "label_seconds", "audition_seconds", "round_seconds")


@dataclass(frozen=True)
class SizeLimit:
    """The largest value of a field, and why there is a limit."""

    field: str
    largest: int
    reason: str


CLIENTS = SizeLimit("[clients] name", 10_000, "each is a node that the server asks, and has rows of the ledger")
SAMPLES = SizeLimit(
    "[clients] dataset_size", 10_000_000, "a simulation holds a copy of all clients' samples, 8 GB of MNIST pictures"
)
PILOT = SizeLimit("[data] pilot_samples", 10_000_000, "they are held in memory")
TEST_SET = SizeLimit("[data] test_samples", 10_000_000, "they are held in memory")
TEST_DRAWS = SizeLimit(
    "[server] test_samples", 10_000_000, "all draws are tested at once, in 2 GB of memory with pictures of 8×8 pixels"
)
ROUNDS = SizeLimit("[training] rounds", 100_000, "each is a row of the ledger, and a plan tries hundreds of trainings")
STEPS = SizeLimit("[training] rounds times local_steps", 1_000_000, "a plan tries hundreds of trainings")
FILTERS = SizeLimit("[model] filters", 1000, "a plan trains many such models at once, in memory")
WAITING = SizeLimit("seconds", YEAR, "nobody waits longer than a year")
NOISE = SizeLimit("[privacy] noise", 1000, "nothing is learned under more noise")
CLIP = SizeLimit("[privacy] clip", 1_000_000, "no gradient is as long")


def require_sizes(job: DataJob) -> None:
    """Raise `InputError` if a size of the job is above its limit."""
    for limit, field, value in _sizes(job):
        if value > limit.largest:
            raise InputError(f"{field} is {_number(value)}; it must be at most {limit.largest:,}: {limit.reason}.")


def _sizes(job: DataJob) -> Iterator[tuple[SizeLimit, str, float]]:
    """Each limit with the name of what is limited in messages, and its value."""
    training, clients = job.training, job.clients
    yield CLIENTS, "the number of [clients]", len(clients)
    yield SAMPLES, f"{SAMPLES.field} of all clients together", sum(clients.dataset_size)
    yield PILOT, PILOT.field, job.data.pilot_samples
    yield TEST_SET, TEST_SET.field, job.data.test_samples or 0
    yield TEST_DRAWS, TEST_DRAWS.field, job.server.test_samples
    yield ROUNDS, ROUNDS.field, training.rounds
    yield STEPS, STEPS.field, training.total_steps
    yield FILTERS, FILTERS.field, job.model.filters
    for name in SECONDS:
        yield WAITING, f"[server] {name}", getattr(job.server, name)
    yield NOISE, NOISE.field, job.privacy.noise
    yield CLIP, CLIP.field, job.privacy.clip


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
