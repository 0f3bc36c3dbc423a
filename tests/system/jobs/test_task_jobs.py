"""Jobs on tables and texts: read, planned, run and checked like jobs on pictures."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.auditions import QUICK, audition_job, audition_job_file
from truthfl.cli.output import print_json
from truthfl.contracts.audition.details import recipe_words
from truthfl.errors import InputError
from truthfl.federation.protocol.final_model import audit, published_files
from truthfl.federation.protocol.job_task import task_of, task_terms
from truthfl.federation.simulated.in_process import run_job
from truthfl.job import read_job
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.people.behaviour import SoloRecipe
from truthfl.learning.solo import Recipe, possible_recipes
from truthfl.learning.tasks.tables import Tables
from truthfl.ledger.book import open_ledger
from truthfl.ledger.checking import check
from truthfl.studies.verify.job_verification import speed_class

JOBS = Path(__file__).parents[3] / "benchmarks" / "jobs"

TABLES = '[task]\nuse = "tables"\n\n[data]\nsource = "digits"'
WINE = """
[task]
use = "tables"

[data]
source = "wine"
pilot_samples = 110
test_samples = 40

[training]
rounds = 8
step_size = 0.5

[server]
loss_value = 20000.0
test_samples = 2000
most_pay = 8.0

[clients]
name = ["Ada", "Ben", "Cleo"]
dataset_size = 20
label_cost = 1.0
sample_cost = 0.01
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A job with an audition on a table."""
    folder = tmp_path_factory.mktemp("table")
    (folder / "wine.toml").write_text(WINE)
    job = read_job(folder / "wine.toml")
    return job, folder / "out", run_job(job, folder / "out", design=QUICK)


def test_a_job_on_a_table_is_planned_run_and_paid(done):
    _, _, outcome = done
    assert (outcome.pay > 0).all()
    assert not outcome.stopped_at_gate.any()


def test_its_ledger_and_its_published_model_hold(done):
    _, folder, outcome = done
    with open_ledger(folder / "ledger.db") as book:
        entries = book.entries()
    assert check(entries) is None
    assert audit(outcome.view, *published_files(folder, outcome.view.name)) is None


def test_its_offers_have_the_task_as_it_was_fitted(done):
    job, _, outcome = done
    terms = outcome.agreement.offers[0].job
    assert (terms.task["name"], tuple(terms.image_shape)) == ("tables", (13,))
    task = task_of(terms)
    assert task == job.server_side().task
    assert len(task.means) == 13
    changed = replace(terms, task={**terms.task, "document": terms.task["document"] | {"means": [0.0] * 13}})
    with pytest.raises(InputError, match="the offer's task is tables"):
        task_of(changed)


def test_the_jobs_document_has_the_task(done):
    job, _, _ = done
    assert job.document()["task"] == {"use": "tables", "settings": {}}


def test_offers_of_a_job_on_pictures_have_no_task(done, tmp_path):
    job, terms = audition_job(tmp_path), done[2].agreement.offers[0].job
    assert terms.document()["task"] is not None
    assert replace(terms, task=task_terms(job.task, job.server_side().task)).document()["task"] is None
    assert "task" not in job.document()


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ('use = "tables"\nmeans = [1.0]', r"\[task\] means is measured on the operator's data; the fields are use, cl"),
        (
            'use = "tables"\ncolumns = ["a"]',
            r"\[task\] has no field 'columns'; its fields are use, classes, several_labels, label_separator, label, n",
        ),
        ('use = "texts"\nbuckets = 3', r"\[task\] buckets is 3; it must be from 16 to 65,536"),
        ('use = "sounds"', r"\[task\] use is 'sounds'; it must be"),
        ('label = "x"', r"\[task\] lacks use"),
    ],
    ids=range(5),
)
def test_sections_that_do_not_do(tmp_path, section, message):
    path = audition_job_file(tmp_path, ('[data]\nsource = "digits"', f'[task]\n{section}\n[data]\nsource = "digits"'))
    with pytest.raises(InputError, match=message):
        read_job(path)


def test_a_source_must_be_named(tmp_path):
    path = audition_job_file(tmp_path, ('[data]\nsource = "digits"', '[task]\nuse = "tables"\n[data]'))
    with pytest.raises(InputError, match=r'\[data\] lacks source; name a file .*, or "breast_cancer", or "wine"'):
        read_job(path)


def test_a_network_is_for_pictures(tmp_path):
    path = audition_job_file(tmp_path, ('[data]\nsource = "digits"', TABLES), ('"softmax"', '"cnn"'))
    with pytest.raises(InputError, match=r'kind is "cnn"; tables are learned by "softmax", or by a custom task'):
        read_job(path)


def test_clients_rows_can_be_handed_out(done, tmp_path):
    job, _, _ = done
    scene = job.simulated_federation()
    partition = scene.federated.partition
    rows = partition.rows[partition.starts[0] : partition.starts[1]]
    scene.task.write(tmp_path / "ada.csv", scene.clients_read.take(rows))
    read = Tables().read(tmp_path / "ada.csv")
    assert (scene.task.features(read) == scene.federated.data.features[rows]).all()
    assert scene.task.positions(read.labels, "ada.csv").tolist() == scene.federated.data.labels[rows].tolist()


class NoPenalty:
    """A model of somebody's own, which has no penalty."""


def test_lies_have_recipes_that_make_a_difference():
    rows, pictures = np.zeros((3, 4), dtype=np.float32), np.zeros((3, 8, 8, 1), dtype=np.uint8)
    softmax = SoftmaxRegression(4, 2)
    assert SoloRecipe.SHIFTED not in possible_recipes(softmax, rows)
    assert possible_recipes(softmax, pictures) == tuple(SoloRecipe)
    assert possible_recipes(NoPenalty(), rows) == (SoloRecipe.PRESCRIBED, SoloRecipe.LONGER)


@pytest.mark.parametrize(
    ("name", "dtype", "speed"),
    [
        ("table_digits", np.float32, "slow"),
        ("table_cancer", np.float32, "slow"),
        ("texts_docstrings", np.uint8, "fast"),
    ],
)
def test_jobs_are_verified_by_as_many_runs_as_their_speed_allows(name, dtype, speed):
    job = read_job(JOBS / f"{name}.toml")
    assert speed_class(job, LabeledSamples(np.zeros((2, 4), dtype=dtype), [0, 1], ["a", "b"])) == speed


def test_what_no_pay_elicits_is_null_in_json(capsys):
    print_json({"pay": np.array([1.5, np.inf]), "of": (float("nan"), 2)})
    assert json.loads(capsys.readouterr().out) == {"pay": [1.5, None], "of": [None, 2]}


def test_shifted_copies_are_of_pictures():
    recipe = Recipe(60, 64, 0.5, 1e-3, 0)
    assert recipe_words(recipe.document(), pictures=True) == "60 steps of 64, without shifted copies"
    assert recipe_words(recipe.document(), pictures=False) == "60 steps of 64"
