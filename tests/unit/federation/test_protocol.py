"""The protocol in process: the same model as the trainers', strangers' replies, drop-outs, refusals, resumption."""

import json
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from helpers.participants import changed, recoded
from helpers.small_jobs import (
    known_plans,  # noqa: F401
    small_job_file,
)
from truthfl.contracts.setting import Training
from truthfl.errors import InputError
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.participant.round_guard import received_models
from truthfl.federation.protocol import server
from truthfl.federation.protocol.final_model import audit, published_files
from truthfl.federation.protocol.messages import ENROL, MODEL, ROUND, ask_nodes, query_message
from truthfl.federation.protocol.offers import DECLINED_NEWS, LATE_LABELS_NEWS
from truthfl.federation.protocol.reports import report_rule
from truthfl.federation.protocol.server import Operator, conduct_job, job_name
from truthfl.federation.simulated.in_process import run_job
from truthfl.federation.simulated.participants import (
    FIRST_NODE,
    InProcessGrid,
    grid_of,
    participant_builder,
    simulated_participants,
)
from truthfl.flower_patches import set_origin
from truthfl.home import participant_folder
from truthfl.job import PrivacySettings, participants, read_job
from truthfl.learning.people.behaviour import Behaviour, Unlabeled
from truthfl.learning.people.behaviours import BEHAVIOURS, behaviour
from truthfl.learning.people.profile import Profile
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.learning.training.plain import train_plainly
from truthfl.learning.training.train import train
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import secret_from_seed
from truthfl.ledger.checking import check
from truthfl.ledger.receipts import receipt_fault
from truthfl.page.documents import receipt_check
from truthfl.page.receipt_check import asked_rounds_fault

QUICK = PilotDesign(seeds=3, honest_seeds=8, batch_sizes=(4, 8, 16, 32))
STEP = "rounds = 30", "rounds = 12\nstep_size = 0.5"


def nothing(*_):
    """Nobody watches."""


@pytest.fixture(scope="module")
def plans():
    """Plans, made once per set of clients: they are not what is tested here."""
    made = {}

    def plan(job, side):
        told = job.document()
        del told["clients"]["behaviour"]  # which a plan does not know
        key = json.dumps(told, sort_keys=True)
        if key not in made:
            made[key] = job.plan(side, QUICK)
        return made[key]

    return plan


class Setting:
    """A small job with its simulated grid and an operator's desk, run by hand."""

    def __init__(self, folder, plans, job=None, seed=5):
        self.job = job or read_job(small_job_file(folder, *STEP))
        self.folder, self.plans, self.seed = folder / "out", plans, seed
        self.scene = self.job.simulated_federation()
        names = self.job.clients.behaviour
        self.labels = Profile(names, 1).labels(self.scene.federated, seed)
        self.people = simulated_participants(self.job, self.scene, self.folder, self.labels)
        self.grid = grid_of(self.people)

    def go(self, grid=None, again=False):
        with open_ledger(self.folder / "ledger.db") as book:
            key = kept_key(self.folder / "operator")
            operator = Operator(book, self.folder, key, secret_from_seed(self.seed), self.seed, simulated=True)
            name = job_name(book, self.job, self.seed, again=again)
            return conduct_job(grid or self.grid, self.job, name, operator, self.plans, nothing)

    def model(self, found):
        return np.load(self.folder / "models" / f"{found.name}.npy")


@pytest.fixture
def setting(tmp_path, plans):
    return Setting(tmp_path, plans)


@pytest.fixture
def impatient(tmp_path, plans):
    """The same with a server that waits for reports no longer than it takes to miss them."""
    job = read_job(small_job_file(tmp_path, *STEP))
    return Setting(tmp_path, plans, replace(job, server=replace(job.server, round_seconds=0.02)))


class Meddler(InProcessGrid):
    """A grid on which replies are changed on their way; `change(reply)` gives the replies that arrive instead."""

    def __init__(self, grid, change):
        self.__dict__.update(vars(grid))
        self.change = change

    def pull_messages(self, message_ids):
        return [one for reply in super().pull_messages(message_ids) for one in self.change(reply)]


