"""The audition in the protocol: commit, open, test, gate, rounds and pay; strangers' replies, resumption, tampering."""

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from flwr.app import Array, ArrayRecord, Error, Message, RecordDict

from helpers.auditions import (
    LIARS,
    QUICK,
    Meddler,
    Plans,
    Setting,
    audition_job,
    audition_job_file,
    joint_audition_job,
    other_reply,
    signed_anew,
)
from helpers.commands import told
from helpers.databases import rewritten
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl.cli.ledger import check as check_command
from truthfl.contracts.contract import Observation
from truthfl.contracts.planning import WORTH_LESS
from truthfl.errors import InputError
from truthfl.federation.operator.kept_jobs import fixed_draws
from truthfl.federation.operator.row_words import describe_row
from truthfl.federation.participant.node_settings import ACCEPT_IF_IT_PAYS, Settings, decision
from truthfl.federation.participant.participant import keep_audition
from truthfl.federation.protocol import auditions
from truthfl.federation.protocol.final_model import audit, mean_of_solo_models, published_files, solo_file
from truthfl.federation.protocol.messages import (
    AUDITION_COMMIT,
    AUDITION_OPEN,
    MODEL,
    PARAMS,
    document_in,
    document_record,
    model_record,
)
from truthfl.federation.simulated.in_process import run_job
from truthfl.federation.simulated.participants import FIRST_NODE, AskedLabels, grid_of
from truthfl.federation.simulated.payoff import audition_payoffs as simulated_payoffs
from truthfl.federation.simulated.payoff import federation_of_asked
from truthfl.federation.simulated.report import client_rows, results_document, summary_sentences, table_columns
from truthfl.flower_patches import CLIENT_APP_FAILED, set_origin
from truthfl.home import participant_folder
from truthfl.home.record import COMMITTED, OPENED, RoundRecord, arrival_word, open_rounds
from truthfl.job import DataJob, PrivacySettings, participants, read_job
from truthfl.learning.data.partition import Federated
from truthfl.learning.people.behaviour import from_strategy
from truthfl.learning.people.behaviours import BEHAVIOURS, behaviour
from truthfl.learning.people.labels import ask_for_labels, asked_order, in_asked_order
from truthfl.learning.people.profile import Profile
from truthfl.learning.solo import solo_losses, train_alone
from truthfl.learning.training.train import train
from truthfl.ledger import receipts as job_receipts
from truthfl.ledger.book import Ledger
from truthfl.ledger.canonical import audition_commitment, draw_seed, secret_from_seed
from truthfl.ledger.checking import check
from truthfl.ledger.documents import signed
from truthfl.ledger.evidence import NOT_OPENED
from truthfl.ledger.receipts import receipt_fault
from truthfl.ledger.signing import read_key
from truthfl.ledger.terms import offer_from
from truthfl.page.receipt_check import own_receipt_fault

NAMES = ["Ada", "Ben", "Cleo", "Dora"]
BEN = FIRST_NODE + 1
HASTY = from_strategy("hasty reporter", batch_share=0.5, report_scale=0.5)  # honest in the audition


@pytest.fixture(scope="module")
def plans():
    """Plans, made once: they are not what is tested here."""
    return Plans()


@pytest.fixture(scope="module")
def honest(tmp_path_factory, plans):
    """A whole job of four honest clients; nothing in it is changed by tests."""
    setting = Setting(tmp_path_factory.mktemp("honest"), plans)
    return setting, setting.go()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, plans):
    """A whole job in which two of four are stopped at the audition."""
    setting = Setting(tmp_path_factory.mktemp("stopped"), plans, LIARS)
    return setting, setting.go()


@pytest.fixture(scope="module")
def by_loss(tmp_path_factory, plans):
    """A whole job in which computing is paid by the joint loss."""
    folder = tmp_path_factory.mktemp("by-loss")
    setting = Setting(folder, plans, job=joint_audition_job(folder))
    return setting, setting.go()


def receipt_of(setting, name):
    return participant_folder.receipts(setting.folder / "participants" / name)[-1]


def held(setting, found):
    """The first fault of ledger, files or receipts."""
    faults = [check(setting.entries()), audit(found, *published_files(setting.folder, found.name))]
    faults += [receipt_fault(receipt_of(setting, offer.client.name)) for offer in found.agreement.offers]
    return next((fault for fault in faults if fault is not None), None)


def results(found):
    """What must be the same in every run: auditions, and pay."""
    rows = [entry.document for entry in found.auditions.values()]
    kept = [{name: row[name] for name in ("client", "model", "solo_loss", "level_shift", "passed")} for row in rows]
    return kept, [entry.document for entry in found.settlements.values()]


def test_offers_ask_for_labels_and_say_the_recipe(honest, plans):
    setting, found = honest
    plan = plans(setting.job, None)
    for i, offer in enumerate(found.agreement.offers):
        assert offer.job.recipe == plan.recipe.document()
        assert offer.job.audition_seconds == 3600.0
        assert offer.client.samples == plan.contract.labels[i] <= setting.job.clients.dataset_size[i]
        assert offer.client.audition_cost == plan.solo_cost[i]
        assert offer_from(offer.document()).hash == offer.hash
    written = found.plans[-1].document["audition"]
    assert written["recipe"] == plan.recipe.document()
    assert "left_out" not in found.plans[-1].document
    assert len(written["solo"]["labels"]) == len(written["solo"]["loss"])
    assert set(written["joint"]) == {"curve", "error"}


