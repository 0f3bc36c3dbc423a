"""Round zero: training starts from the mean of the solo models of those who passed the audition."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.auditions import LIARS, Meddler, Plans, Setting, audition_job, signed_anew
from helpers.commands import told
from helpers.databases import rewritten
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl import Training
from truthfl.contracts.formulas import SOLO_MEAN
from truthfl.federation.operator.row_words import describe_row
from truthfl.federation.operator.served_report import evaluations
from truthfl.federation.participant import participant
from truthfl.federation.protocol import auditions
from truthfl.federation.protocol import final_model as final_module
from truthfl.federation.protocol.final_model import audit, published_files, solo_file
from truthfl.federation.protocol.messages import AUDITION_COMMIT, model_digest
from truthfl.federation.protocol.recorder import Recorder
from truthfl.federation.simulated.participants import grid_of
from truthfl.home import participant_folder
from truthfl.home.record import rounds_of
from truthfl.job import DataJob, PrivacySettings, participants
from truthfl.learning.solo import alignments, solo_length, solo_losses, solo_mean
from truthfl.ledger.book import Ledger, open_ledger
from truthfl.ledger.checking import check
from truthfl.ledger.command_rows import give_command
from truthfl.ledger.commands import new_command
from truthfl.ledger.receipts import receipt_fault
from truthfl.ledger.signing import read_key
from truthfl.ledger.terms import offer_from
from truthfl.page.receipt_check import own_receipt_fault

NAMES = ["Ada", "Ben", "Cleo", "Dora"]


class FromSolo(Plans):
    """Plans whose training starts from solo models; with this number of rounds, if one is given."""

    def __init__(self, rounds=None, bound=0.0):
        super().__init__()
        self.rounds, self.bound = rounds, bound

    def __call__(self, job, side, make=DataJob.plan):
        plan = replace(super().__call__(job, side, make), start=SOLO_MEAN, solo_bound=self.bound)
        if self.rounds is None:
            return plan
        training = Training(self.rounds, 1, plan.training.step_size)
        return replace(plan, training=training, loss_by_rounds=())


@pytest.fixture(scope="module")
def plans():
    return FromSolo()


@pytest.fixture(scope="module")
def finished(tmp_path_factory, plans):
    """A whole job in which two of four are stopped; nothing in it is changed by tests."""
    setting = Setting(tmp_path_factory.mktemp("finished"), plans, LIARS)
    return setting, setting.go()


def held(setting, found):
    """The first fault of ledger, files, receipts, or participants' records."""
    faults = [check(setting.entries()), audit(found, *published_files(setting.folder, found.name))]
    for person in setting.people.values():
        (receipt,) = participant_folder.receipts(person.folder)
        faults += [receipt_fault(receipt), own_receipt_fault(person.folder, receipt, person.key)]
    return next((fault for fault in faults if fault is not None), None)


def final_model(setting, found):
    return np.load(published_files(setting.folder, found.name)[0])


def mean_of(setting, found, names):
    """The mean by hand, of these people's models."""
    models = np.load(solo_file(setting.folder / "models", found.name)).astype(np.float64)
    rows = [NAMES.index(name) for name in names]
    samples = [found.agreement.offers[row].client.samples for row in rows]
    return np.average(models[rows], axis=0, weights=samples)


def test_the_mean_does_not_depend_on_the_machine():
    models = np.float32([[1e-3, 3, -1e6], [1, 1 / 3, 1e6], [7, 2, 0.25]])
    weights = [0.1, 0.7, 0.2]
    by_hand = [np.float32(float(np.float64(0.1) * a) + 0.7 * float(b) + 0.2 * float(c)) for a, b, c in models.T]
    assert solo_mean(models, weights).tolist() == [float(one) for one in by_hand]
    assert solo_mean(models, weights).dtype == np.float32
    assert solo_length(np.float32([3, 4])) == 5.0