def sent_by(node, content, like):
    """A reply with other contents, or from another node."""
    made = Message(content, reply_to=like)
    question = like.metadata.reply_to_message_id if node == like.metadata.src_node_id else "another"
    set_origin(made, node, question)
    return made


def of_training(reply):
    return reply.metadata.message_type == "train" and not reply.has_error()


def behaving(folder, behaviours, step=STEP):
    """The small job with clients who behave so."""
    job = read_job(small_job_file(folder, *step))
    return job.with_clients(participants(**job.document()["clients"] | {"behaviour": behaviours}))


def by_the_trainers(setting, found):
    """The job's final model by the fast trainer and by the plain loop."""
    terms = found.agreement.terms
    federated = replace(setting.scene.federated, training=terms.training, rule=report_rule(terms))
    batches = [offer.client.batch_size for offer in found.agreement.offers]
    profile = Profile(setting.job.clients.behaviour, batches)
    return train(federated, profile, setting.seed), train_plainly(federated, profile, setting.seed)


EVERY = sorted(BEHAVIOURS)


def mixed(name, unlabeled=Unlabeled.DRAWN, **traits):
    """A custom behaviour that does several things at once."""
    honest = {"labels_honestly": False, "computes_honestly": False, "reports_honestly": False}
    return Behaviour(name, "Does several things.", **honest, unlabeled=unlabeled, **traits)


MIXED = [
    mixed("own model", Unlabeled.OWN_MODEL, labeling_effort=0.2, batch_share=0.2, error_rate=0.2),
    mixed("neighbours", Unlabeled.NEAREST, labeling_effort=0.2, report_scale=0.5, error_rate=0.2),
    mixed("falling", labeling_effort=0.3, last_report_scale=0.0),
    mixed("falling parrot", Unlabeled.PREDICTED, labeling_effort=0.3, report_scale=2.0, last_report_scale=0.0),
    mixed("falling few", Unlabeled.LEFT_OUT, labeling_effort=0.2, last_report_scale=0.1),
    mixed("rising", Unlabeled.OWN_MODEL, labeling_effort=0.2, report_scale=0.0, last_report_scale=2.0),
]


@pytest.mark.parametrize(("local_steps", "momentum"), [(1, 0.0), (3, 0.0), (1, 0.5)])
@pytest.mark.parametrize("some", [EVERY[k : k + 3] for k in range(0, len(EVERY), 3)], ids=", ".join)
def test_the_federation_trains_the_same_model_as_the_trainers(tmp_path, plans, some, local_steps, momentum):
    training = f"step_size = 0.3\nlocal_steps = {local_steps}\nmomentum = {momentum}"
    step = "rounds = 30", f"rounds = 12\n{training}"
    trains_the_same(tmp_path, plans, [*some, "exaggerator", "truthful", "truthful"][:4], step)


@pytest.mark.parametrize("some", [MIXED[:3], MIXED[3:]], ids=["first", "second"])
@pytest.mark.parametrize("masked", [False, True], ids=["seen one by one", "masked"])
def test_the_federation_trains_the_same_model_whatever_one_client_does_at_once(tmp_path, plans, some, masked):
    job = behaving(tmp_path, [*some, "truthful"], STEP)
    if masked:
        job = replace(job, privacy=PrivacySettings(), training=replace(job.training, momentum=0.5))
    _, found = trains_the_same(tmp_path, plans, [*some, "truthful"], STEP, job)
    assert found.agreement.terms.masked == masked


def test_the_federation_trains_the_same_model_under_a_robust_rule(tmp_path, plans):
    lively = ["truthful", "exaggerator", "echo", "free rider"]
    step = "rounds = 30", "rounds = 12\nstep_size = 0.3"
    job = behaving(tmp_path, lively, step)
    job = replace(job, server=replace(job.server, aggregation="median"))
    _, found = trains_the_same(tmp_path, plans, lively, step, job)
    assert found.agreement.terms.aggregation == "median"