def test_a_whole_job(honest):
    setting, found = honest
    kinds = [entry.kind for entry in setting.entries()]
    last_commitment = max(i for i, kind in enumerate(kinds) if kind == "commitment")
    first_audition = kinds.index("audition")
    assert last_commitment < first_audition < kinds.index("round") < kinds.index("test") < kinds.index("settlement")
    assert kinds[first_audition : first_audition + 4] == ["audition"] * 4
    assert list(found.auditions) == NAMES == list(found.commitments)
    assert held(setting, found) is None
    assert not found.rejections
    models = np.load(solo_file(setting.folder / "models", found.name))
    assert models.dtype == np.float32
    for i, offer in enumerate(found.agreement.offers):
        row, settled = found.auditions[offer.client.name].document, found.settlements[offer.client.name].document
        assert row["passed"] is settled["passed"] is True
        assert row["reason"] is None
        committed = found.commitments[offer.client.name].document["commitment"]
        assert audition_commitment(offer.hash, row["salt"], models[i]) == committed
        assert settled["amount"] == pytest.approx(settled["label_pay"] + settled["computing_pay"])
        assert settled["pay"] == round(settled["amount"])
        assert settled["label_pay"] > 0 < settled["computing_pay"]
        assert settled["present_labels"] == sum(one.client.samples for one in found.agreement.offers)
        assert receipt_of(setting, offer.client.name)["document"]["audition"]["result"] == row


def test_solo_models_and_losses_are_those_of_training_alone(honest):
    setting, found = honest
    federated = setting.scene.federated
    models = np.load(solo_file(setting.folder / "models", found.name))
    recipe = setting.plans(setting.job, None).recipe
    for i, offer in enumerate(found.agreement.offers):
        rows = federated.partition.rows_of(i)
        rows = rows[asked_order(len(rows), i, setting.job.data.seed)][: offer.client.samples]
        alone = train_alone(federated.model, federated.data.images[rows], federated.data.labels[rows], recipe, 5)
        assert np.array_equal(models[i], alone)
    losses = solo_losses(federated.model, models, setting.scene.test, draw_seed(secret_from_seed(5)))
    assert losses.tolist() == [found.auditions[name].document["solo_loss"] for name in NAMES]


def test_the_joint_model_is_the_trainers(honest):
    setting, found = honest
    federated = federation_of_asked(setting.job, setting.scene.federated, found.agreement)
    batches = [offer.client.batch_size for offer in found.agreement.offers]
    start = mean_of_solo_models(found, solo_file(setting.folder / "models", found.name))
    trained = train(federated, Profile(["truthful"] * 4, batches), 5, start=start)
    model = np.load(published_files(setting.folder, found.name)[0])
    assert np.abs(model - trained.params[0]).max() < 1e-5


def test_liars_are_stopped_and_told_and_the_others_go_on(stopped):
    setting, found = stopped
    assert [found.auditions[name].document["passed"] for name in NAMES] == [True, False, False, True]
    assert held(setting, found) is None
    assert {tuple(found.asked_in(entry)) for entry in found.rounds} == {("Ada", "Dora")}
    assert len(found.rounds) == 12
    labels = {offer.client.name: offer.client.samples for offer in found.agreement.offers}
    for offer in found.agreement.offers:
        name, passed = offer.client.name, offer.client.name in ("Ada", "Dora")
        settled = found.settlements[name].document
        others = sum(labels[other] for other in ("Ada", "Dora") if other != name)
        assert settled["present_labels"] == labels[name] + others
        assert (settled["asked"], settled["delivered"]) == ((12, 12) if passed else (0, 0))
        sentence, over = participant_folder.news(setting.folder / "participants" / name) or (None, None)
        if passed:
            assert sentence is None
            continue
        row = found.auditions[name].document
        assert settled["computing_pay"] == 0
        assert over is False
        assert f"The model has a loss of {row['solo_loss']:.2f}; " in sentence
        assert "a model is far worse than honest ones" in sentence
        assert sentence.endswith(f"are paid for labels by the formula: {settled['pay']:,} cent.")
        assert row["reason"] in sentence


def test_weights_of_those_who_passed_are_shares_of_theirs(stopped):
    """The rounds by hand: reports of the two who passed, with weights that add up to 1, and momentum."""
    setting, found = stopped
    offers = [found.agreement.offers[i] for i in (0, 3)]
    total = sum(offer.client.samples for offer in offers)
    params = before = mean_of_solo_models(found, solo_file(setting.folder / "models", found.name))
    who = [(FIRST_NODE, offers[0]), (FIRST_NODE + 3, offers[1])]
    for round_ in range(12):
        reports = [setting.people[node].report(one.hash, params, round_) for node, one in who]
        changed = params + sum(
            np.float32(offer.client.samples / total) * (report - params)
            for offer, report in zip(offers, reports, strict=True)
        )
        moved = changed + np.float32(found.agreement.terms.momentum) * (params - before)
        params, before = moved, params
    model = np.load(published_files(setting.folder, found.name)[0])
    assert np.abs(model - params).max() < 1e-5


def test_pay_is_by_the_formula(stopped):
    _, found = stopped
    for offer in found.agreement.offers:
        terms, settled = offer.client.pay, found.settlements[offer.client.name].document
        level = terms["solo_level"] + terms["solo_spread"] * settled["level_shift"]
        labels = terms["label_base"] + terms["label_slope"] * (level - settled["solo_loss"])
        assert settled["label_pay"] == pytest.approx(min(max(labels, 0.0), terms["label_cap"]))
        assert settled["passed"] == (settled["solo_loss"] - level <= terms["gate"])
        assert settled["computing_pay"] == (terms["computing_base"] if settled["passed"] else 0.0)


# Replies of Ben that are changed on their way.


def of(action, reply):
    return reply.metadata.message_type == f"query.{action}" and reply.metadata.src_node_id == BEN


def opening(change):
    """Changes the document and the model of Ben's opening."""

    def changed(reply):
        if not of(AUDITION_OPEN, reply):
            return [reply]
        document, model = document_in(reply), np.array(reply.content[MODEL][PARAMS].numpy())
        return [other_reply(change(document, model), reply)]

    return changed


def with_model(document, model):
    content = document_record(document)
    content.array_records[MODEL] = model_record(model)
    return content


def with_number(number):
    def change(document, model):
        model[3] = number
        return with_model(document, model)

    return change


def oversized(document, model):
    content = document_record(document)
    array = Array(model)
    array.data = array.data + bytes(1000)
    content.array_records[MODEL] = ArrayRecord({PARAMS: array})
    return content


def two_arrays(document, model):
    content = document_record(document)
    content.array_records[MODEL] = ArrayRecord({PARAMS: Array(model), "more": Array(model)})
    return content


