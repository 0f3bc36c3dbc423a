"""A job whose samples may have several labels, from the plan to the receipt; participants with files and by hand."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers.auditions import QUICK
from helpers.commands import told
from helpers.participants import Ada, an_offer, changed, draw_pictures
from helpers.task_jobs import QUICK as QUICK_PLAN
from helpers.task_jobs import TABLE_JOB, grid_of_settings, settings_of, write_rows
from truthfl.cli.app import app
from truthfl.contracts.setting import Training
from truthfl.errors import InputError
from truthfl.federation.operator.kept_jobs import fixed_draws, kept_key
from truthfl.federation.participant.node_settings import participant_of, samples_to_show
from truthfl.federation.protocol import job_control
from truthfl.federation.protocol.final_model import audit, published_files
from truthfl.federation.protocol.final_model import tested_losses as losses_of
from truthfl.federation.protocol.job_task import task_terms
from truthfl.federation.protocol.server import Operator, conduct_job, job_name
from truthfl.federation.simulated.in_process import run_job
from truthfl.federation.simulated.payoff import federation_of_asked, honest_solo_model
from truthfl.home import participant_folder
from truthfl.job import read_job
from truthfl.learning.people.profile import Profile
from truthfl.learning.tasks.pictures import Pictures
from truthfl.learning.tasks.task_choice import task_choice
from truthfl.learning.training.train import train
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import secret_from_seed
from truthfl.ledger.checking import check
from truthfl.ledger.signing import new_key, read_key
from truthfl.page.documents import offer_view
from truthfl.page.work import Work
from truthfl.samples.label_store import LabelStore
from truthfl.samples.sources import open_samples

JOB = """
[task]
use = "tables"
several_labels = true
label_separator = ";"

[data]
source = "{source}"
pilot_samples = 200
test_samples = 150

[training]
rounds = 6
step_size = 1.0

[server]
loss_value = 20000.0
test_samples = 2000
most_pay = 8.0