def test_a_clients_own_model_is_trained_at_the_step_size_that_the_offer_tells(tmp_path, plans):
    """The job file says none: it is found in planning, after the labels of the others were made."""
    lively = [MIXED[0], MIXED[5], "truthful", "truthful"]
    setting, found = trains_the_same(tmp_path, plans, lively, ("rounds = 30", "rounds = 12"))
    terms, federated = found.agreement.terms, setting.scene.federated
    assert terms.step_size != federated.training.step_size
    known = replace(federated, training=terms.training)
    labels = Profile(lively, 1).labels(known, setting.seed)
    assert (labels != setting.labels).any(), "which step size it is matters"
    built = participant_builder(setting.job, setting.folder, setting.seed)
    for client, offer in enumerate(found.agreement.offers):
        for person in (setting.people[FIRST_NODE + client], built(client)):
            assert (person.labels(offer) == labels[federated.samples_of(client)]).all()
            assert person.labels(offer) is person.labels(offer), "made once"


def trains_the_same(tmp_path, plans, lively, step, job=None):
    """The job's final model is that of both trainers, and its refused reports those that the fast one counts."""
    setting = Setting(tmp_path, plans, job or behaving(tmp_path, lively, step))
    with pytest.MonkeyPatch.context() as patched:  # the trainers know no validation
        patched.setattr(server, "validation_of", lambda *_: None)
        found = setting.go()
    assert found.agreement.terms.momentum == setting.job.training.momentum
    fast, plain = by_the_trainers(setting, found)
    model = setting.model(found)
    assert np.abs(model - setting.scene.federated.model.init(setting.seed)).max() > 0.05
    np.testing.assert_allclose(model, fast.params[0], atol=2e-5)
    np.testing.assert_allclose(model, plain, atol=2e-5)
    if found.agreement.terms.masked:
        assert not found.rejections
        return setting, found
    reasons = "empty", "too long"
    refused = [e.document["client"] for e in found.rejections if e.document["reason"].startswith(reasons)]
    assert len(refused) == len(found.rejections)
    for client, name in enumerate(lively):
        always = 12 if behaviour(name).reports_nothing else 0
        assert refused.count(setting.job.clients.name[client]) == fast.refused_reports[0].get(client, always)
    return setting, found


def test_clients_are_asked_as_often_as_they_take_part(tmp_path, plans):
    """Participation stands in the offers; who is asked is drawn as in training, and pay is for the rounds asked in."""
    step = "sample_cost = 0.05", "sample_cost = 0.05\nparticipation = [1.0, 0.5, 0.7, 1.0]"
    job = behaving(tmp_path, ["truthful", "truthful", "echo", "half parrot"], step)
    job = replace(job, training=Training(12, 1, 0.3, momentum=0.5), tune_step=False)
    setting = Setting(tmp_path, plans, job)
    with pytest.MonkeyPatch.context() as patched:  # the trainers know no validation
        patched.setattr(server, "validation_of", lambda *_: None)
        found = setting.go()
    assert [offer.client.participation for offer in found.agreement.offers] == [1.0, 0.5, 0.7, 1.0]
    fast, plain = by_the_trainers(setting, found)
    np.testing.assert_allclose(setting.model(found), fast.params[0], atol=2e-5)
    np.testing.assert_allclose(setting.model(found), plain, atol=2e-5)
    assert found.asked["Ada"] == 12
    assert 2 <= found.asked["Ben"] <= 10
    assert 2 <= found.asked["Cleo"] <= 11
    for name, refused in (("Ada", 0), ("Ben", 0), ("Cleo", 1)):  # an echo has nothing to send the first time
        settled = found.settlements[name].document
        assert (settled["delivered"], settled["asked"]) == (found.asked[name] - refused, found.asked[name])
    with open_ledger(setting.folder / "ledger.db") as book:
        entries = book.entries()
    assert check(entries) is None
    assert audit(found, *published_files(setting.folder, found.name)) is None
    ben = setting.people[FIRST_NODE + 1]
    receipt = participant_folder.receipts(ben.folder)[0]
    assert receipt_fault(receipt) is None
    assert receipt_check(ben.folder, ben.key)["fault"] is None
    receipt["document"]["settlement"]["asked"] += 1
    assert "the job's seed draws" in asked_rounds_fault(receipt)
    receipt["document"]["offer"]["document"]["job"]["rounds"] = 10**15  # is not counted to
    assert "truthfl runs none of more than 100,000" in asked_rounds_fault(receipt)
    asked = [entry for entry in found.rounds if "asked" in entry.document]
    asked[0].document["asked"] = ["Ada"]
    assert "asked other clients than the seed draws" in audit(found, *published_files(setting.folder, found.name))