def commitment_reply(change):
    def changed(reply):
        return change(reply) if of(AUDITION_COMMIT, reply) else [reply]

    return changed


def error(reply):
    failed = Message(Error(CLIENT_APP_FAILED, "no memory"), reply_to=reply)
    set_origin(failed, reply.metadata.src_node_id, reply.metadata.reply_to_message_id)
    return [failed]


BAD = {
    "NaN": (opening(with_number(np.nan)), "it has NaN or infinity"),
    "infinity": (opening(with_number(np.inf)), "it has NaN or infinity"),
    "huge": (opening(with_number(1e9)), "it has a number beyond 1,000,000"),
    "other shape": (opening(lambda d, m: with_model(d, m[:-1])), "its shape is"),
    "other type": (opening(lambda d, m: with_model(d, m.astype(np.float64))), "oversized"),
    "integers": (opening(lambda d, m: with_model(d, m.astype(np.int32))), "its dtype is int32"),
    "oversized": (opening(oversized), "oversized"),
    "two arrays": (opening(two_arrays), "its records are of another kind"),
    "empty": (opening(lambda _d, _m: RecordDict()), "the message carries no document"),
    "no model": (opening(lambda d, _: document_record(d)), "its records are 'truthfl'"),
    "opened otherwise": (opening(with_number(0.25)), "it is another model than the one committed to"),
    "other salt": (opening(lambda d, m: with_model(d | {"salt": "00" * 32}, m)), "it is another model than the one"),
    "no salt": (opening(lambda d, m: with_model(d | {"salt": 7}, m)), "its salt is not 32 bytes"),
    "other offer": (opening(lambda d, m: with_model(d | {"offer": "ab" * 32}, m)), "it is for another offer"),
    "no hash": (
        commitment_reply(lambda reply: [other_reply(document_record({"commitment": "yes"}), reply)]),
        "its commitment is no hash",
    ),
    "error": (commitment_reply(error), "error: no memory"),
    "not committed": (commitment_reply(lambda _: []), "no commitment in time"),
    "not opened": (lambda reply: [] if of(AUDITION_OPEN, reply) else [reply], "it was not opened in time"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_audition_is_refused_with_a_reason_and_the_job_goes_on(name, tmp_path, plans):
    change, reason = BAD[name]
    setting = Setting(tmp_path, plans, audition_seconds=0.6 if name.startswith("not ") else 60.0)
    found = setting.go(Meddler(setting.grid, change))
    (rejection,) = found.rejections
    assert (rejection.document["stage"], rejection.document["client"]) == ("audition", "Ben")
    assert rejection.document["reason"].startswith(reason)
    row, settled = found.auditions["Ben"].document, found.settlements["Ben"].document
    assert (row["model"], row["solo_loss"], row["passed"]) == (None, None, False)
    assert row["reason"] == f"No model was taken: {rejection.document['reason']}."
    assert (settled["solo_loss"], settled["pay"], settled["asked"]) == (None, 0, 0)
    assert [found.auditions[other].document["passed"] for other in NAMES] == [True, False, True, True]
    assert np.isnan(np.load(solo_file(setting.folder / "models", found.name))[1]).all()
    assert held(setting, found) is None
    assert "Ben" not in found.asked_in(found.rounds[0])


STRUCK = "your computer sent the model that it trained alone, and by the receipt none was taken"
SIGNED = "; THE OPERATOR SIGNED THAT IT ARRIVED, and your folder has that"


@pytest.mark.parametrize(("lie", "found_out"), [("denied", SIGNED), ("no word", ""), ("no commitment", SIGNED)])
def test_an_operator_who_has_a_model_and_denies_it_is_found_by_the_participant(
    tmp_path, plans, monkeypatch, capsys, lie, found_out
):
    """The receipt holds by itself, and so does the ledger; Ben's computer has another record."""
    test, say_late = auditions._test, NOT_OPENED
    if lie == "no word":
        monkeypatch.setattr(auditions, "_confirm_openings", lambda *_: None)

    def without_ben(roster, agreement, opened, refusals, *more):
        refusals.of_client["Ben"] = say_late
        return test(roster, agreement, {name: one for name, one in opened.items() if name != "Ben"}, refusals, *more)

    monkeypatch.setattr(auditions, "_test", without_ben)
    if lie == "no commitment":
        part = job_receipts._audition_part
        monkeypatch.setattr(job_receipts, "_audition_part", lambda offer, view: struck(offer, part(offer, view)))
    setting = Setting(tmp_path, plans)
    found = setting.go()
    assert (found.settlements["Ben"].document["pay"], held(setting, found)) == (0, None)
    home = setting.people[BEN].folder
    (receipt,) = participant_folder.receipts(home)
    assert receipt_fault(receipt) is None
    if lie != "no commitment":
        assert own_receipt_fault(home, receipt, None) == f"{STRUCK} (No model was taken: {say_late}.){found_out}"
        (file,) = (home / "receipts").iterdir()
        with pytest.raises(typer.Exit):
            check_command(str(setting.folder / "ledger.db"), receipt=file, anchor=None, model=None, test=None, job=None)
        assert f"{STRUCK} (No model was taken: {say_late}.){found_out}" in capsys.readouterr().out
    else:
        fault = own_receipt_fault(home, receipt, None)
        assert fault.startswith("your computer sent the commitment to your model, and by the receipt none came")
        assert fault.endswith(found_out)
    others = setting.people[FIRST_NODE].folder
    assert own_receipt_fault(others, participant_folder.receipts(others)[0], None) is None


def struck(offer, part):
    """The audition in a receipt; Ben's without the commitment."""
    return part | ({"commitment": None} if offer.client.name == "Ben" else {})


@pytest.mark.parametrize("action", [AUDITION_COMMIT, AUDITION_OPEN])
def test_of_two_the_first_counts(action, tmp_path, plans, honest):
    setting = Setting(tmp_path, plans)
    found = setting.go(Meddler(setting.grid, lambda reply: [reply, reply] if of(action, reply) else [reply]))
    assert [entry.document["reason"] for entry in found.rejections] == ["duplicated: it came after another one"]
    assert results(found) == results(honest[1])
    assert held(setting, found) is None


def test_somebody_who_has_no_labels_in_time_has_no_audition(tmp_path, plans):
    setting = Setting(tmp_path, plans, label_seconds=0.01)
    setting.people[BEN].labels = lambda _: None
    found = setting.go()
    assert [entry.document["reason"] for entry in found.rejections] == ["labels were not there in time"]
    assert "Ben" not in found.commitments
    assert found.settlements["Ben"].document["pay"] == 0
    sentence, over = participant_folder.news(setting.folder / "participants" / "Ben")
    assert sentence.startswith("You did not pass the audition. No model was taken: labels were not there in time.")
    assert over is False
    assert held(setting, found) is None


def test_labels_beyond_the_classes_are_told_in_words(tmp_path, plans):
    setting = Setting(tmp_path, plans)
    own = setting.people[BEN].labels
    setting.people[BEN].labels = lambda offer: np.where(np.arange(offer.client.samples) == 3, 10, own(offer))
    found = setting.go()
    assert [entry.document["reason"] for entry in found.rejections] == ["error: a label is 10; the job has 10 classes."]
    assert held(setting, found) is None


def test_an_untrained_model_is_empty(tmp_path, plans):
    setting = Setting(tmp_path, plans)
    ben = setting.people[BEN]
    start = setting.scene.federated.model.init(5)
    commit = ben.commit_audition

    def commit_to_start(offer):
        keep_audition(ben.folder, offer, start)
        return commit(offer)

    ben.commit_audition = commit_to_start
    found = setting.go()
    assert [entry.document["reason"] for entry in found.rejections] == [
        "empty: it is the model from which training starts"
    ]


def test_nobody_passes(tmp_path, plans):
    setting = Setting(tmp_path, plans, audition_seconds=0.3)
    none = Meddler(
        setting.grid,
        lambda reply: [] if reply.metadata.message_type == f"query.{AUDITION_COMMIT}" else [reply],
    )
    found = setting.go(none)
    assert found.finished
    assert not found.rounds
    assert [entry.document["passed"] for entry in found.auditions.values()] == [False] * 4
    assert [entry.document["pay"] for entry in found.settlements.values()] == [0] * 4
    start = setting.scene.federated.model.init(5)
    assert np.array_equal(np.load(published_files(setting.folder, found.name)[0]), start)
    assert held(setting, found) is None


def test_no_common_model_goes_out_before_the_auditions_are_over(tmp_path, plans):
    setting = Setting(tmp_path, plans)
    seen = []

    class Watching(type(setting.grid)):
        def push_messages(self, messages):
            sent = list(messages)
            seen.extend(message.metadata.message_type for message in sent)
            return super().push_messages(sent)

    grid = Watching.__new__(Watching)
    grid.__dict__.update(vars(setting.grid))
    setting.go(grid)
    stages = [kind for kind in dict.fromkeys(seen) if kind.split(".")[-1] in (AUDITION_COMMIT, AUDITION_OPEN, "train")]
    assert [kind.split(".")[-1] for kind in stages] == [AUDITION_COMMIT, AUDITION_OPEN, "train"]
    last = {kind: max(i for i, one in enumerate(seen) if one == kind) for kind in stages}
    first = {kind: seen.index(kind) for kind in stages}
    assert last[stages[0]] < first[stages[1]]
    assert last[stages[1]] < first[stages[2]]


class KilledError(Exception):
    """The server is killed."""


@pytest.mark.parametrize("when", ["after 1", "after 2", "after 3", "after 4", "before results", "after results"])
def test_a_server_that_is_killed_in_the_stage_goes_on(when, tmp_path, plans, stopped, monkeypatch):
    setting = Setting(tmp_path, plans, LIARS)
    write = Ledger.append_all

    def append_all(book, items):
        kinds = {item.kind for item in items}
        if "audition" in kinds and when == "before results":
            raise KilledError
        if "commitment" in kinds and when in ("after 1", "after 2", "after 3", "after 4"):
            write(book, items[: int(when[-1])])  # as if the others had come later
            raise KilledError
        written = write(book, items)
        if "audition" in kinds and when == "after results":
            raise KilledError
        return written

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "append_all", append_all)
        with pytest.raises(KilledError):
            setting.go()
    if when == "after results":  # nobody is asked again
        for person in setting.people.values():
            person.commit_audition = person.open_audition = None
    found = setting.go(grid_of(setting.people))
    assert results(found) == results(stopped[1])
    kinds = Counter(entry.kind for entry in setting.entries())
    assert (kinds["commitment"], kinds["audition"], kinds["rejection"], kinds["round"]) == (4, 4, 0, 12)
    assert held(setting, found) is None


# Tampering.


def other(name, value):
    def change(document):
        assert document[name] != value
        document[name] = value

    return change


def no_longer_stopped(document):
    document |= {"passed": True, "reason": None}


def asked_too(document):
    document["asked"] = ["Ada", "Ben", "Dora"]


@pytest.mark.parametrize(
    ("kind", "key", "change", "what"),
    [
        ("audition", "Ada", other("solo_loss", 0.1), "the level's shift is"),
        ("audition", "Ada", other("level_shift", 0.5), "the level's shift is"),
        ("audition", "Ben", no_longer_stopped, "whether they passed is not what their offer says"),
        ("audition", "Ben", other("offer", "ab" * 32), "it is of another client or offer"),
        ("audition", "Ben", other("model", None), "it has a loss and no model"),
        ("commitment", "Cleo", other("client", "Ada"), "it is of another client or offer"),
        ("settlement", "Ada", other("level_shift", 0.5), "recomputed it is"),
        ("settlement", "Ada", other("solo_loss", 0.1), "recomputed it is"),
        ("settlement", "Ada", other("present_labels", 500.0), "recomputed it is"),
        ("settlement", "Ada", other("label_pay", 1.0), "recomputed it is"),
        ("settlement", "Ben", other("passed", True), "recomputed it is"),
        ("round", "3", asked_too, "clients were asked who did not pass the audition"),
    ],
)
def test_a_changed_row_is_found(kind, key, change, what, stopped):
    fault = check(signed_anew(rewritten(stopped[0].entries(), kind, key, change), stopped[0]))
    assert fault is not None
    assert what in fault.message


def test_pay_by_the_joint_loss_is_by_the_formula(by_loss):
    setting, found = by_loss
    assert held(setting, found) is None
    loss, terms = found.test.document["loss"], found.agreement.terms
    assert (terms.contract, terms.calibrated, len(terms.loss_by_rounds)) == ("audition-joint", True, 13)
    computing = []
    for offer in found.agreement.offers:
        own, settled = offer.client.pay, found.settlements[offer.client.name].document
        expected = own["joint_constant"] + own["joint_curve"] / settled["present_labels"]
        amount = own["computing_base"] + own["joint_slope"] * (expected - loss)
        assert settled["computing_pay"] == pytest.approx(min(max(amount, 0.0), own["joint_cap"]))
        computing.append(settled["computing_pay"])
    assert 0 < min(computing) <= max(computing) < 400.0


@pytest.mark.parametrize("name", ["loss_rise", "present_labels", "computing_pay"])
def test_a_changed_row_of_pay_by_the_joint_loss_is_found(name, by_loss):
    setting, _ = by_loss
    changed = rewritten(setting.entries(), "settlement", "Ada", other(name, 300.5))
    assert "recomputed it is" in check(signed_anew(changed, setting)).message


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"present_labels": 900.0}, "by the offer's formula"),
        ({"loss_rise": 0.1}, "expects another loss than of 12 rounds that changed"),
    ],
)
def test_a_receipt_that_expects_another_loss_is_found(changes, what, by_loss):
    setting, _ = by_loss
    document = json.loads(json.dumps(receipt_of(setting, "Ada")))["document"]
    document["settlement"].update(changes)
    assert what in receipt_fault(signed(read_key(setting.folder / "operator"), document))


