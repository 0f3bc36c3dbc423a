"""A small job that runs in a thread while others look at it: its steps can be held, its people changed."""

import threading
from contextlib import contextmanager

from audition_jobs import QUICK, audition_job
from truthfl.federation.protocol.live_status import AUDITIONING, ENROLLING, LABELING, PLANNING, TRAINING, LiveWriter, now
from truthfl.federation.protocol.operator_folder import kept_key
from truthfl.federation.protocol.server import Operator, conduct_job, job_name
from truthfl.federation.simulated.embedded import grid_of, simulated_participants
from truthfl.ledger.book import open_ledger
from truthfl.ledger.commitment import secret_from_seed

STAGES = {
    "waiting for clients": ENROLLING,
    "planning on pilot data": PLANNING,
    "labeling": LABELING,
    "training alone": AUDITIONING,
    "training": TRAINING,
}
SEED = 3
HONEST_BUT_BEN = ["truthful", "lazy labeler", "truthful", "truthful"]


class ConsoleJob:
    """The job with its simulated clients; `people` may be changed before it runs.

    hold   at which activity and step it waits for `go_on`
    """

    def __init__(self, folder, behaviours=HONEST_BUT_BEN, hold=None, approve=None):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.hold = folder, hold
        self.job = audition_job(folder, behaviours)
        self.people = simulated_participants(self.job, self.job.simulated_federation(), folder)
        self.approve = approve or (lambda _: True)
        self.held, self._free = threading.Event(), threading.Event()
        self.key = kept_key(folder / "operator")
        with open_ledger(self.ledger) as book:
            self.name = job_name(book, self.job, SEED)

    @property
    def ledger(self):
        return self.folder / "ledger.db"

    def run(self):
        """To the end, in this thread; gives the view of it."""
        with (
            open_ledger(self.ledger) as book,
            LiveWriter(self.folder, self.name, self.job.clients.name, "127.0.0.1:8443") as self.live,
        ):
            operator = Operator(book, self.folder, self.key, secret_from_seed(SEED), SEED, approve=self._ask)
            grid = grid_of(self.people)
            return conduct_job(grid, self.job, self.name, operator, lambda job, side: job.plan(side, QUICK), self._note)

    @contextmanager
    def running(self):
        """In a thread of its own, until it is over or the context ends."""
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield self
        finally:
            self.go_on()
            thread.join(60)
            assert not thread.is_alive()

    def go_on(self):
        self._free.set()

    def _ask(self, plan):
        self.live.begin("approving")
        return self.approve(plan)

    def _note(self, activity, done, _):
        self.live.begin(STAGES[activity])
        self.live.change(self._all_are_there)
        if activity == "training" and done:
            self.live.note_round(0.01)
        if self.hold == (activity, done):
            self.held.set()
            assert self._free.wait(60)

    @staticmethod
    def _all_are_there(status):
        for client in status.clients.values():
            client.connected, client.last_seen = True, now()
