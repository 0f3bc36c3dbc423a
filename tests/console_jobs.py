"""A small job that runs in a thread while others look at it: its steps can be held, its people changed."""

import threading
import time
from contextlib import contextmanager

from audition_jobs import QUICK, audition_job
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.operator.live_status import ServingInfo, write_serving
from truthfl.federation.protocol.server import Operator, conduct_job, job_name
from truthfl.federation.simulated.participants import grid_of, simulated_participants
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import secret_from_seed
from truthfl.ledger.signing import public_line

SEED = 3
PATIENCE = 60  # seconds
HONEST_BUT_BEN = ["truthful", "lazy labeler", "truthful", "truthful"]


class ConsoleJob:
    """The job with its simulated clients; `people` may be changed before it runs.

    hold      at which activity and step it waits for `go_on`
    approve   asked before offers go out
    plan      makes the plan of a job and its operator's data
    server    changes of the job's settings
    """

    def __init__(self, folder, behaviours=HONEST_BUT_BEN, hold=None, approve=None, plan=None, **server):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.hold = folder, hold
        self.job = audition_job(folder, behaviours, **server)
        self.plan = plan or (lambda job, side: job.plan(side, QUICK))
        self.people = simulated_participants(self.job, self.job.simulated_federation(), folder)
        self.approve = approve or (lambda _: True)
        self.held, self._free = threading.Event(), threading.Event()
        self.key, self.ledger = kept_key(folder / "operator"), folder / "ledger.db"
        with open_ledger(self.ledger) as book:
            self.name = job_name(book, self.job, SEED)
        where = (self.name, str(self.ledger), str(folder / "operator"), "fl.example.org", 8443)
        write_serving(folder, ServingInfo(*where, operator=public_line(self.key)))

    def person(self, name):
        return next(one for one in self.people.values() if one.name == name)

    def run(self):
        """To the end, in this thread; gives the view of it."""
        with open_ledger(self.ledger) as book:
            operator = Operator(book, self.folder, self.key, secret_from_seed(SEED), SEED, approve=self.approve)
            grid = grid_of(self.people)
            return conduct_job(grid, self.job, self.name, operator, self.plan, self._note)

    @contextmanager
    def running(self):
        """In a thread of its own; the context waits for its end."""
        thread = threading.Thread(target=self.run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.go_on()
        thread.join(PATIENCE)
        assert not thread.is_alive()

    def go_on(self):
        self._free.set()

    def _note(self, activity, done, _):
        if self.hold == (activity, done):
            self.held.set()
            assert self._free.wait(PATIENCE)


def wait_for(watched, condition):
    """The first status of which this is true."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        status = watched.read()
        if condition(status):
            return status
        time.sleep(0.05)
    raise AssertionError(watched.read())