def test_a_job_without_its_auditions_is_found(stopped):
    entries = [entry for entry in stopped[0].entries() if entry.kind != "audition"]
    chained = rewritten([replace(entry, sequence=i + 1) for i, entry in enumerate(entries)], "", "", None)
    assert "it comes before the auditions" in check(signed_anew(chained, stopped[0])).message


def test_a_changed_solo_model_is_found(stopped, tmp_path):
    setting, found = stopped
    for path in published_files(setting.folder, found.name):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    models = np.load(solo_file(setting.folder / "models", found.name))
    path = solo_file(tmp_path, found.name)
    assert "-solo.npy is not there" in told(audit, found, *published(tmp_path, found))
    np.save(path, models)
    assert audit(found, *published(tmp_path, found)) is None
    models[2, 7] += 0.5
    np.save(path, models)
    assert "does not hold the model with which Cleo auditioned" in audit(found, *published(tmp_path, found))
    np.save(path, models[:2])
    assert "does not hold the solo models" in audit(found, *published(tmp_path, found))


def published(folder, found):
    return folder / f"{found.name}.npy", folder / f"{found.name}-test.npz"


def test_losses_and_commitments_that_are_not_the_models_are_found(stopped):
    """All rows agree with each other, and not with the models."""
    setting, found = stopped
    files = published_files(setting.folder, found.name)

    def changed(kind, name, **values):
        rows = dict(getattr(found, f"{kind}s"))
        document = rows[name].document | values
        rows[name] = SimpleNamespace(document=document)
        return replace(found, **{f"{kind}s": rows})

    assert "Ada's solo loss is 0.5 in the ledger" in audit(changed("audition", "Ada", solo_loss=0.5), *files)
    assert "Ada's level shift is 0.5" in audit(changed("audition", "Ada", level_shift=0.5), *files)
    assert "Ada committed to another model" in audit(changed("commitment", "Ada", commitment="ab"), *files)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"loss": 0.4}, "the loss is 0.4 in the ledger; recomputed it is"),
        ({"raw_loss": 0.4}, "the raw loss is 0.4 in the ledger; recomputed it is"),
        ({"calibration": {"factor": 1.0, "biases": [0.0] * 10}}, "the loss is"),
        ({"calibration": {"factor": 1e100, "biases": [-1e100] * 10}}, "the loss is"),
        ({"calibration": None}, "this is no calibration: it needs a factor and one bias per class"),
        ({"calibration": {"factor": 1.0, "biases": [0.0]}}, "this is no calibration"),
        ({"calibration": {"factor": 1.0, "biases": [10**400] * 10}}, "this is no calibration"),
    ],
)
def test_a_changed_test_of_the_calibrated_model_is_found(changes, what, stopped):
    setting, found = stopped
    kept = setting.folder / "models" / f"{found.name}-calibration.json"
    assert json.loads(kept.read_text()) == found.test.document["calibration"]
    assert found.test.document["loss"] < found.test.document["raw_loss"]
    test = SimpleNamespace(document=found.test.document | changes)
    try:
        fault = audit(replace(found, test=test), *published_files(setting.folder, found.name))
    except InputError as error:
        fault = str(error)
    assert what in fault


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda d: d["settlement"].update(level_shift=0.5), "the settlement's level_shift is 0.5"),
        (lambda d: d["settlement"].update(solo_loss=0.1), "the settlement's solo_loss is 0.1"),
        (lambda d: d["settlement"].update(pay=9999), "the pay is 9,999"),
        (lambda d: d["settlement"].update(present_labels=90.0), "fewer labels than the participant's own"),
        (lambda d: d["settlement"].update(present_labels=900.0), "its settlement is not the one in the ledger"),
        (lambda d: d["settlement"].update(asked=0), "other rounds"),
        (lambda d: d["audition"]["result"].update(offer="ab"), "another client or offer"),
        (lambda d: d["audition"].update(commitment=None), "was not committed to"),
        (lambda d: d["audition"]["result"].update(model="ab"), "its audition is not the one in the ledger"),
        (lambda d: d["audition"]["commitment"].update(commitment="ab"), "its commitment is not the one in the ledger"),
        (lambda d: d.pop("audition"), "it has an audition and its offer none, or the other way round"),
    ],
)
def test_a_changed_receipt_is_found_even_if_the_operator_signs_it(change, what, stopped):
    setting, _ = stopped
    document = json.loads(json.dumps(receipt_of(setting, "Ada")))["document"]
    change(document)
    fault = receipt_fault(signed(read_key(setting.folder / "operator"), document))
    assert fault is not None
    assert what in fault