[clients]
name = ["Ada", "Ben", "Cleo"]
dataset_size = 40
label_cost = 1.0
sample_cost = 0.01
behaviour = ["truthful", "truthful", "lazy labeler"]
"""


def weather(count, seed, separator=";"):
    """Days with temperature, wind and rain, and all words that are true of them."""
    numbers = np.random.default_rng(seed).normal(size=(count, 3))
    words = ("hot", "windy", "wet")
    days = [(row, separator.join(word for word, value in zip(words, row, strict=True) if value > 0)) for row in numbers]
    return [(*(f"{value:.4f}" for value in row), true or "dull") for row, true in days]


COLUMNS = ("temperature", "wind", "rain", "label")


def written_job(folder, text=JOB):
    source = write_rows(folder / "days.csv", COLUMNS, weather(700, 1))
    (folder / "job.toml").write_text(text.format(source=source))
    return read_job(folder / "job.toml")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("days")
    job = written_job(folder)
    return job, folder, run_job(job, folder / "out", design=QUICK)


def test_a_job_with_several_labels_is_run_paid_and_checked(done):
    _, folder, outcome = done
    assert (outcome.pay[:2] > 0).all()
    assert outcome.pay[2] < outcome.pay[:2].min()
    terms = outcome.agreement.terms
    assert terms.several_labels
    assert terms.classes == ("dull", "hot", "wet", "windy")
    assert terms.document()["task"]["document"]["several_labels"] is True
    assert audit(outcome.view, *published_files(folder / "out", outcome.view.name)) is None
    checked = CliRunner().invoke(app, ["ledger", "check", str(folder / "out" / "ledger.db")])
    assert checked.exit_code == 0, checked.output
    assert len(outcome.view.receipts) == 3


def test_the_fast_trainer_trains_the_jobs_own_solo_models(done):
    job, _, outcome = done
    federation, draws = job.simulated_federation(), fixed_draws(0)
    restricted = federation_of_asked(job, federation.federated, outcome.agreement)
    ada = outcome.agreement.offers[0]
    model = honest_solo_model(restricted, ada, draws)
    recomputed = losses_of(restricted.model, [model], federation.test, draws.secret)[0]
    assert recomputed == pytest.approx(outcome.view.settlements["Ada"].document["solo_loss"], rel=1e-6)


def test_participants_bring_files_with_several_labels_or_make_them(tmp_path, monkeypatch):
    text = TABLE_JOB.replace('"tables"', '"tables"\nseveral_labels = true\nlabel_separator = ";"')
    job = written_job(tmp_path, text.replace('"Ada", "Ben", "Cleo", "Dora"', '"Ada", "Ben"'))
    ada = write_rows(tmp_path / "ada.csv", COLUMNS, weather(40, 2))
    ben = write_rows(tmp_path / "ben.csv", COLUMNS[:3], [line[:3] for line in weather(40, 3)])
    task = str(tmp_path / "job.toml")
    people = {1000: settings_of(tmp_path, "Ada", ada, task), 1001: settings_of(tmp_path, "Ben", ben, task)}
    with closing(LabelStore(Path(people[1001].home) / "labels.db")) as store:
        made = ["|".join(sorted(line[3].split(";"))) for line in weather(40, 3)]
        store.add_imported(dict(zip(open_samples(ben).ids, made, strict=True)))
    monkeypatch.setattr(job_control, "LONGEST_WAIT", 0.05)
    grid = grid_of_settings(people)
    with open_ledger(tmp_path / "out" / "ledger.db") as book:
        operator = Operator(book, tmp_path / "out", kept_key(tmp_path / "operator"), secret_from_seed(5), 5)
        plan = lambda job, side: job.plan(side, QUICK_PLAN)  # noqa: E731
        found = conduct_job(grid, job, job_name(book, job, 5), operator, plan, lambda *_: None)
        assert check(book.entries()) is None
    assert dict(found.delivered) == {"Ada": 6, "Ben": 6}
    for node, seed in ((1000, 2), (1001, 3)):
        offer = participant_folder.offers(Path(people[node].home))[0]
        names = [[offer.job.classes[k] for k in own] for own in participant_of(people[node]).labels(offer).lists()]
        assert names == [sorted(line[3].split(";")) for line in weather(40, seed)]
    assert np.isfinite(found.test.document["loss"])


def test_shares_of_a_job_have_all_labels(done, tmp_path):
    job, folder, _ = done
    written = CliRunner().invoke(app, ["share", str(folder / "job.toml"), "--out", str(tmp_path)])
    assert written.exit_code == 0, written.output
    cells = {line.rsplit(",", 1)[1] for line in (tmp_path / "Ada.csv").read_text().splitlines()[1:]}
    assert any(";" in cell for cell in cells)
    guessed = {line.rsplit(",", 1)[1] for line in (tmp_path / "Cleo.csv").read_text().splitlines()[1:]}
    assert guessed <= set(job.simulated_federation().federated.data.classes)


def test_pictures_with_several_labels_are_learned_too(tmp_path):
    rng = np.random.default_rng(1)
    bright = rng.integers(0, 2, (600, 2)).astype(bool)
    images = np.zeros((600, 4, 4), np.uint8)
    images[:, :2] = 200 * bright[:, :1, None]
    images[:, 2:] = 200 * bright[:, 1:, None]
    labels = np.column_stack((bright, ~bright.any(axis=1)))
    np.savez(tmp_path / "lamps.npz", images=images, labels=labels, classes=["top", "bottom", "dark"])
    text = TABLE_JOB.replace('"tables"', '"pictures"\nseveral_labels = true')
    (tmp_path / "job.toml").write_text(text.format(source=tmp_path / "lamps.npz"))
    job = read_job(tmp_path / "job.toml")
    outcome = run_job(job, tmp_path / "out", design=QUICK_PLAN)
    terms = outcome.agreement.terms
    assert (terms.task["name"], terms.picture_fit, terms.several_labels) == ("pictures", "padded", True)
    assert outcome.test_loss < np.log(3)  # that of a model that knows nothing
    federated = replace(job.simulated_federation().federated, training=Training(terms.rounds, 1, terms.step_size))
    profile = Profile(["truthful"] * 4, [offer.client.batch_size for offer in outcome.agreement.offers])
    trained = train(federated, profile, terms.seed).params[0]
    assert np.abs(trained - np.load(published_files(tmp_path / "out", outcome.view.name)[0])).max() < 1e-5
    shares = CliRunner().invoke(app, ["share", str(tmp_path / "job.toml"), "--out", str(tmp_path / "shares")])
    assert shares.exit_code == 0, shares.output
    matrix = np.load(tmp_path / "shares" / "Ada.npz")["labels"]
    assert matrix.dtype == bool
    assert matrix.shape == (40, 3)
    assert json.loads(job.task.settings) == {"several_labels": True}


CLASSES = ("cat", "dog", "night")
ON_PICTURES = {
    "classes": CLASSES,
    "samples": 4,
    "task": task_terms(task_choice("pictures", {"several_labels": True}), Pictures(CLASSES, several_labels=True)),
}


def several_offer(settings):
    """An offer on pictures that may have several of three classes."""
    return an_offer(read_key(Path(settings.key)), new_key(), **ON_PICTURES)


def test_pictures_labeled_by_hand_are_sets_where_the_offer_allows_several(tmp_path):
    people = settings_of(tmp_path, "Ada", draw_pictures(tmp_path / "data", 4), "pictures")
    ada, offer = participant_of(people), several_offer(people)
    source = samples_to_show(people)[0]
    with closing(LabelStore(Path(people.home) / "labels.db")) as store:
        store.add_imported(dict(zip(source.ids, ("cat", "cat|dog", "night", "cat|dog|night"), strict=True)))
    assert ada.labels(offer).lists() == [[0], [0, 1], [2], [0, 1, 2]]
    assert ada.count_labels(offer) == 4
    assert ada.count_labels(changed(offer, task=None)) == 2
    with pytest.raises(InputError, match=r"2 of your labels are none of the job's classes, as is 'cat\|dog'"):
        ada.labels(changed(offer, task=None))


def test_pictures_that_came_with_a_matrix_of_labels_need_an_offer_that_allows_several(tmp_path):
    matrix = np.array([[True, True, False], [False, False, True], [True, False, False], [True, True, True]])
    np.savez(tmp_path / "ada.npz", images=np.zeros((4, 28, 28), np.uint8), labels=matrix)
    people = settings_of(tmp_path, "Ada", tmp_path / "ada.npz", "pictures")
    ada, offer = participant_of(people), several_offer(people)
    assert ada.labels(offer).matrix(3).tolist() == matrix.tolist()
    assert ada._existing_label_fault(offer) is None
    assert "several labels each" in ada._existing_label_fault(changed(offer, task=None))
    assert samples_to_show(people)[1] == [[0, 1], [2], [0], [0, 1, 2]]
    np.savez(tmp_path / "ben.npz", images=np.zeros((3, 28, 28), np.uint8), labels=matrix)
    told(participant_of, settings_of(tmp_path, "Ben", tmp_path / "ben.npz", "pictures"))


def test_the_page_follows_the_offer(tmp_path):
    ada, source = Ada(tmp_path), open_samples(draw_pictures(tmp_path / "data", 4))
    offer = ada.gets_offer(**ON_PICTURES)
    with closing(LabelStore(ada.home / "labels.db")) as store:
        state = Work(ada.home, source, CLASSES, store).state()
    assert (state["several"], state["labels"]) == (True, [[]] * 4)
    assert offer_view(ada.home, ada.key, None, None)["several"]
    assert changed(offer, task=None).job.several_labels is False


def test_a_class_with_the_separator_in_its_name_cannot_be_one_of_several(tmp_path):
    data = draw_pictures(tmp_path / "data", 2)
    command = ["label", "--data", str(data), "--home", str(tmp_path / "home"), "--several", "--classes", "a|b,c"]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, InputError)
    assert "classes has the name 'a|b'" in str(result.exception)
