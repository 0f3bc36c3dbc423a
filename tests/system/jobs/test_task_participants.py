"""Participants with tables and texts: their files, labels in them or by hand; mistakes are told in a sentence."""

import json
import re
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers.commands import told
from helpers.participants import an_offer
from helpers.task_jobs import (
    CITIES,
    QUICK,
    forget_participants,
    grid_of_settings,
    rows,
    settings_of,
    table_job_file,
    write_rows,
)
from truthfl.cli.app import app
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.participant.node_settings import ACCEPT_ALL, Settings, participant_of
from truthfl.federation.participant.task_data import FEATURES, MOST_ENTRIES, TaskData
from truthfl.federation.protocol import job_control
from truthfl.federation.protocol.job_task import task_terms
from truthfl.federation.protocol.server import Operator, conduct_job, job_name
from truthfl.federation.simulated.in_process import run_job
from truthfl.home import participant_folder
from truthfl.job import read_job
from truthfl.learning.tasks.task_choice import TaskChoice, absolute_argument
from truthfl.learning.tasks.texts import Texts
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import secret_from_seed
from truthfl.ledger.checking import check
from truthfl.ledger.signing import new_key, read_key
from truthfl.page.catalogue import shown
from truthfl.samples.label_store import LabelStore
from truthfl.samples.sources import open_samples

ADA, BEN, CLEO, DORA = range(1000, 1004)
MENDED = 2000