# Labels, clients who are not asked, what liars would have had.


def test_simulated_labels_are_those_of_the_trainer(honest):
    """For every behaviour, at every position, with a client before it who is not asked."""
    setting, found = honest
    job, federated = setting.job, setting.scene.federated
    labels = np.array([40, 0, 50, 30])
    terms = replace(found.agreement.terms, seed=9)
    training = replace(federated.training, rounds=terms.rounds, step_size=terms.step_size)
    given = Federated(federated.model, federated.data, federated.partition, training)
    ordered = Federated(
        federated.model, federated.data, in_asked_order(federated.partition, job.data.seed), federated.training
    )
    asked = ask_for_labels(given, labels, job.data.seed)
    for name in BEHAVIOURS:
        expected = Profile([name] * 3, 1).labels(asked, 9)
        sources = AskedLabels(ordered, [name] * 4)
        for index, client in enumerate((0, 2, 3)):
            known = found.agreement.offers[client]
            own = replace(known.client, index=index, samples=int(labels[client]))
            made = sources.source(client)(replace(known, job=terms, client=own, original=None))
            assert np.array_equal(made, expected[asked.samples_of(index)]), name


def plans_for_two(plans):
    def plan(job, side):  # noqa: ARG001
        told = job.document()["clients"]
        two = job.with_clients(participants(**{name: values[::2] for name, values in told.items()}))
        return replace(plans(two, two.server_side()), left_out=dict.fromkeys(["Ben", "Dora"], WORTH_LESS))

    return plan