def test_the_rounds_start_from_the_mean_of_those_who_passed(finished):
    setting, found = finished
    assert [name for name in NAMES if found.auditions[name].document["passed"]] == ["Ada", "Dora"]
    models = np.load(solo_file(setting.folder / "models", found.name))
    labels = [found.agreement.offers[row].client.samples for row in (0, 3)]
    start = solo_mean(models[[0, 3]], [samples / sum(labels) for samples in labels])
    assert np.abs(start - mean_of(setting, found, ["Ada", "Dora"])).max() < 1e-6
    digest = model_digest(start)
    began = found.starts[0].document
    assert {name: began[name] for name in ("start", "round", "model")} == {"start": 0, "round": 1, "model": digest}
    assert 0 < began["accuracy"] <= 1
    assert [one["round"] for one in evaluations(found)][:2] == [0, 1]
    assert evaluations(found)[0]["loss"] == began["loss"]
    assert found.rounds[0].document["previous"] == digest
    assert len(found.rounds) == 12
    assert held(setting, found) is None
    for offer in found.agreement.offers:
        assert offer.job.start == SOLO_MEAN
        kept = rounds_of(setting.folder / "participants" / offer.client.name, offer.hash)
        assert [one.received for one in kept[:1]] == ([digest] if offer.client.name in ("Ada", "Dora") else [])


def no_rounds(folder, **more):
    setting = Setting(folder, FromSolo(rounds=0), **more)
    return setting, setting.go()


def test_without_rounds_the_final_model_is_the_mean(tmp_path):
    setting, found = no_rounds(tmp_path)
    assert (found.rounds, found.starts, found.ended) == ([], [], None)
    assert np.abs(final_model(setting, found) - mean_of(setting, found, NAMES)).max() < 1e-6
    untrained = setting.scene.federated.model.init(5)
    test = setting.scene.test
    model = setting.scene.federated.model
    assert found.test.document["loss"] < model.loss(untrained, test.features, test.labels) - 0.3
    assert held(setting, found) is None
    for name in NAMES:
        settled = found.settlements[name].document
        assert (settled["asked"], settled["delivered"]) == (0, 0)
        assert settled["label_pay"] > 0
    offer = found.agreement.offers[0]
    assert (offer.job.rounds, offer.job.masked, offer.batch_price) == (0, False, 0.0)


@pytest.mark.parametrize("rounds", [None, 0])
def test_where_nobody_passes_the_common_start_is_the_final_model(tmp_path, rounds):
    setting = Setting(tmp_path, FromSolo(rounds), audition_seconds=0.3)
    none = Meddler(
        setting.grid,
        lambda reply: [] if reply.metadata.message_type == f"query.{AUDITION_COMMIT}" else [reply],
    )
    found = setting.go(none)
    assert np.array_equal(final_model(setting, found), setting.scene.federated.model.init(5))
    reasons = [entry.document["reason"] for entry in found.rejections if entry.document["stage"] == "training"]
    assert reasons == ["nobody passed: the final model is the common one from which training starts"]
    assert check(setting.entries()) is None
    assert audit(found, *published_files(setting.folder, found.name)) is None
    for person in setting.people.values():
        assert receipt_fault(participant_folder.receipts(person.folder)[0]) is None


def masked_three(folder, plans):
    """Three with masked reports, of whom Ben is stopped: two are too few for a sum."""
    job = replace(audition_job(folder, round_seconds=0.02), privacy=PrivacySettings(secure_aggregation=True))
    clients = {name: values[:3] for name, values in job.document()["clients"].items()}
    setting = Setting(folder, plans, job=job.with_clients(participants(**clients)))
    ben = next(person for person in setting.people.values() if person.name == "Ben")
    labels = ben.labels
    ben.labels = lambda offer: np.full_like(labels(offer), 3)
    return setting


def test_where_too_few_pass_for_masks_the_final_model_is_the_mean(tmp_path):
    setting = masked_three(tmp_path, FromSolo())
    found = setting.go()
    assert held(setting, found) is None
    assert (found.rounds, len(found.taking_part.offers)) == ([], 2)
    assert np.abs(final_model(setting, found) - mean_of(setting, found, ["Ada", "Cleo"])).max() < 1e-6
    (row,) = [entry for entry in setting.entries() if entry.kind == "rejection"]
    assert describe_row(row, None).endswith("and the final model is the mean of their solo models")
    for person in setting.people.values():
        sentence = participant_folder.news(person.folder)[0]
        assert sentence.endswith("The final model is the mean of your solo models.") == (person.name != "Ben")


