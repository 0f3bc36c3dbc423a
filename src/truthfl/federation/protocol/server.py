"""The server's side of a whole job, from enrolment to receipts.

Every finished step is in the ledger. So a server can be stopped at any time and resumes after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from flwr.app import Array, ArrayRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from truthfl.coded_text import coded, sentence_of, untranslated
from truthfl.contracts.contract import require_collected
from truthfl.errors import TruthflError
from truthfl.federation.operator.approval import Approve, approve_all
from truthfl.federation.operator.commands import ended_news, tell_command
from truthfl.federation.operator.live_status import OVER, TESTING, LiveWriter, read_serving
from truthfl.federation.protocol.auditions import hold_auditions
from truthfl.federation.protocol.enrolment import (
    Roster,
    limits_of,
    tell_latecomers,
    wait_for_clients,
    wait_for_contract,
)
from truthfl.federation.protocol.final_model import (
    Evaluation,
    mean_of_solo_models,
    publish_model,
    published_files,
    solo_file,
    tell_final_model,
)
from truthfl.federation.protocol.job_control import JobControl, JobEndedError
from truthfl.federation.protocol.job_task import model_of
from truthfl.federation.protocol.known_models import require_new_test_set
from truthfl.federation.protocol.messages import NEWS_TIMEOUT, codes_with_participants, model_digest, send_news
from truthfl.federation.protocol.offers import (
    ExampleDelivery,
    kept_instructions,
    left_out_of,
    reach_agreement,
    wait_for_labels,
)
from truthfl.federation.protocol.planned_offers import MakePlan, planned_offers
from truthfl.federation.protocol.promise import Opening
from truthfl.federation.protocol.receipt_delivery import MissedReceipts, deliver_late, send_receipts
from truthfl.federation.protocol.recorder import checkpoint_path
from truthfl.federation.protocol.rounds import TrainingRun, asked_by_contract, lost_part_of, train_rounds
from truthfl.federation.protocol.validation import validation_of
from truthfl.job import DataJob
from truthfl.learning.data.datasets import read_npy
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.training.own_strategy import registered
from truthfl.ledger.book import Ledger
from truthfl.ledger.canonical import commitment, digest, test_set_digest
from truthfl.ledger.entry import row_key_fields
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.settlement import settle
from truthfl.ledger.signing import AgreementKey, PrivateKey, agreement_line, kept_agreement_key, public_line
from truthfl.ledger.terms import OWN, Agreement

WAITING = "waiting for clients"
ActivityProgress = Callable[[str, int, int], None]
"""Called with the current activity, the number of finished steps and the number of all steps, 0 if unknown."""


@dataclass(frozen=True, eq=False)
class Operator:
    """The operator's ledger, folder, signing key, and the secret and seed of the job's draws.

    secret         determines the test draw; published after the test
    seed           determines labels, batches and the initial model; in the offers
    authenticated  whether only nodes with registered keys are admitted
    approve        asked before offers are sent
    simulated      whether participants are simulated: they read no published test set, and nobody waits for the
                   operator's decisions
    live           whether stage, deadlines and connections are written to the folder for other processes, or the object
                   that writes them
    """

    ledger: Ledger
    folder: Path
    key: PrivateKey
    secret: str
    seed: int
    authenticated: bool = False
    approve: Approve = approve_all
    simulated: bool = False
    live: bool | LiveWriter = True

    def agreement_key(self, job: str) -> AgreementKey:
        """The private agreement key of this job, kept in the folder."""
        return kept_agreement_key(self.folder / "agreement-keys" / job)


def job_name(ledger: Ledger, job: DataJob, seed: int, *, again: bool = False) -> str:
    """Return the name of the last job with this content and seed in the ledger; a new name if there is none.

    again  return a new name also if the last job is complete
    """
    stem = digest({"job": job.document(), "seed": seed})[:12]
    number = 1
    while ledger.find(f"{stem}-{number + 1}", "job", "job") is not None:
        number += 1
    name = f"{stem}-{number}"
    return f"{stem}-{number + 1}" if again and is_complete(ledger, name) else name


def is_complete(ledger: Ledger, name: str) -> bool:
    """Whether the job of this name is settled and all its receipts are written, or was ended without a contract."""
    view = job_view(name, ledger.entries(name))
    if view.agreement is None:
        return view.ended is not None
    return len(view.receipts) == len(view.agreement.offers)


def conduct_job(
    grid: Grid, job: DataJob, name: str, operator: Operator, make_plan: MakePlan, progress: ActivityProgress
) -> JobView:
    """Do all steps of the job that are not yet in the ledger; return the view of the finished job."""
    require_collected(job.contract.load())
    ledger, side = operator.ledger, job.server_side()
    ledger.sign_with(operator.key)
    instructions = kept_instructions(job.classes, operator.folder)
    test_set = test_set_digest(side.test.features, side.test.labels)
    test_commitment = commitment(test_set, job.server.test_samples, operator.secret)
    if not operator.simulated and ledger.find(name, "job", "job") is None:
        require_new_test_set(ledger, operator.folder, job)
    agreement_key = operator.agreement_key(name)
    opening = Opening(operator.seed, test_commitment, public_line(operator.key), agreement_line(agreement_key))
    opened = {"job": job.document(), **opening.document(), **row_key_fields(operator.key)}
    ledger.append(name, "job", "job", opened)
    earlier = job_view(name, ledger.entries(name))
    roster = _roster(grid, job, operator, earlier, side.test.features.shape[1:])
    roster.control.tell = partial(tell_command, roster)
    roster.missed = missed = MissedReceipts(roster)
    if earlier.ended is not None and earlier.agreement is None:
        return earlier
    with roster.live, _send_news_on_failure(roster), _end_without_contract(roster):
        progress(WAITING, 0, 0)
        if earlier.agreement is not None:
            wait_for_contract(roster, _still_expected(earlier, roster))
        elif earlier.offers:
            roster.refresh()
        else:
            wait_for_clients(roster)
        progress("planning on pilot data", 0, 0)
        make_offers = partial(planned_offers, roster, job, make_plan, opening, instructions)
        delivery = ExampleDelivery(roster, operator.folder)
        agreement = reach_agreement(roster, make_offers, operator.key, operator.approve, delivery)
        _close_enrolment(roster, agreement)
        if earlier.test is None:
            if not earlier.rounds:
                _label_and_audition(roster, agreement, earlier, operator, side, progress)
            view = job_view(name, ledger.entries(name))
            taking_part, code_keys = view.taking_part, codes_with_participants(agreement_key, view)
            assert taking_part is not None
            checkpoint_file = checkpoint_path(operator.folder, name)
            acceptances = {offer.client.name: view.answer_to(offer).document for offer in agreement.offers}
            model = model_of(agreement.terms, job.task)
            evaluation = Evaluation(model, side.test, side.pilot.data if agreement.terms.calibrated else None)
            training = TrainingRun(
                evaluation,
                agreement,
                checkpoint_file,
                taking_part,
                code_keys,
                acceptances,
                job.aggregation,
                operator.key,
            )
            if agreement.terms.starts_from_solo_models and taking_part.offers:
                models = solo_file(operator.folder / "models", name)
                training = replace(training, from_solo=partial(mean_of_solo_models, view, models))
            if training.rounds and agreement.terms.aggregation != OWN:
                validation = validation_of(side, taking_part, training.weights, agreement.terms.aggregation)
                training = replace(training, validation=validation)
            params = train_rounds(roster, training, lambda rounds: progress("training", rounds, training.rounds))
            _record_early_end(roster, training, model_digest(params))
            roster.live.begin(TESTING)
            tell_final_model(roster, agreement, model_digest(params))
            publish_model(operator.folder, name, params, side.test, evaluation.calibration(params))
            result = evaluation.document(params, job.server.test_samples, operator.secret, test_set)
            ledger.append(name, "test", "test", result)
        settle(ledger, name)
        send_receipts(roster, operator.key)
        missed.finish()
        roster.news.wait(NEWS_TIMEOUT)
        roster.live.begin(OVER)
    return job_view(name, ledger.entries(name))


def deliver_receipts(
    grid: Grid, job: DataJob, name: str, operator: Operator, seconds: float, told: Callable[[str], None]
) -> None:
    """Let clients without their receipt of a finished job join and get it; other arguments as in `deliver_late`.

    The job's data are not needed.
    """
    view = job_view(name, operator.ledger.entries(name))
    assert view.agreement is not None
    roster = _roster(grid, job, operator, view, view.agreement.terms.image_shape)
    roster.contract = frozenset(offer.client.name for offer in view.agreement.offers)
    roster.missed = MissedReceipts(roster)
    with roster.live:
        roster.live.begin(OVER)
        deliver_late(roster, seconds, told)
        roster.news.wait(NEWS_TIMEOUT)


def _roster(grid: Grid, job: DataJob, operator: Operator, view: JobView, shape: tuple[int, ...]) -> Roster:
    """The roster of a job, with the enrolled clients; `shape` of its pictures, if it has pictures."""
    roster = Roster(
        grid,
        operator.ledger,
        view.name,
        job.clients.name,
        job.server,
        shape if job.task.is_pictures else None,
        operator.authenticated,
        limits_of(job),
        task=job.task,
        control=JobControl(operator.ledger, view.name, public_line(operator.key)),
        live=_live_writer(operator, view.name, job.clients.name),
    )
    roster.descriptions |= {client: entry.document for client, entry in view.enrolments.items()}
    return roster


def _still_expected(view: JobView, roster: Roster) -> list[str]:
    """The known participants of a resumed job, without those who have their receipt."""
    agreement = view.taking_part or view.agreement
    assert agreement is not None
    done = {*roster.control.removed, *view.acknowledgements}
    return [offer.client.name for offer in agreement.offers if offer.client.name not in done]


def _close_enrolment(roster: Roster, agreement: Agreement) -> None:
    """Stop enrolling, and tell clients who came too late."""
    view = job_view(roster.job_name, roster.ledger.entries(roster.job_name))
    roster.contract = frozenset(offer.client.name for offer in agreement.offers)
    offered = {key.split("/", 1)[1] for key in view.offers}
    tell_latecomers(roster, {*offered, *(name for plan in view.plans for name in left_out_of(plan.document))})


def _live_writer(operator: Operator, name: str, clients: tuple[str, ...]) -> LiveWriter:
    if isinstance(operator.live, LiveWriter):
        return operator.live
    serving = read_serving(operator.folder) if operator.live else None
    address = "" if serving is None else serving.address
    return LiveWriter(operator.folder if operator.live else None, name, tuple(clients), address)


def _record_early_end(roster: Roster, training: TrainingRun, model: str) -> None:
    """If not all rounds were trained, record the early end, and the rounds of clients who are not always asked.

    Their rounds are counted over the whole contract, by the draws in the offers. This also holds if the model of the
    rounds in the ledger is lost. Then the first round that could not be repeated is recorded too.

    model  the digest of the present model
    """
    rounds, lost = len(roster.ledger.entries(roster.job_name, "round")), lost_part_of(roster, training, model)
    if rounds == training.rounds and lost is None:
        return
    document = {"rounds": rounds, "asked": asked_by_contract(training.taking_part)}
    document |= {} if lost is None else {"lost": lost}
    roster.ledger.append(roster.job_name, "ended", "ended", document)


def _label_and_audition(
    roster: Roster,
    agreement: Agreement,
    earlier: JobView,
    operator: Operator,
    side: ServerSide,
    progress: ActivityProgress,
) -> None:
    """Wait for labels, and hold the audition if the contract pays by one; skip what the ledger already has."""
    clients, labeled = len(agreement.offers), set[str]()
    if not earlier.auditions:
        labeled = wait_for_labels(roster, agreement, lambda labeled: progress("labeling", labeled, clients))
    if agreement.terms.has_solo_models:
        progress("training alone", 0, clients)
        hold_auditions(
            roster,
            agreement,
            labeled,
            operator.folder,
            side,
            operator.secret,
            operator.key,
            lambda committed: progress("training alone", committed, clients),
            0.0 if operator.simulated else agreement.terms.audition_seconds,
        )


@contextmanager
def _end_without_contract(roster: Roster) -> Iterator[None]:
    """If the operator ends the job before there is a contract, record it and tell everybody."""
    try:
        yield
    except JobEndedError:
        roster.ledger.append(roster.job_name, "ended", "ended", {"rounds": 0, "asked": {}})
        command = roster.control.ended
        sentence = ended_news("" if command is None else command.why)
        send_news(roster.grid, roster.node_of.values(), sentence, over=True)
        roster.live.begin(OVER)


@contextmanager
def _send_news_on_failure(roster: Roster) -> Iterator[None]:
    """If the job fails, send the reason to all connected clients."""
    try:
        yield
    except TruthflError as error:
        reason = untranslated(sentence_of(error))
        sentence = coded("news.server_failed", "The operator's server ended the job: {reason}", reason=reason)
        send_news(roster.grid, roster.node_of.values(), sentence, over=True)
        raise


def with_strategy(job: DataJob, strategy: Strategy) -> DataJob:
    """The same job, in which this strategy combines the reports."""
    return replace(job, server=replace(job.server, aggregation=registered(strategy)))


class PaidStrategy:
    """A strategy and the job in which it combines reports.

    strategy  an object; copies of it are used, also in planning
    job       its model is trained as the job says; [server] aggregation is replaced by the strategy
    name      of the job in the ledger; by default, that of the last job with the same content
    """

    def __init__(self, strategy: Strategy, job: DataJob, operator: Operator, *, name: str | None = None) -> None:
        self.job = with_strategy(job, strategy)
        self.operator = operator
        self.name = name or job_name(operator.ledger, self.job, operator.seed)
        self.view: JobView | None = None

    def start(
        self,
        grid: Grid,
        *,
        make_plan: MakePlan = lambda job, side: job.plan(side),
        progress: ActivityProgress = lambda *_: None,
    ) -> Result:
        """Run the job from enrolment to receipts, except what the ledger already has; return the final model."""
        self.view = conduct_job(grid, self.job, self.name, self.operator, make_plan, progress)
        model_file, _ = published_files(self.operator.folder, self.name)
        return Result(arrays=ArrayRecord({"params": Array(read_npy(model_file))}))