def test_a_run_with_clients_who_are_not_asked(tmp_path, plans, monkeypatch):
    monkeypatch.setattr(DataJob, "plan", lambda job, side, _: plans_for_two(plans)(job, side))
    job = audition_job(tmp_path, ["truthful", "truthful", "few labels", "echo"])
    outcome = run_job(job, tmp_path / "out", seed=3)
    assert [offer is None for offer in outcome.offers] == [False, True, False, True]
    assert (outcome.pay[[1, 3]] == 0).all()
    assert (outcome.cost[[1, 3]] == 0).all()
    assert outcome.stopped_at_gate.tolist() == [False, False, True, False]
    assert np.isnan(outcome.payoff_if_honest).tolist() == [True, True, False, False]
    assert outcome.payoff_if_honest[3] == 0
    assert [row[0] for row in client_rows(outcome)] == [*NAMES, "total"]
    assert [one["labels"] for one in results_document(job, outcome, {})["clients"]][1::2] == [0, 0]
    assert "worth less than their price: Ben, Dora." in " ".join(summary_sentences(job, outcome))


def test_somebody_who_is_not_worth_their_price_is_told_and_has_nothing(tmp_path, plans):
    """The plan asks Ada and Cleo."""
    setting = Setting(tmp_path, plans_for_two(plans))
    found = setting.go()
    left_out = found.plans[-1].document["left_out"]
    assert left_out == dict.fromkeys(["Ben", "Dora"], WORTH_LESS)
    assert [offer.client.name for offer in found.agreement.offers] == [name for name in NAMES if name not in left_out]
    assert [entry.document for entry in found.rejections if entry.document["stage"] == "plan"] == [
        {
            "stage": "plan",
            "round": None,
            "node": None,
            "client": name,
            "reason": "the labels would be worth less than their price",
        }
        for name in left_out
    ]
    for name in left_out:
        assert participant_folder.news(setting.folder / "participants" / name) == (
            f"You are not asked this time: {WORTH_LESS}.",
            True,
        )
        assert name not in found.settlements
    assert held(setting, found) is None


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, plans):
    """Jobs by `run_job`: with liars, and with one of them honest instead."""
    folder = tmp_path_factory.mktemp("outcomes")
    lively = ["truthful", "lazy labeler", "half parrot", HASTY]
    made = {"folder": folder / "None"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DataJob, "plan", lambda job, side, _: plans(job, side))
        for which in (None, 1, 3):
            behaviours = [name if i != which else "truthful" for i, name in enumerate(lively)]
            job = audition_job(folder, behaviours)
            made[which] = job, run_job(job, folder / str(which), seed=3)
    return made


def test_the_fast_trainer_pays_as_the_protocol(outcomes):
    (job, outcome), folder = outcomes[None], outcomes["folder"]
    scene, draws = job.simulated_federation(), fixed_draws(3)
    restricted = federation_of_asked(job, scene.federated, outcome.agreement)
    solo = {name: entry.document["solo_loss"] for name, entry in outcome.view.auditions.items()}
    kinds = [behaviour(name) for name in job.clients.behaviour]
    models = np.load(solo_file(folder / "models", outcome.view.name))
    again = simulated_payoffs(job, scene, restricted, outcome.agreement, kinds, solo, models, draws)
    assert again == pytest.approx(outcome.payoff, abs=1.0)  # pay is in whole units
    assert outcome.stopped_at_gate[1]
    assert not outcome.stopped_at_gate[3]
    assert (outcome.parts["computing_pay"][[0, 3]] > 0).all()


@pytest.mark.parametrize("client", [1, 3])
def test_what_a_liar_would_have_had_is_what_the_protocol_pays_if_they_alone_are_honest(client, outcomes):
    outcome, other_outcome = outcomes[None][1], outcomes[client][1]
    assert outcome.payoff_if_honest[client] == pytest.approx(other_outcome.payoff[client], abs=1.0)
    assert np.isnan(outcome.payoff_if_honest[0])


def test_costs_of_the_stopped_are_labels_and_training_alone(outcomes):
    job, outcome = outcomes[None]
    ada, ben = outcome.agreement.offers[:2]
    assert outcome.cost[0] == pytest.approx(ada.cost)
    assert outcome.cost[1] == pytest.approx(behaviour("lazy labeler").labeling_effort + ben.client.audition_cost)
    assert outcome.pay == pytest.approx(sum(outcome.parts.values()), abs=0.51)
    assert job.server.minor_units == 1