class KilledError(Exception):
    """The server is killed."""


def killed(setting, monkeypatch, when):
    """Run the job until the server is killed: after the audition, or after rounds whose checkpoint is lost."""
    append, put = Ledger.append_all, Recorder.put

    def append_all(book, items):
        written = append(book, items)
        if when == "after the audition" and any(item.kind == "audition" for item in items):
            raise KilledError
        return written

    def put_two(recorder, rounds, *more):
        put(recorder, rounds, *more)
        if when == "after two rounds" and rounds == 2:
            raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "append_all", append_all)
        patched.setattr(Recorder, "put", put_two)
        with pytest.raises(KilledError):
            setting.go()
    for checkpoint in (setting.folder / "checkpoints").glob("*"):
        checkpoint.unlink()


@pytest.mark.parametrize("when", ["after the audition", "after two rounds"])
def test_a_server_that_is_killed_starts_from_the_same_bits(when, tmp_path, plans, finished, monkeypatch):
    setting = Setting(tmp_path, plans, LIARS)
    killed(setting, monkeypatch, when)
    found = setting.go(grid_of(setting.people))
    assert {entry.document["model"] for entry in found.starts} == {finished[1].starts[0].document["model"]}
    assert [entry.document["model"] for entry in found.rounds] == [
        entry.document["model"] for entry in finished[1].rounds
    ]
    assert [entry.document for entry in found.settlements.values()] == [
        entry.document for entry in finished[1].settlements.values()
    ]
    assert held(setting, found) is None


def damage(path, how):
    if how == "lost":
        path.unlink()
        return
    models = np.load(path)
    models[0, 3] += 1
    np.save(path, models)


@pytest.mark.parametrize("how", ["lost", "changed"])
@pytest.mark.parametrize("when", ["after the audition", "after two rounds"])
def test_where_the_solo_models_are_gone_the_operator_can_end_the_job(when, how, tmp_path, plans, monkeypatch):
    setting = Setting(tmp_path, plans, LIARS)
    killed(setting, monkeypatch, when)
    (path,) = (setting.folder / "models").glob("*-solo.npy")
    content = path.read_bytes()
    damage(path, how)
    sentence = told(lambda: setting.go(grid_of(setting.people)))
    assert "Training starts from the mean of these models: put the file back. With truthfl end, " in sentence
    assert ("is not there" if how == "lost" else "the model with which Ada auditioned") in sentence
    name, key = setting.entries()[0].job, read_key(setting.folder / "operator")
    with open_ledger(setting.folder / "ledger.db", key) as book:
        give_command(book, name, key, lambda: new_command("end", name, "Olga", "they are gone"))
    found = setting.go(grid_of(setting.people))
    rounds = 0 if when == "after the audition" else 2
    assert found.ended.document == {"rounds": rounds, "asked": {}, "lost": 0}
    assert np.array_equal(final_model(setting, found), setting.scene.federated.model.init(5))
    settled = found.settlements["Ada"].document
    assert (settled["asked"], settled["delivered"], settled["label_pay"] > 0) == (12, rounds, True)
    path.write_bytes(content)  # with which the others' losses can be recomputed
    assert held(setting, found) is None
    row = next(entry for entry in setting.entries() if entry.kind == "ended")
    assert "the model is lost, for the solo models from which training starts are gone" in describe_row(row, None)


def test_a_file_that_is_put_back_is_used(tmp_path, plans, finished, monkeypatch):
    setting = Setting(tmp_path, plans, LIARS)
    killed(setting, monkeypatch, "after the audition")
    (path,) = (setting.folder / "models").glob("*-solo.npy")
    content = path.read_bytes()
    path.unlink()
    assert "put the file back" in told(lambda: setting.go(grid_of(setting.people)))
    path.write_bytes(content)
    found = setting.go(grid_of(setting.people))
    assert found.rounds[-1].document["model"] == finished[1].rounds[-1].document["model"]