class Rebuilt(dict):
    """Participants of whom every message finds another, as in a process of its own."""

    def __getitem__(self, node):
        return replace(super().__getitem__(node), accepted_offers={})


def test_what_a_behaviour_remembers_outlives_its_node(tmp_path, plans):
    def two_rounds_ago(received, _, honest):
        return honest() + received[0] - received[-1] if len(received) > 2 else honest()

    own = Behaviour("nostalgic", "Undoes.", True, True, reports_honestly=False, fabricate=two_rounds_ago, remembers=2)
    lively = ["echo", own, "truthful", "half parrot"]
    setting = Setting(tmp_path, plans, behaving(tmp_path, lively))
    with pytest.MonkeyPatch.context() as patched:  # the trainers know no validation
        patched.setattr(server, "validation_of", lambda *_: None)
        found = setting.go(grid_of(Rebuilt(setting.people)))
    fast, plain = by_the_trainers(setting, found)
    np.testing.assert_allclose(setting.model(found), fast.params[0], atol=2e-5)
    np.testing.assert_allclose(setting.model(found), plain, atol=2e-5)
    kept = [bool(list((person.folder / "received").rglob("*.npy"))) for person in setting.people.values()]
    assert kept == [True, True, False, False]


def test_a_repeated_round_remembers_what_came_before_it(tmp_path):
    models = [np.full(3, k, dtype=np.float32) for k in range(250)]

    def first_numbers(round_, name="echo"):
        return [int(one[0]) for one in received_models(tmp_path, BEHAVIOURS[name], models[round_], round_)]

    assert [first_numbers(k) for k in (0, 1, 2, 5)] == [[0], [0, 1], [1, 2], [2, 5]]
    assert [first_numbers(k) for k in (5, 2, 3)] == [[2, 5], [1, 2], [2, 3]]
    assert [first_numbers(k) for k in range(6, 250)][-1] == [248, 249]
    assert first_numbers(248) == [247, 248]
    assert len(list(tmp_path.iterdir())) < 110
    (tmp_path / "199.npy").write_bytes(b"junk")
    with pytest.raises(InputError, match=r"199\.npy cannot be read"):
        first_numbers(200)
    assert first_numbers(3, "truthful") == [3]


def test_a_behaviour_that_sends_nonsense_is_named_in_the_book(tmp_path, plans):
    own = Behaviour("nonsense", "Sends NaN.", True, True, reports_honestly=False, fabricate=lambda w, *_: w[-1] / 0)
    setting = Setting(tmp_path, plans, behaving(tmp_path, ["truthful", own, "truthful", "truthful"]))
    with np.errstate(all="ignore"):
        found = setting.go()
    reasons = {e.document["reason"] for e in found.rejections}
    assert reasons == {"error: the behaviour 'nonsense' reports NaN or infinity; all numbers must be finite."}
    assert found.delivered == {"Ada": 12, "Cleo": 12, "Dora": 12}