def test_the_report_says_what_became_of_liars(outcomes):
    job, outcome = outcomes[None]
    sentences = summary_sentences(job, outcome)
    lost = outcome.payoff_if_honest[1] - outcome.payoff[1]
    solo = outcome.view.auditions["Ben"].document["solo_loss"]
    (ben,) = [one for one in sentences if one.startswith("Ben")]
    assert ben.startswith(f"Ben (lazy labeler) was stopped at the audition: the model's loss is {solo:.2f}, above ")
    assert ben.endswith(
        f"they are paid {outcome.pay[1]:,.2f} and are left with {abs(lost):,.2f} "
        f"{'less' if lost > 0 else 'more'} than if they had been honest."
    )
    (dora,) = [one for one in sentences if one.startswith("Dora")]
    assert "passed the audition" in dora
    assert "labels took part in the joint training" in sentences[-1]
    rows = client_rows(outcome)
    assert {len(row) for row in rows} == {len(table_columns(outcome))}
    document = results_document(job, outcome, {})
    for i, one in enumerate(document["clients"]):
        assert one["name"] == NAMES[i]
        assert one["labels"] == outcome.agreement.offers[i].client.samples
        assert one["stopped_at_gate"] is bool(outcome.stopped_at_gate[i])
        assert one["payoff"] == pytest.approx(one["pay"] - one["cost"])
        assert {"behaviour", "label_pay", "computing_pay", "payoff_if_honest"} <= set(one)
    json.dumps(document, allow_nan=False)


def test_a_job_may_be_run_under_another_contract(tmp_path):
    dear = audition_job_file(tmp_path, ("sample_cost = 0.001", "sample_cost = 0.01"))
    job = read_job(dear).with_contract("lceme")
    outcome = run_job(job, tmp_path / "out", design=QUICK)
    assert not outcome.view.auditions
    assert not outcome.stopped_at_gate.any()
    assert outcome.parts == {}
    assert table_columns(outcome)[2] == "batch"


# The participant's side.


def test_a_participant_commits_once(honest, tmp_path):
    setting, found = honest
    ada, offer = setting.people[FIRST_NODE], found.agreement.offers[0]
    committed = found.commitments["Ada"].document["commitment"]
    assert ada.commit_audition(offer.hash) == committed
    operator = read_key(setting.folder / "operator")
    with pytest.raises(InputError, match="did not sign that the commitment of this audition arrived"):
        ada.open_audition(offer.hash, arrival_word(offer, OPENED, committed, operator))
    kept = ada.open_audition(offer.hash, arrival_word(offer, COMMITTED, committed, operator))
    assert audition_commitment(offer.hash, kept.salt, kept.model) == committed
    assert keep_audition(ada.folder, offer.hash, kept.model + 1).salt == kept.salt
    elsewhere = replace(ada, folder=tmp_path, accepted_offers={})
    assert "no model was committed to" in told(elsewhere.open_audition, offer.hash, {})
    assert "this offer was not accepted here" in told(elsewhere.commit_audition, offer.hash)
    assert "is no name of a document" in told(elsewhere.commit_audition, "../offers/x")


def test_an_offer_without_a_recipe_is_refused(honest):
    setting, found = honest
    ada, offer = setting.people[FIRST_NODE], found.agreement.offers[0]
    document = offer.document()
    left_out = ("recipe", "audition_seconds", "start", "solo_bound")
    bare = {name: value for name, value in document["job"].items() if name not in left_out}
    client = {name: value for name, value in document["client"].items() if name != "audition_cost"}
    key = read_key(setting.folder / "operator")
    assert "must have a recipe" in told(ada.answer_offer, signed(key, document | {"job": bare, "client": client}))
    steps = document["job"]["recipe"] | {"steps": 10**9}
    longer = document | {"job": document["job"] | {"recipe": steps}}
    assert "recipe has at most" in told(ada.answer_offer, signed(key, longer))
    more = document | {"client": document["client"] | {"samples": 10**6}}
    assert "the offer asks for 1000000 samples" in told(ada.answer_offer, signed(key, more))


def test_whether_it_pays_counts_labels_asked_and_training_alone(honest):
    _, found = honest
    offer = found.agreement.offers[0]
    settings = Settings("Ada", "", "", "", accept=ACCEPT_IF_IT_PAYS)
    assert decision(settings, offer, samples=120) is True
    pay, samples = offer.expected_pay, offer.client.samples
    work = offer.cost - offer.client.labeling_cost
    enough, too_much = ((pay - work + step) * 120 / samples for step in (-0.01, 0.01))
    assert decision(replace(settings, labeling_cost=enough), offer, samples=120) is True
    assert decision(replace(settings, labeling_cost=too_much), offer, samples=120) is False


def test_clients_who_are_there_in_some_rounds_only(tmp_path, plans):
    job = audition_job(tmp_path, LIARS)
    told_clients = job.document()["clients"] | {"participation": [1.0, 0.5, 0.5, 0.5]}
    setting = Setting(tmp_path, plans, job=job.with_clients(participants(**told_clients)))
    found = setting.go()
    assert 0 < found.asked["Dora"] < 12
    assert found.asked["Ben"] == 0
    assert held(setting, found) is None


def test_evidence_is_needed_for_pay(honest):
    offer = honest[1].agreement.offers[0]
    assert "pays by an audition" in told(offer.pay, 0.5, 12, 12)
    expected = offer.contract.pay(Observation(offer.job.expected_loss))[0]
    assert offer.expected_pay == expected


def never_labels(setting):
    setting.people[BEN].labels = lambda _: None
    return setting.grid


def labels_one_sample_12(setting):
    own = setting.people[BEN].labels
    setting.people[BEN].labels = lambda offer: np.where(np.arange(offer.client.samples) == 3, 12, own(offer))
    return setting.grid


def dies_after_a_round(setting):
    reports = []

    def change(reply):
        from_ben = reply.metadata.message_type == "train" and reply.metadata.src_node_id == BEN
        reports.extend([reply] * from_ben)
        return [] if from_ben and len(reports) > 1 else [reply]

    return Meddler(setting.grid, change)


