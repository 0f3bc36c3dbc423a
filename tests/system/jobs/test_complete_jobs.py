"""The same command after completion opens no second job, and pays nothing twice, unless it is told to."""

import shutil

import pytest

from helpers.small_jobs import (
    finished_job,
    known_plans,  # noqa: F401
)
from truthfl.federation.simulated.in_process import run_job
from truthfl.job import read_job
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.ledger.book import open_ledger

QUICK = PilotDesign(seeds=3, honest_seeds=8, batch_sizes=(4, 8, 16, 32))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return shutil.copytree(finished_job(tmp_path_factory), tmp_path_factory.mktemp("complete") / "job")


@pytest.fixture(scope="module")
def job_file(folder):
    """The file of a job that is complete in the ledger of this folder."""
    return folder / "job.toml"


def rows(folder):
    with open_ledger(folder / "out" / "ledger.db") as book:
        return book.entries()


def test_a_simulated_job_is_shown_once_more(folder, job_file):
    before = rows(folder)
    outcome = run_job(read_job(job_file), folder / "out", design=QUICK)
    assert rows(folder) == before
    assert outcome.view.name == before[0].job
    assert outcome.pay.tolist() == [entry.document["pay"] / 100 for entry in before if entry.kind == "settlement"]


def test_somebody_who_says_so_gets_another_job(folder, job_file):
    first = rows(folder)[0].job
    outcome = run_job(read_job(job_file), folder / "out", design=QUICK, again=True)
    assert (first[-2:], outcome.view.name) == ("-1", f"{first[:-2]}-2")
    assert run_job(read_job(job_file), folder / "out", design=QUICK).view.name == outcome.view.name
