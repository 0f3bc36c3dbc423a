"""Real rounds without a plan: clients with small digits, offers with custom terms, the in-process grid."""

from dataclasses import replace

import numpy as np

from truthfl.contracts.lceme.contract import lceme
from truthfl.contracts.loss_model import LossModel
from truthfl.contracts.setting import Clients, Training
from truthfl.federation.operator.live_status import LiveWriter
from truthfl.federation.participant.participant import Participant
from truthfl.federation.protocol.enrolment import Roster, wait_for_clients
from truthfl.federation.protocol.final_model import Evaluation
from truthfl.federation.protocol.job_task import model_of
from truthfl.federation.protocol.messages import codes_with_participants
from truthfl.federation.protocol.offers import reach_agreement
from truthfl.federation.protocol.promise import Opening, Promise, TrainingTask, agreement_of
from truthfl.federation.protocol.rounds import TrainingRun, train_rounds
from truthfl.federation.simulated.participants import FIRST_NODE, grid_of
from truthfl.job import ServerSettings
from truthfl.learning.data.datasets import small_digits
from truthfl.ledger.book import open_ledger
from truthfl.ledger.job_view import job_view
from truthfl.ledger.signing import AgreementKey, agreement_line, new_key, public_line
from truthfl.ledger.terms import Agreement

DIGITS = small_digits()
SAMPLES, BATCH, STEP = 30, 10, 0.3


class BareRounds:
    """A job of this many clients that begins with its offers and ends with its last round."""

    def __init__(
        self,
        folder,
        count,
        rounds=4,
        masked=True,
        bound=2.0,
        behaviours=None,
        seconds=0.02,
        rescales=False,
        weights=None,
        momentum=0.0,
    ):
        self.folder, self.count, self.rounds, self.masked, self.bound = folder, count, rounds, masked, bound
        self.rescales, self.weights = rescales, np.arange(1.0, count + 1) if weights is None else np.array(weights)
        self.momentum = momentum
        self.operator, self.agreement_key = new_key(), AgreementKey.generate()
        self.server, self.live = ServerSettings(round_seconds=seconds), LiveWriter(None, "job-1")
        self.people = {
            FIRST_NODE + i: Participant(
                name=f"client {i}",
                samples=SAMPLES,
                samples_for=lambda _, i=i: DIGITS.images[i * SAMPLES : (i + 1) * SAMPLES],
                image_shape=(8, 8, 1),
                labels=lambda _, i=i: DIGITS.labels[i * SAMPLES : (i + 1) * SAMPLES],
                key=new_key(),
                folder=folder / str(i),
                decide=lambda _: True,
                behaviour=(behaviours or {}).get(i, "truthful"),
            )
            for i in range(count)
        }
        self.grid = grid_of(self.people)

    def _agreement(self, roster):
        clients = Clients(
            weight=self.weights / self.weights.sum(),
            gradient_variance=1.0,
            sample_cost=0.01,
            labeling_cost=1.0,
            dataset_size=np.full(self.count, SAMPLES),
            name=list(roster.names),
        )
        training = Training(self.rounds, 1, STEP, self.momentum)
        loss = LossModel(constant=0.1, sampling=np.full(self.count, 0.1), labeling=10.0, reporting=0.1)
        contract = lceme(clients, loss, training, np.full(self.count, float(BATCH)))
        promise = Promise(
            clients,
            training,
            contract,
            expected_loss=0.5,
            report_bounds=((0, self.bound),) if self.bound else (),
            masked=self.masked,
        )
        opening = Opening(0, "0" * 64, public_line(self.operator), agreement_line(self.agreement_key))
        task = TrainingTask({"kind": "softmax", "filters": 8, "penalty": 1e-3}, (8, 8, 1), tuple("0123456789"), 1000)

        def offers(_, version):
            made = agreement_of(promise, roster, opening, task, version)
            terms = replace(made.terms, rescales=self.rescales)
            return {}, Agreement(terms, tuple(replace(offer, job=terms) for offer in made.offers))

        return reach_agreement(roster, offers, self.operator)

    def go(self, grid=None, taking_part=None, validation=None):
        """Train; return the final model and the ledger's view. Of the clients, the first `taking_part` take part."""
        with open_ledger(self.folder / "ledger.db", self.operator) as ledger:
            roster = self._roster(ledger, grid)
            wait_for_clients(roster)
            agreement = self._agreement(roster)
            view = job_view("job-1", ledger.entries())
            self.training = TrainingRun(
                Evaluation(model_of(agreement.terms), DIGITS.take(np.arange(100))),
                agreement,
                self.folder / "checkpoint",
                replace(agreement, offers=agreement.offers[:taking_part]),
                codes_with_participants(self.agreement_key, view),
                {offer.client.name: view.answer_to(offer).document for offer in agreement.offers},
                operator_key=self.operator,
                validation=validation,
            )
            return self._train(ledger, roster)

    def resumed(self, grid=None):
        """Go on after the server's death, as another process does; return the same as `go`."""
        with open_ledger(self.folder / "ledger.db", self.operator) as ledger:
            roster = self._roster(ledger, grid)
            view = job_view("job-1", ledger.entries())
            roster.descriptions |= {name: entry.document for name, entry in view.enrolments.items()}
            roster.refresh()
            return self._train(ledger, roster)

    def _roster(self, ledger, grid):
        names = tuple(person.name for person in self.people.values())
        return Roster(grid or self.grid, ledger, "job-1", names, self.server, (8, 8, 1), live=self.live)

    def _train(self, ledger, roster):
        params = train_rounds(roster, self.training, lambda _: None)
        return params, job_view("job-1", ledger.entries())