def test_a_job_leaves_a_book_that_checks(setting):
    found = setting.go()
    kinds = {"job": 1, "enrolment": 4, "plan": 1, "offer": 4, "answer": 4, "start": 1, "round": 12, "final": 4}
    with open_ledger(setting.folder / "ledger.db") as book:
        for kind, count in (kinds | {"test": 1, "settlement": 4, "receipt": 4, "payment": 4, "rejection": 12}).items():
            assert len(book.entries(found.name, kind)) == count, kind
        assert check(book.entries()) is None
    reasons = {entry.document["reason"] for entry in found.rejections}
    assert reasons == {"empty: it is the model as it was sent"}  # Ben, the free rider
    assert found.delivered == {"Ada": 12, "Cleo": 12, "Dora": 12}
    assert found.settlements["Ben"].document["pay"] == 0
    assert all(isinstance(entry.document["amount"], int) for entry in found.payments)


def test_the_same_seed_pays_the_same_and_a_second_job_is_opened_if_told_to(tmp_path, plans):
    pays = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        setting = Setting(tmp_path / folder, plans)
        first, second = setting.go(), setting.go(again=True)
        assert first.name[:-2] == second.name[:-2]
        assert (first.name[-2:], second.name[-2:]) == ("-1", "-2")
        pays += [[entry.document for entry in one.settlements.values()] for one in (first, second)]
    assert pays[0] == pays[1] == pays[2] == pays[3]


def bad_replies():
    def edited(reply, **changes):
        arrays, round_ = reply.content.array_records[MODEL], reply.content.config_records[ROUND]
        content = {MODEL: arrays, ROUND: round_} | changes
        return sent_by(
            reply.metadata.src_node_id, RecordDict({k: v for k, v in content.items() if v is not None}), reply
        )

    def with_array(make):
        def change(reply):
            params = reply.content.array_records[MODEL]["params"].numpy()
            return [edited(reply, **{MODEL: ArrayRecord({"params": Array(make(params.copy()))})})]

        return change

    def poked(value):
        def make(params):
            params[3] = value
            return params

        return make

    def lying_header(reply):
        array = reply.content.array_records[MODEL]["params"]
        false = Array("float32", array.shape, array.stype, b"\x93NUMPY junk")
        return [edited(reply, **{MODEL: ArrayRecord({"params": false})})]

    def of_round(number):
        return lambda reply: [
            edited(reply, **{ROUND: ConfigRecord(dict(reply.content.config_records[ROUND]) | {"round": number})})
        ]

    return {
        "NaN": (with_array(poked(np.nan)), "NaN or infinity"),
        "infinity": (with_array(poked(-np.inf)), "NaN or infinity"),
        "huge": (with_array(poked(3e38)), "a number beyond 1,000,000"),
        "shape": (with_array(lambda p: p[:-1]), "its shape is (649,), not (650,)"),
        "dtype": (with_array(lambda p: p.astype(np.float16)), "its dtype is float16"),
        "oversized": (with_array(lambda p: np.tile(p, 3)), "oversized"),
        "junk": (lying_header, "its bytes are no array"),
        "missing record": (lambda r: [edited(r, **{ROUND: None})], "its records are 'arrays'"),
        "extra record": (lambda r: [edited(r, metrics=MetricRecord({"num-examples": 10**9}))], "its records are"),
        "late": (of_round(99), "late: it is for round 99"),
        "lost": (lambda _: [], "no report in time"),
        "twice": (lambda r: [r, r], "duplicated"),
    }


@pytest.mark.parametrize("kind", list(bad_replies()))
def test_a_bad_reply_is_rejected_with_its_reason_and_the_round_goes_on(impatient, kind):
    change, reason = bad_replies()[kind]
    setting = impatient

    def meddle(reply):
        ada = reply.metadata.src_node_id == 1000
        if not ada or not of_training(reply):
            return [reply]
        return [recoded(setting.people[1000].folder, one) for one in change(reply)]

    found = setting.go(Meddler(setting.grid, meddle))
    ada = [entry.document for entry in found.rejections if entry.document["client"] == "Ada"]
    assert len(ada) == 12
    assert all(reason in one["reason"] for one in ada), ada[0]
    assert np.isfinite(setting.model(found)).all()
    assert found.delivered["Ada"] == (12 if kind == "twice" else 0)
    assert (found.settlements["Ada"].document["pay"] == 0) == (kind != "twice")
    assert found.delivered["Cleo"] == 12
    with open_ledger(setting.folder / "ledger.db") as book:
        assert check(book.entries()) is None