@pytest.mark.parametrize("misfortune", [never_labels, labels_one_sample_12, dies_after_a_round])
def test_what_one_does_not_do_is_not_taken_from_the_others(misfortune, tmp_path, plans, honest):
    """Computing is paid by reports, whatever the joint loss is without him."""
    setting = Setting(tmp_path, plans, label_seconds=0.01, round_seconds=0.02)
    found = setting.go(misfortune(setting))
    assert held(setting, found) is None
    before = honest[1].settlements
    for offer in found.agreement.offers:
        name = offer.client.name
        settled = found.settlements[name].document
        assert settled["pay"] >= 0
        if name == "Ben":
            continue
        assert (settled["passed"], settled["delivered"], settled["asked"]) == (True, 12, 12)
        assert settled["present_labels"] < before[name].document["present_labels"]
        assert settled["computing_pay"] == before[name].document["computing_pay"]
        if misfortune is dies_after_a_round:
            assert settled["label_pay"] == before[name].document["label_pay"]


def test_rounds_that_cannot_be_run_without_somebody_are_not_taken_from_the_others(tmp_path):
    """Of three with masked reports one dies: two are left, no sum is unmasked, and the model stays as it is."""
    job = replace(joint_audition_job(tmp_path, round_seconds=0.02), privacy=PrivacySettings(secure_aggregation=True))
    clients = {name: values[:3] for name, values in job.document()["clients"].items()}
    setting = Setting(tmp_path, Plans(), job=job.with_clients(participants(**clients)))
    found = setting.go(dies_after_a_round(setting))
    assert held(setting, found) is None
    assert [entry.document["model"] != entry.document["previous"] for entry in found.rounds] == [True] + [False] * 11
    for name in ("Ada", "Cleo"):
        settled, offer = found.settlements[name].document, found.agreement.offers[["Ada", "Ben", "Cleo"].index(name)]
        terms, losses = offer.client.pay, offer.job.loss_by_rounds
        assert len(losses) == 13
        assert settled["loss_rise"] == pytest.approx(losses[1])
        assert losses[1] > 0.02
        assert (settled["delivered"], settled["asked"]) == (12, 12), "Ada was there"
        expected = terms["joint_constant"] + terms["joint_curve"] / settled["present_labels"] + settled["loss_rise"]
        amount = terms["computing_base"] + terms["joint_slope"] * (expected - found.test.document["loss"])
        assert settled["computing_pay"] == pytest.approx(min(max(amount, 0.0), terms["joint_cap"]))
        assert expected > found.test.document["loss"], "the start has Ben's solo model too"
        assert receipt_fault(receipt_of(setting, name)) is None


def test_where_two_of_three_pass_there_are_no_masked_rounds_and_receipts_hold(tmp_path):
    """The contract promised sums of at least three: all are told, labels are paid, and the model is their mean."""
    job = replace(audition_job(tmp_path, round_seconds=0.02), privacy=PrivacySettings(secure_aggregation=True))
    clients = {name: values[:3] for name, values in job.document()["clients"].items()}
    setting = Setting(tmp_path, Plans(), job=job.with_clients(participants(**clients)))
    labels = setting.people[BEN].labels
    setting.people[BEN].labels = lambda offer: np.full_like(labels(offer), 3)
    found = setting.go()
    assert held(setting, found) is None
    assert (found.rounds, len(found.taking_part.offers)) == ([], 2)
    (told,) = [entry.document for entry in found.rejections]
    start = "only Ada, Cleo passed, and masked reports need 3: there are no training rounds, and the final model is "
    assert told["reason"] == start + "the mean of their solo models"
    assert "training refused: only Ada, Cleo" in describe_row(
        next(entry for entry in setting.entries() if entry.kind == "rejection"), None
    )
    for person in setting.people.values():
        receipt = receipt_of(setting, person.name)
        assert own_receipt_fault(person.folder, receipt, person.key) is None
        sentence = participant_folder.news(person.folder)[0]
        assert ("no training rounds" in sentence) == (person.name != "Ben")
        settled = found.settlements[person.name].document
        assert (settled["delivered"], settled["asked"]) == (0, 0)
        assert (settled["label_pay"] > 0) == (person.name != "Ben")
    ada = next(person for person in setting.people.values() if person.name == "Ada")
    receipt = receipt_of(setting, "Ada")
    offer = found.agreement.offers[0]
    with open_rounds(ada.folder, offer.hash) as rounds:  # with a report of her own, Ada would know better
        rounds.append(RoundRecord(0, "ab" * 32, "cd" * 32))
    fault = own_receipt_fault(ada.folder, receipt, ada.key)
    assert fault == "your computer sent 1 reports that are not counted (round 1: you were not asked)"


def test_two_get_no_offers_with_masks(tmp_path):
    job = replace(audition_job(tmp_path), privacy=PrivacySettings(secure_aggregation=True))
    clients = {name: values[:2] for name, values in job.document()["clients"].items()}
    setting = Setting(tmp_path, Plans(), job=job.with_clients(participants(**clients)))
    assert "secure_aggregation is true, and 2 would take part; masked reports need 3" in told(setting.go)


def test_one_label_outside_of_the_classes_is_told_to_its_author_before_signing(tmp_path, honest):
    ben = replace(honest[0].people[BEN], folder=tmp_path, accepted_offers={})
    (offer,) = participant_folder.offers(honest[0].people[BEN].folder)
    labels = np.zeros(offer.client.samples, dtype=np.int64)
    labels[3] = 12
    ben.existing_labels = labels
    assert ben.answer_offer(offer.envelope()) is None
    sentence, over = participant_folder.news(tmp_path)
    assert sentence == (
        f"1 of your {len(labels)} labels is outside of the job's classes, which are 0 to 9: the first is 12. Mend your "
        "labels and join again; the offer is not answered yet."
    )
    assert over is True
    assert participant_folder.offers(tmp_path) == []
    labels[3] = 2
    assert ben.answer_offer(offer.envelope())["document"]["kind"] == "acceptance"
    assert participant_folder.news(tmp_path) is None