class Rejoining:
    """The grid on which Cleo, told that the job is over for her, mends her file and joins again."""

    def __new__(cls, grid, settings, mend):
        def node_ids(found=grid.get_node_ids):
            news = participant_folder.news(Path(settings.home))
            if CLEO in grid.contexts and news is not None and news[1]:
                mend(news[0])
                participant_folder.clear_news(Path(settings.home))
                grid.contexts[MENDED] = replace(grid.contexts.pop(CLEO), node_id=MENDED)
                forget_participants()
            return found()

        grid.get_node_ids = node_ids
        return grid


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A job: Ada's file has labels, Ben labels by hand, Cleo's has an unknown city first, Dora brings pictures."""
    folder = tmp_path_factory.mktemp("people")
    job = read_job(table_job_file(folder))
    ada = write_rows(folder / "ada.csv", ("city", "label", "shoe", "age"), [(c, y, 40, a) for a, c, y in rows(40, 2)])
    ben = write_rows(folder / "ben.csv", ("age", "city"), [line[:2] for line in rows(40, 3)])
    spoiled = [(a, "Oslo" if k == 7 else c, y) for k, (a, c, y) in enumerate(rows(40, 4))]
    cleo = write_rows(folder / "cleo.csv", ("age", "city", "label"), spoiled)
    np.savez(folder / "dora.npz", images=np.zeros((40, 2, 2), np.uint8), labels=np.arange(40) % 2)
    people = {
        ADA: settings_of(folder, "Ada", ada),
        BEN: settings_of(folder, "Ben", ben),
        CLEO: settings_of(folder, "Cleo", cleo),
        DORA: settings_of(folder, "Dora", folder / "dora.npz", "pictures"),
    }
    with closing(LabelStore(Path(people[BEN].home) / "labels.db")) as store:
        by_hand = dict(zip(open_samples(ben).ids, [line[2] for line in rows(40, 3)], strict=True))
        store.add_imported(by_hand)
    sentences = []

    def mend(sentence):
        sentences.append(sentence)
        write_rows(cleo, ("age", "city", "label"), rows(40, 4))

    grid = Rejoining(grid_of_settings(people), people[CLEO], mend)
    with pytest.MonkeyPatch.context() as patched, open_ledger(folder / "out" / "ledger.db") as book:
        patched.setattr(job_control, "LONGEST_WAIT", 0.05)
        operator = Operator(book, folder / "out", kept_key(folder / "operator"), secret_from_seed(5), 5)
        plan = lambda job, side: job.plan(side, QUICK)  # noqa: E731
        found = conduct_job(grid, job, job_name(book, job, 5), operator, plan, lambda *_: None)
        entries = book.entries()
    return folder, people, found, entries, sentences


def test_files_labels_by_hand_and_a_mended_file_are_trained_on(done):
    _, people, found, entries, _ = done
    assert [offer.client.name for offer in found.agreement.offers] == ["Ada", "Ben", "Cleo"]
    assert dict(found.delivered) == {"Ada": 6, "Ben": 6, "Cleo": 6}
    assert check(entries) is None
    for node in (ADA, BEN, CLEO):
        assert len(participant_folder.receipts(Path(people[node].home))) == 1


def test_an_unknown_category_is_told_and_its_owner_is_asked_again(done):
    folder, _, found, _, sentences = done
    expected = f"line 9 of {folder / 'cleo.csv'} has 'Oslo' in column city; the job knows Bergen, Paris."
    assert sentences == [f"{expected} Mend your file and join again; the offer is not answered yet."]
    assert {offer.job.version for offer in found.agreement.offers} == {1}  # nobody had to be offered anew


def test_somebody_who_brings_pictures_to_a_table_is_told_and_the_others_are_paid(done):
    _, people, found, _, _ = done
    sentence = "Dora brings pictures; this job is on tables: they join with --task tables."
    assert [entry.document["reason"] for entry in found.rejections] == [sentence]
    assert participant_folder.news(Path(people[DORA].home)) == (
        f"The operator's server does not admit you: {sentence}",
        True,
    )
    form = shown(participant_folder.last_news(Path(people[DORA].home)).sentence)["values"]["reason"]
    values = {"name": "Dora", "stated": "pictures", "task": "tables", "file": "tables"}
    assert form == {"key": "refusal.with_task", "values": values}, "the page can say it in its language"
    assert participant_folder.offers(Path(people[DORA].home)) == []


def test_columns_are_found_by_name_and_labels_are_the_participants(done):
    _, people, found, _, _ = done
    ada, offer = participant_of(people[ADA]), found.agreement.offers[0]
    features, ages = ada.samples_for(offer), np.array([line[0] for line in rows(40, 2)])
    assert (features.dtype, features.shape) == (np.float32, (40, 3))
    task = offer.job.task["document"]
    np.testing.assert_allclose(features[:, 0], (ages - task["means"][0]) / task["scales"][0], rtol=1e-6)
    assert [CITIES[one] for one in features[:, 1:].argmax(axis=1)] == [line[1] for line in rows(40, 2)]
    names = [offer.job.classes[label] for label in ada.labels(offer)]
    assert names == [line[2] for line in rows(40, 2)]


def test_features_are_made_once_for_all_processes_until_the_file_changes(done, tmp_path, monkeypatch):
    _, people, found, _, _ = done
    offer, data = found.agreement.offers[0], tmp_path / "ada.csv"
    data.write_bytes(Path(people[ADA].data).read_bytes())
    made = TaskData(data, tmp_path / "home", TaskChoice("tables"))
    features, labels, ids = made.features(offer), made.labels(offer), made.listing.ids
    again = TaskData(data, tmp_path / "home", TaskChoice("tables"))
    with monkeypatch.context() as patched:
        patched.setattr("truthfl.learning.tasks.tables.read_table", None)  # nothing is read
        np.testing.assert_array_equal(again.features(offer), features)
        np.testing.assert_array_equal(again.labels(offer), labels)
        assert again.listing.ids == ids
    data.write_text(data.read_text().replace("yes", "no", 1))
    changed = TaskData(data, tmp_path / "home", TaskChoice("tables"))
    assert (changed.labels(offer) != labels).sum() == 1
    (tmp_path / "home" / FEATURES).write_bytes(b"damaged")
    repaired = TaskData(data, tmp_path / "home", TaskChoice("tables"))
    np.testing.assert_array_equal(repaired.features(offer), features)


def answer_with(done, folder, text):
    """What Ada is told, if her file is this one; None if she answers the offer."""
    _, people, found, _, _ = done
    (folder / "ada.csv").write_text(text)
    settings = replace(people[ADA], data=str(folder / "ada.csv"), home=str(folder / "home"))
    answer = participant_of(settings).answer_offer(found.agreement.offers[0].envelope())
    news = participant_folder.news(folder / "home")
    assert (answer is None) == (news is not None)
    return None if news is None else news[0]


def table(lines, header="age,city,label"):
    return "\n".join([header, *(",".join(map(str, line)) for line in lines)]) + "\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (table([line[:2] for line in rows(40, 2)], "age,town"), "ada.csv has no column 'city'; the job's columns are"),
        (table([(a, c, "maybe" if k < 3 else y) for k, (a, c, y) in enumerate(rows(40, 2))]),
         "3 of your labels are none of the job's classes, as is 'maybe' in ada.csv; they are no, yes. Mend"),
        (table([("x", c, y) for _, c, y in rows(40, 2)]), "ada.csv has 'x' in column age; it must be a number."),
        (table(rows(39, 2)), "the offer asks for 40 samples; your file has 39. Mend your file and join again;"),
        (table(rows(40, 2)), None),
    ],
    ids=["column", "label", "number", "fewer", "fits"],
)  # fmt: skip
def test_what_does_not_fit_is_told_before_signing(done, tmp_path, text, sentence):
    found = answer_with(done, tmp_path, text)
    assert found is None if sentence is None else sentence in found


def test_an_offer_on_another_task_is_not_answered(done, tmp_path):
    _, people, found, _, _ = done
    offer = found.agreement.offers[0]
    for task, data, sentence in (
        ("pictures", people[DORA].data, "the offer is on tables; you brought pictures: join again with --task tables."),
        ("texts", tmp_path / "ada.csv", "the offer is on tables; you brought texts: join again with --task tables."),
    ):
        (tmp_path / "ada.csv").write_text("text\n" + "hello\n" * 40)
        settings = replace(people[ADA], data=str(data), home=str(tmp_path / task), task=task)
        assert participant_of(settings).answer_offer(offer.envelope()) is None
        assert participant_folder.news(tmp_path / task) == (f"{sentence} Nothing is trained.", True)
        assert participant_folder.offers(tmp_path / task) == []


def test_an_offer_on_pictures_is_not_answered_with_a_table(done, tmp_path):
    _, people, _, _, _ = done
    offer = an_offer(read_key(Path(people[ADA].key)), read_key(Path(people[BEN].key)))
    settings = replace(people[ADA], home=str(tmp_path))
    assert participant_of(settings).answer_offer(offer.envelope()) is None
    assert (
        "the offer is on pictures; you brought tables: join again without --task."
        in participant_folder.news(tmp_path)[0]
    )


def test_a_file_that_the_participants_task_reads_otherwise_is_told(done, tmp_path):
    _, people, found, _, _ = done
    (tmp_path / "ada.csv").write_text(table(rows(40, 2), "age,city,answer"))
    (tmp_path / "task.toml").write_text('[task]\nuse = "tables"\nlabel = "answer"\n')
    data, task = str(tmp_path / "ada.csv"), str(tmp_path / "task.toml")
    settings = replace(people[ADA], data=data, home=str(tmp_path / "home"), task=task)
    assert participant_of(settings).answer_offer(found.agreement.offers[0].envelope()) is None
    sentence = "ada.csv has 40 samples with labels by your task and 40 samples without labels by the offer's; take the"
    assert participant_folder.news(tmp_path / "home")[0].startswith(sentence)


def test_a_file_that_has_class_by_class_is_asked_for_in_another_order(tmp_path):
    lines = sorted(rows(40, 2), key=lambda line: line[2])
    (tmp_path / "sorted.csv").write_text(table(lines))
    data = TaskData(tmp_path / "sorted.csv", tmp_path, TaskChoice("tables"))
    assert len(set(data.existing_labels[:8])) == 2
    assert sorted(data.existing_labels) == [line[2] for line in lines]
    for sample, label in zip(data.source.samples, data.existing_labels, strict=True):
        assert lines[sample.row][2] == label


def test_the_task_that_somebody_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert TaskChoice.of_argument("tables") == TaskChoice("tables")
    (tmp_path / "task.toml").write_text('[task]\nuse = "texts"\ntext = "body"\n')
    assert TaskChoice.of_argument("task.toml").load() == Texts(text="body")
    assert absolute_argument("task.toml") == str(tmp_path / "task.toml")
    assert absolute_argument("my.py:Mine") == f"{tmp_path}/my.py:Mine"
    assert absolute_argument("texts") == "texts"
    (tmp_path / "fitted.toml").write_text('[task]\nuse = "tables"\nmeans = [1.0]\n')
    (tmp_path / "none.toml").write_text("[data]\n")
    (tmp_path / "broken.toml").write_text("[task\n")
    for text, sentence in (
        ("sounds", "task is 'sounds'; it must be pictures, tables, texts, FILE.py:Class"),
        ("nowhere.toml", "nowhere.toml cannot be read"),
        ("none.toml", "none.toml has no section [task] with use"),
        ("broken.toml", "broken.toml is not valid TOML"),
        ("fitted.toml", "[task] means in fitted.toml is measured by the operator"),
    ):
        assert sentence in told(TaskChoice.of_argument, text)


MINE = "from truthfl.simulate import Tables\n\n\nclass Mine(Tables):\n    pass\n"


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A simulated job on a task of the operator's own, done, and its job file."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.py").write_text(MINE)
    path = table_job_file(folder)
    path.write_text(path.read_text().replace('use = "tables"', 'use = "mine.py:Mine"'))
    return folder, run_job(read_job(path), folder / "out", design=QUICK)


def test_the_operators_task_is_loaded_only_if_the_participant_names_it(own, tmp_path):
    folder, outcome = own
    offer = outcome.agreement.offers[0]
    (tmp_path / "mine.py").write_text(f"{MINE}\n# changed\n")
    (tmp_path / "ada.csv").write_text(table(rows(40, 2)))
    other = TaskChoice.of_argument(f"{tmp_path / 'mine.py'}:Mine")
    digests = rf"the offer's task is Mine {offer.job.task['digest'][:8]}…; yours is [0-9a-f]{{8}}…: get the operator's"
    key = folder / "out" / "participants" / "Ada" / "key"
    for task, sentence in (
        (
            "tables",
            "the offer is for a custom task, Mine; join with --task FILE.py:Mine. The server nev",
        ),
        (other.use, digests),
        (f"{folder / 'mine.py'}:Mine", None),
    ):
        home = tmp_path / f"home {len(task)}"
        settings = Settings("Ada", str(tmp_path / "ada.csv"), str(home), str(key), ACCEPT_ALL, task=task)
        answer, news = participant_of(settings).answer_offer(offer.envelope()), participant_folder.news(home)
        assert (answer is None) == (sentence is not None)
        assert news is None if sentence is None else re.match(sentence, news[0])


def test_the_ledger_of_a_custom_task_is_checked_with_it(own, tmp_path):
    folder, _ = own
    (tmp_path / "mine.py").write_text(f"{MINE}\n# changed\n")

    def checked(*more):
        done = CliRunner().invoke(app, ["ledger", "check", str(folder / "out" / "ledger.db"), *more])
        return done.exit_code, done.output

    code, words = checked()
    assert code == 0
    assert "the loss was not recomputed; its task is Mine: say --task FILE.py:Mine." in words
    code, words = checked("--task", f"{folder / 'mine.py'}:Mine")
    assert code == 0
    assert "was recomputed." in words
    code, words = checked("--task", f"{tmp_path / 'mine.py'}:Mine")
    assert code == 1
    assert re.search(r"WRONG: job \S+: its task is Mine [0-9a-f]{8}…; yours is [0-9a-f]{8}…\.", words)


@pytest.mark.parametrize("labels", [True, False])
def test_rows_are_shared_as_files_that_are_read_again(own, tmp_path, labels):
    folder, _ = own
    done = CliRunner().invoke(
        app, ["share", str(folder / "job.toml"), "--out", str(tmp_path), "--labels" if labels else "--no-labels"]
    )
    assert done.exit_code == 0, done.output
    assert done.output.split() == [str(tmp_path / f"{name}.csv") for name in ("Ada", "Ben", "Cleo", "Dora")]
    read = TaskChoice("tables").load().read(tmp_path / "Ada.csv")
    scene = read_job(folder / "job.toml").simulated_federation()
    mine = scene.federated.partition.rows_of(0)
    np.testing.assert_array_equal(scene.task.features(read), scene.federated.data.features[mine])
    expected = tuple(scene.federated.data.classes[label] for label in scene.federated.data.labels[mine])
    assert read.labels == (expected if labels else None)


WITHOUT_SKLEARN = """
import json, sys
from pathlib import Path
from truthfl.federation.participant.task_data import TaskData
from truthfl.learning.tasks.task_choice import TaskChoice
from truthfl.ledger.terms import offer_from
offer = offer_from(json.loads(Path(sys.argv[1]).read_text()))
data = TaskData(Path(sys.argv[2]), Path(sys.argv[3]), TaskChoice("texts"))
print(data.features(offer).sum(), data.labels(offer).tolist(), "sklearn" in sys.modules)
"""


def test_a_later_process_makes_no_features_of_texts(tmp_path):
    (tmp_path / "t.csv").write_text("text,label\nVery good.,praise\nVery bad.,blame\nGood.,praise\n")
    fitted = Texts(classes=("blame", "praise"), buckets=16)
    terms = {"task": task_terms(TaskChoice("texts"), fitted), "image_shape": (16,), "classes": fitted.classes}
    offer = an_offer(new_key(), new_key(), samples=3, **terms)
    (tmp_path / "offer.json").write_text(json.dumps(offer.envelope()))
    command = [sys.executable, "-c", WITHOUT_SKLEARN, tmp_path / "offer.json", tmp_path / "t.csv", tmp_path / "home"]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert first == f"{255 * 5} [1, 0, 1] True\n"
    assert second == f"{255 * 5} [1, 0, 1] False\n"


def test_somebody_who_stays_from_job_to_job_keeps_the_samples_of_the_last_jobs_only(tmp_path):
    """A participant whose caches grew with every job took ever more memory under `join --stay`."""
    np.savez(tmp_path / "ada.npz", images=np.zeros((40, 2, 2), np.uint8), labels=np.arange(40) % 2)
    settings = settings_of(tmp_path, "Ada", tmp_path / "ada.npz", "pictures")
    ada, operator = participant_of(settings), new_key()
    for number in range(5):
        shape = {"image_shape": (2, 2, 1), "classes": ("0", "1"), "samples": 10 + number}
        offer = an_offer(ada.key, operator, job=f"job-{number}", **shape)
        ada.answer_offer(offer.envelope())
        ada.has_labels(offer.hash)
        ada.code_key(offer.hash)
        ada._features(offer)
    kept = (ada.features_for, ada.accepted_offers, ada.code_keys)
    assert [len(one) for one in kept] == [MOST_ENTRIES] * 3
    assert all(list(one)[-1] == offer.hash for one in kept)