def test_a_reply_from_a_stranger_is_rejected(setting):
    def meddle(reply):
        if not of_training(reply) or reply.metadata.src_node_id != 1000:
            return [reply]
        return [reply, sent_by(77, reply.content, reply)]

    found = setting.go(Meddler(setting.grid, meddle))
    strange = [entry.document for entry in found.rejections if entry.document["node"] == "77"]
    assert [one["reason"] for one in strange] == ["the node is not in the contract"] * 12
    assert found.delivered["Ada"] == 12


def test_a_client_who_drops_out_is_paid_for_the_rounds_they_delivered(impatient):
    """The client's reports are missing from the sum; the others' weights stay what the contract says."""

    def meddle(reply):
        cleo = of_training(reply) and reply.metadata.src_node_id == 1002
        return [] if cleo and reply.content.config_records[ROUND]["round"] >= 3 else [reply]

    found = impatient.go(Meddler(impatient.grid, meddle))
    settled = found.settlements["Cleo"].document
    offer = found.agreement.offers[2]
    assert settled["delivered"] == 3
    assert settled["pay"] == round(offer.amount(found.test.document["loss"]) * 3 / 12)
    assert sum(one.client.weight for one in found.agreement.offers) == pytest.approx(1.0)


def test_somebody_who_declines_is_left_out_and_the_others_are_offered_anew(setting):
    setting.people[1001].decide = lambda offer: False  # noqa: ARG005
    found = setting.go()
    assert [offer.client.name for offer in found.agreement.offers] == ["Ada", "Cleo", "Dora"]
    assert {offer.job.version for offer in found.agreement.offers} == {2}
    assert found.answers["1/Ben"].document["document"]["kind"] == "refusal"
    assert participant_folder.news(setting.people[1001].folder) == (DECLINED_NEWS, True)
    assert participant_folder.news(setting.people[1000].folder) is None
    assert sum(offer.client.weight for offer in found.agreement.offers) == pytest.approx(1.0)
    with open_ledger(setting.folder / "ledger.db") as book:
        assert check(book.entries()) is None


def test_somebody_who_has_not_labeled_in_time_earns_nothing(tmp_path, plans):
    job = read_job(small_job_file(tmp_path, *STEP))
    setting = Setting(tmp_path, plans, replace(job, server=replace(job.server, label_seconds=0.1)))
    setting.people[1000].labels = lambda _: None
    found = setting.go()
    assert found.delivered["Ada"] == 0
    reasons = {e.document["reason"] for e in found.rejections if e.document["client"] == "Ada"}
    assert reasons == {"error: not all samples are labeled yet."}
    assert participant_folder.news(setting.people[1000].folder) == (LATE_LABELS_NEWS, False)
    assert participant_folder.news(setting.people[1001].folder) is None


def test_a_job_that_cannot_go_on_says_so_to_all_who_wait(setting):
    for person in setting.people.values():
        person.decide = lambda offer: False  # noqa: ARG005
    with pytest.raises(InputError, match="every client declined"):
        setting.go()
    for person in setting.people.values():
        assert participant_folder.news(person.folder)[0].startswith(
            "The operator's server ended the job: every client declined"
        )


def test_a_client_that_raises_does_not_stop_the_job(setting):
    def fail(*_):
        raise RuntimeError("out of memory")

    setting.people[1002].report = fail
    found = setting.go()
    assert found.delivered["Cleo"] == 0
    assert "error: out of memory" in {e.document["reason"] for e in found.rejections}