def test_a_job_file_may_have_no_rounds_only_where_solo_models_are_trained(tmp_path):
    job = audition_job(tmp_path)
    without = replace(job, training=replace(job.training, rounds=0))
    assert told(without.with_contract, "lceme") == (
        "[training] rounds is 0; it must be at least 1, for under the contract 'lceme' nobody trains alone before."
    )
    setting = Setting(tmp_path, Plans(), job=without)
    found = setting.go()
    plan = setting.plans(without, None)
    assert (plan.start, plan.training.rounds, plan.report_bounds) == (SOLO_MEAN, 0, ())
    assert plan.details.level.loss == plan.details.level.zero
    assert np.abs(final_model(setting, found) - mean_of(setting, found, NAMES)).max() < 1e-6
    assert [found.settlements[name].document["computing_pay"] for name in NAMES] == [0.0] * 4
    assert held(setting, found) is None


def test_where_nobody_labels_nobody_passes_and_the_job_is_settled(tmp_path):
    setting = Setting(tmp_path, Plans(), ["lazy labeler"] * 4)
    found = setting.go()
    assert found.finished
    assert not found.rounds
    assert [entry.document["passed"] for entry in found.auditions.values()] == [False] * 4
    assert np.array_equal(final_model(setting, found), setting.scene.federated.model.init(5))
    for name in NAMES:
        settled = found.settlements[name].document
        assert (settled["computing_pay"], settled["delivered"], settled["asked"]) == (0.0, 0, 0)
    assert check(setting.entries()) is None
    assert audit(found, *published_files(setting.folder, found.name)) is None
    for person in setting.people.values():
        assert receipt_fault(participant_folder.receipts(person.folder)[0]) is None


# What the check finds.


@pytest.mark.parametrize(
    ("kind", "key", "name", "what"),
    [
        ("start", "0", "model", "it begins with another model than the rounds"),
        ("round", "1", "previous", "it begins with another model than the rounds"),
    ],
)
def test_another_start_is_found(finished, kind, key, name, what):
    setting, _ = finished
    changed = rewritten(setting.entries(), kind, key, lambda document: document.update({name: "ab" * 32}))
    assert what in check(signed_anew(changed, setting)).message


def test_a_start_that_is_not_the_mean_is_found(monkeypatch, tmp_path, plans):
    """A server that starts from other weights than the joint training's, consistently."""
    setting = Setting(tmp_path, plans, LIARS)
    with monkeypatch.context() as patched:
        patched.setattr(final_module, "solo_mean", lambda models, _weights: solo_mean(models, [0.9, 0.1]))
        found = setting.go()
    assert check(setting.entries()) is None
    files = published_files(setting.folder, found.name)
    assert audit(found, *files) == "the first round started from another model than the one of the terms"


def test_a_final_model_that_is_not_the_mean_is_found(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(final_module, "solo_mean", lambda models, weights: 1.01 * solo_mean(models, weights))
        setting, found = no_rounds(tmp_path)
    assert check(setting.entries()) is None
    assert "the model that was tested is not the one from which training starts" in audit(
        found, *published_files(setting.folder, found.name)
    )


# Models that would spoil the mean.


def scaled(model):
    return model * np.float32(1e3)


def one_class(model):
    changed = model.copy()
    changed[-1] = 1e5
    return changed


def not_a_number(model):
    changed = model.copy()
    changed[5] = np.nan
    return changed


@pytest.fixture(scope="module")
def bound(finished):
    """Five times the longest honest solo model."""
    setting, found = finished
    models = np.load(solo_file(setting.folder / "models", found.name))
    return 5.0 * max(solo_length(model) for model in models)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (scaled, "too long: the model has length"),
        (one_class, "too long: the model has length"),
        (not_a_number, "it has NaN or infinity"),
        (lambda model: model[:-1], "its shape is"),
        (lambda model: model * np.float32(1e9), "it has a number beyond 1,000,000"),
        (lambda model: -model, "it scores classes lower where they are right"),
    ],
)
def test_a_model_that_would_spoil_the_mean_is_refused_when_it_is_opened(change, reason, tmp_path, bound, monkeypatch):
    honest = participant.audition_model

    def audition_model(own, model, *arguments, client, **more):
        made = honest(own, model, *arguments, client=client, **more)
        return change(made) if client == 1 else made

    monkeypatch.setattr(participant, "audition_model", audition_model)
    setting = Setting(tmp_path, FromSolo(bound=bound))
    found = setting.go()
    row = found.auditions["Ben"].document
    assert row["reason"].startswith(f"No model was taken: {reason}")
    assert (row["model"], row["solo_loss"], row["passed"], found.settlements["Ben"].document["pay"]) == (
        None, None, False, 0,
    )  # fmt: skip
    if reason.startswith("too long"):
        assert row["reason"].endswith(f"by the offer it is at most {bound:.3g}.")
    others = [name for name in NAMES if name != "Ben"]
    models = np.load(solo_file(setting.folder / "models", found.name))
    labels = [found.agreement.offers[NAMES.index(name)].client.samples for name in others]
    start = solo_mean(models[[0, 2, 3]], [samples / sum(labels) for samples in labels])
    assert found.starts[0].document["model"] == model_digest(start)
    assert check(setting.entries()) is None
    assert audit(found, *published_files(setting.folder, found.name)) is None


