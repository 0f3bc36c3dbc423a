"""A small job whose participants describe themselves as a test says."""

from dataclasses import replace

import ledgers
from small_jobs import small_job_file
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.protocol.enrolment import Roster, limits_of
from truthfl.federation.protocol.server import Operator, conduct_job, job_name
from truthfl.federation.simulated.participants import FIRST_NODE, grid_of, simulated_participants
from truthfl.home import folder as papers
from truthfl.job import read_job
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import secret_from_seed

BEN = FIRST_NODE + 1


class Job:
    """The small job with four simulated people; Ben describes himself as `ben` says."""

    def __init__(self, folder, plans=None, ben=None, **server):
        job = read_job(small_job_file(folder, "rounds = 30", "rounds = 3\nstep_size = 0.5"))
        self.job = replace(job, server=replace(job.server, enrol_seconds=0.01, **server))
        self.folder, self.plans = folder / "out", plans
        self.people = simulated_participants(self.job, self.job.simulated_federation(), self.folder)
        self.grid = grid_of(self.people)
        if ben is not None:
            own = self.people[BEN].describe
            self.people[BEN].describe = lambda: own() | ben

    def enrolled(self, grid=None):
        """The names of those who are taken in, the rejections, and the sentence that Ben is told."""
        with open_ledger(self.folder / "ledger.db", ledgers.KEY) as book:
            shape, server = (8, 8, 1), self.job.server
            roster = Roster(
                grid or self.grid, book, "j", self.job.clients.name, server, shape, limits=limits_of(self.job)
            )
            roster.refresh()
            rejected = [entry.document["reason"] for entry in book.entries("j", "rejection")]
        return list(roster.descriptions), rejected, (papers.news(self.people[BEN].folder) or (None,))[0]

    def go(self, approve=lambda _: True):
        with open_ledger(self.folder / "ledger.db") as book:
            key = kept_key(self.folder / "operator")
            operator = Operator(book, self.folder, key, secret_from_seed(5), 5, approve=approve)
            name = job_name(book, self.job, 5)
            return conduct_job(self.grid, self.job, name, operator, self.plans, lambda *_: None)

    def entries(self):
        with open_ledger(self.folder / "ledger.db") as book:
            return book.entries()