def test_nobody_is_refused_for_being_there_twice_or_unknown(setting):
    """An impostor with Ada's name and another key, and a stranger: both are refused, the job goes on."""
    impostor, stranger = setting.people[1002], setting.people[1003]
    people = dict(setting.people)
    people[2000] = replace(impostor, name="Ada", accepted_offers={}, folder=setting.folder / "impostor")
    people[2001] = replace(stranger, name="Mallory", accepted_offers={}, folder=setting.folder / "stranger")
    found = setting.go(grid_of(people))
    reasons = [e.document["reason"] for e in found.rejections if e.document["stage"] == "enrolment"]
    assert sorted(reasons) == ["Ada enrolled with another key.", "Mallory is not among the job's clients."]
    for refused in (people[2000], people[2001]):
        sentence, over = participant_folder.news(refused.folder)
        assert sentence.removeprefix("The operator's server does not admit you: ") in reasons
        assert over
    assert found.delivered["Ada"] == 12


def test_answers_come_in_the_order_of_the_questions():
    """So that two runs of one job write the same book, and people are admitted in the order of the questions."""
    nodes = list(range(300, 200, -1))
    grid = InProcessGrid(lambda message, _: Message(RecordDict(), reply_to=message), {node: {} for node in nodes})
    replies = ask_nodes(grid, [query_message(ENROL, node, {}) for node in nodes], timeout=1)
    assert [node for node, _ in replies] == nodes


class Stopped(BaseException):
    """Stands for a crash of the server between any two messages."""


def crashing(grid, after):
    left = [after]

    def meddle(reply):
        left[0] -= 1
        if left[0] < 0:
            raise Stopped
        return [reply]

    return Meddler(grid, meddle)


@pytest.mark.parametrize(
    "behaviours",
    [("truthful", "free rider", "truthful", "small batch"), ("noisy echo", "echo", "truthful", "half parrot")],
    ids=["plain", "with memories"],
)
def test_a_job_that_crashes_anywhere_goes_on_and_pays_the_same(tmp_path, plans, behaviours):
    """Crashed again and again after some replies, until it is done: all pay equals the undisturbed run's."""
    (tmp_path / "calm").mkdir()
    (tmp_path / "wild").mkdir()
    job = behaving(tmp_path, list(behaviours))
    calm, wild = Setting(tmp_path / "calm", plans, job), Setting(tmp_path / "wild", plans, job)
    expected = calm.go()
    crashes, step = 0, 0
    while True:
        step += 1
        try:
            found = wild.go(crashing(wild.grid, 3 + 5 * step))
            break
        except Stopped:
            crashes += 1
            wild = Setting(tmp_path / "wild", plans, job)
    assert crashes >= 4
    assert found.name == expected.name
    assert {k: v.document for k, v in found.settlements.items()} == {
        k: v.document for k, v in expected.settlements.items()
    }
    assert [e.document for e in found.rounds] == [e.document for e in expected.rounds]
    assert len(found.starts) > 1
    with open_ledger(wild.folder / "ledger.db") as book:
        assert check(book.entries()) is None


def test_a_client_trains_only_on_offers_they_accepted(setting):
    setting.go()
    ada = setting.people[1000]
    offer = participant_folder.offers(ada.folder)[0]
    with pytest.raises(InputError, match="not accepted here"):
        ada.report(changed(offer, batch_size=1).hash, np.zeros(650, np.float32), 0)
    with pytest.raises(InputError, match="with another key"):
        ada.answer_offer(changed(offer, client="Ben").document())


def test_run_goes_on_in_the_same_ledger(tmp_path):
    job = read_job(small_job_file(tmp_path, *STEP))
    first = run_job(job, tmp_path / "out", seed=1, design=QUICK)
    same = run_job(job, tmp_path / "out", seed=1, design=QUICK)
    assert same.view.name == first.view.name  # what is complete is not paid a second time unless that is said
    second = run_job(job, tmp_path / "out", seed=1, design=QUICK, again=True)
    assert (first.pay == second.pay).all()
    with sqlite3.connect(tmp_path / "out" / "ledger.db") as database:
        assert database.execute("select count(distinct job) from entries").fetchone() == (2,)
    database.close()