def test_without_the_bound_such_a_model_passes_and_a_check_by_the_bound_finds_it(tmp_path, bound, monkeypatch):
    """The test of a solo model has no scale, so that the bound is needed; an operator who ignores it is found."""
    honest = participant.audition_model
    monkeypatch.setattr(
        participant,
        "audition_model",
        lambda *arguments, client, **more: (
            honest(*arguments, client=client, **more) * np.float32([1, 1e3][client == 1])
        ),
    )
    setting = Setting(tmp_path, FromSolo(rounds=0))  # from such a mean, honest reports would be too long
    found = setting.go()
    assert found.auditions["Ben"].document["passed"]
    assert held(setting, found) is None
    object.__setattr__(found.agreement.terms, "solo_bound", bound)
    assert "Ben's solo model is longer than the" in audit(found, *published_files(setting.folder, found.name))


def test_a_model_times_minus_one_has_the_same_loss_and_is_found(finished):
    """The test fits a factor to all scores, which may be negative; a mean with others has none."""
    setting, found = finished
    model, test = setting.scene.federated.model, setting.scene.test
    models = np.load(solo_file(setting.folder / "models", found.name))[[0, 3]]
    assert solo_losses(model, -models, test, 7) == pytest.approx(solo_losses(model, models, test, 7))
    assert (alignments(model, models, test, 7) > 0.2).all()
    assert alignments(model, -models, test, 7) == pytest.approx(-alignments(model, models, test, 7))
    assert alignments(model, np.zeros_like(models), test, 7).tolist() == [0.0, 0.0]


def test_an_opposed_model_that_was_taken_is_found(tmp_path, plans, monkeypatch):
    honest = participant.audition_model

    def audition_model(*arguments, client, **more):
        made = honest(*arguments, client=client, **more)
        return -made if client == 1 else made

    monkeypatch.setattr(participant, "audition_model", audition_model)
    monkeypatch.setattr(auditions, "_refuse_opposed", lambda *_: None)
    setting = Setting(tmp_path, plans)
    found = setting.go()
    assert found.auditions["Ben"].document["passed"]
    fault = audit(found, *published_files(setting.folder, found.name))
    assert fault.startswith("the solo model of Ben scores classes lower where they are right")


# The participant's side.


def test_terms_without_solo_models_cannot_start_from_them(finished):
    setting, found = finished
    ada, offer = next(iter(setting.people.values())), found.agreement.offers[0]

    def refusal(**changes):
        document = offer.document() | {"job": offer.document()["job"] | changes}
        return told(ada.answer_offer, document), told(offer_from, document)

    assert set(refusal(recipe=None)) == {
        "this is no offer: its training starts from solo models, and nobody trains any."
    }
    assert "starts elsewhere" in refusal(start="last year's")[0]
    assert "it has no rounds" in refusal(start="common", rounds=0)[0]
    assert "its solo_bound is no number" in refusal(solo_bound=-1.0)[0]
