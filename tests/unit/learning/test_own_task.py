"""A custom task: loaded from a file, checked, trained like a built-in one, and named by its source."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from helpers.commands import told
from helpers.task_jobs import NUMPY_TASK, OWN_STEPS, own_job_file, wines_file
from truthfl.cli.app import main
from truthfl.contracts.setting import Strategies, Training
from truthfl.errors import InputError
from truthfl.federation.protocol.job_task import model_of, task_terms
from truthfl.federation.simulated.in_process import run_job
from truthfl.job import read_job
from truthfl.learning.data.federations import ModelChoice
from truthfl.learning.data.partition import Federated, iid_partition
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.learning.solo import Recipe, train_all_alone, train_alone
from truthfl.learning.tasks.custom import OwnSteps, TaskModel, require_trainable
from truthfl.learning.tasks.task_choice import PICTURES, TaskChoice, task_choice
from truthfl.learning.training.plain import train_plainly
from truthfl.learning.training.train import train
from truthfl.ledger.book import open_ledger
from truthfl.studies.cells import Cell, FederationSpec
from truthfl.studies.verify.job_verification import verify_job
from truthfl.studies.work import Store, WorkerPool, do_all


def written(folder, text, name="Wines", file="wines.py"):
    (folder / file).write_text(text)
    return task_choice(f"{file}:{name}", {}, folder)


def changed(old, new):
    assert old in NUMPY_TASK
    return NUMPY_TASK.replace(old, new)


def fitted(choice, folder):
    task = choice.load()
    read = task.read(wines_file(folder))
    return task.fit(read, read), read


def wine_samples(task, read):
    return LabeledSamples(task.features(read), task.positions(read.labels, "wines.csv"), task.classes)


def test_a_numpy_task_trains_as_the_built_in_regression(tmp_path):
    task, read = fitted(written(tmp_path, NUMPY_TASK), tmp_path)
    data = wine_samples(task, read)
    own, built_in = task.model((13,)), SoftmaxRegression(13, 3, penalty=1e-3)
    assert isinstance(own, TaskModel)
    assert task.has_own_model
    assert own.size == built_in.size
    require_trainable(own, data, "Wines")
    strategies = Strategies(1.0, [5, 7, 6], [1.0, 0.5, 1.0])
    losses = []
    for local_steps in (1, 2):
        for model in (own, built_in):
            federated = Federated(model, data, iid_partition(120, [40, 30, 50], seed=1), Training(4, local_steps, 0.1))
            losses.append(train(federated, strategies, [3, 4], evaluate_on={"test": data}).evaluations["test"].loss)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    np.testing.assert_allclose(losses[2], losses[3], rtol=1e-5)


def test_bytes_reach_a_task_as_numbers_from_0_to_1(tmp_path):
    task = replace(written(tmp_path, NUMPY_TASK).load(), classes=("a", "b"))
    params = np.arange(8, dtype=np.float32)
    pixels = np.array([[0, 51, 255]], dtype=np.uint8)
    model = task.model((3,))
    np.testing.assert_allclose(model.scores(params, pixels), [[0.2 * 2 + 4 + 6, 0.2 * 3 + 5 + 7]], rtol=1e-6)


IMPORT_FAULTS = [
    ("import no_such_library", "wines.py cannot be imported (ModuleNotFoundError: No module named 'no_such_library')."),
    ("class Wines(", "wines.py cannot be imported (SyntaxError: '(' was never closed (wines.py, line 1))."),
    ("raise SystemExit(3)", "wines.py cannot be imported (SystemExit: 3)."),
    ("Wines = 3", "wines.py has no class Wines; it has no task."),
    (NUMPY_TASK.replace("class Wines", "class Other"), "wines.py has no class Wines; it has Other."),
    ("class Wines: pass", "Wines is no Task; it must derive from truthfl.simulate.Task."),
    (NUMPY_TASK.replace("def read", "def load"), "Wines lacks read."),
    (
        NUMPY_TASK.replace("def gradient", "def slope"),
        "Wines has size, start, scores and lacks gradient; a custom model is all four of size, start, scores and "
        "gradient, or made by the method model.",
    ),
    (
        "from truthfl.simulate import Task\nclass Wines(Task):\n    def read(self, path): ...\n    local_steps = read",
        "Wines has local_steps and no model of its own; it must have one, by model.",
    ),
]


@pytest.mark.parametrize(("text", "sentence"), IMPORT_FAULTS)
def test_what_is_wrong_with_a_file_is_said_in_a_sentence(tmp_path, text, sentence):
    with pytest.raises(InputError) as told:
        written(tmp_path, text).load()
    assert str(told.value) == sentence


def test_a_missing_file_is_named(tmp_path, capsys, monkeypatch):
    own_job_file(tmp_path)
    (tmp_path / "wines.py").unlink()
    monkeypatch.setattr(sys, "argv", ["truthfl", "plan", str(tmp_path / "job.toml")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert (
        f"[task] {tmp_path}/wines.py does not exist; it must be the file that defines Wines." in capsys.readouterr().err
    )
    with pytest.raises(InputError, match=r"^no_such_package\.tasks cannot be imported \(ModuleNotFoundError: "):
        TaskChoice("no_such_package.tasks:Wines").load()


USE_FAULTS = [
    ("csv.reader(file)", "csv.reader(file)['age']", "Wines.read failed (TypeError: "),
    ("return ReadSamples(", "return (", "Wines.read gave tuple; it must be ReadSamples."),
    ("row[-1] for row in rows)", "row[-1] for row in rows[1:])", "Wines.read gave 178 samples and 177 labels; "),
    ("np.array([row[:-1] for row in rows], dtype=float)", "[]", "Wines.read found no samples."),
    ("    def size", "    def features(self, samples):\n        return samples.raw[1:]\n\n    def size",
     "Wines's features have shape (177, 13); it must be (178, …): one row per sample."),
    ("    def size", "    def features(self, samples):\n        return np.log(samples.raw)\n\n    def size",
     "Wines's features are not finite, at sample 0."),
    ("    def size", "    def fit(self, pilot, known):\n        return None\n\n    def size",
     "Wines.fit gave NoneType; it must be a Wines."),
    ("np.zeros(self.size(shape))", "np.zeros(5)", "Wines's start has 5 numbers; the model has 42."),
    ("len(self.classes) * (shape[0] + 1)", "0", "Wines's size is 0; it must be at least 1."),
    ("+ weights[-1]", "+ weights[-1] + np.nan", "Wines's scores are not finite at the start, at sample 0."),
    ("weights[:-1] + weights[-1]", "weights[:-1, 0]",
     "Wines's scores have shape (178,); it must be (178, 3): one row per sample, one column per class."),
    ("chances.sum(axis=0, keepdims=True)]", "]", "Wines's gradient has 39 numbers; the model has 42."),
    ("chances *= weight[:, None]", "chances *= -weight[:, None]", "Wines's gradient is not that of"),
    ("chances *= weight[:, None]", "chances /= 0 * len(x)", "Wines's gradient is not finite at the start"),
    ("chances *= weight[:, None]", "params += 1", "Wines.gradient failed (ValueError: output array is read-only)."),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("old", "new", "sentence"), USE_FAULTS)
def test_what_is_wrong_in_use_is_said_in_a_sentence(tmp_path, old, new, sentence):
    choice = written(tmp_path, changed(old, new))

    def use():
        task, read = fitted(choice, tmp_path)
        require_trainable(task.model((13,)), wine_samples(task, read), "Wines")

    with pytest.raises(InputError) as told:
        use()
    assert str(told.value).startswith(sentence)


def test_a_gradient_that_lacks_a_part_is_found(tmp_path):
    wrong = changed("chances.sum(axis=0, keepdims=True)]", "0 * chances.sum(axis=0, keepdims=True)]")
    task, read = fitted(written(tmp_path, wrong.replace("x @ weights[:-1]", "0.1 * x @ weights[:-1]")), tmp_path)
    with pytest.raises(InputError, match="is not that of the loss"):
        require_trainable(task.model((13,)), wine_samples(task, read), "Wines")


def test_fields_that_are_no_json_values_are_named(tmp_path):
    text = changed("    def size", "    weights: object = None\n\n    def size")
    task = written(tmp_path, text).load()
    assert task.document() == {"classes": [], "several_labels": False, "penalty": 1e-3, "weights": None}
    with pytest.raises(InputError, match="Wines's field weights is no JSON value"):
        replace(task, weights=np.ones(2)).document()
    with pytest.raises(InputError, match="Wines has no field 'depth'; its fields are classes, penalty, several_labels"):
        task_choice("wines.py:Wines", {"depth": 3}, tmp_path).load()


def test_a_class_that_is_not_declared_as_a_dataclass_has_its_fields(tmp_path):
    written(tmp_path, NUMPY_TASK.replace("@dataclass(frozen=True)\n", ""))
    assert task_choice("wines.py:Wines", {"penalty": 0.5}, tmp_path).load().penalty == 0.5


OTHER_MODELS = """
from truthfl.simulate import ReadSamples, Task, from_sklearn
import numpy as np

class Plain(Task):
    def read(self, path):
        return ReadSamples(np.zeros((4, 3)), ("a", "b", "a", "b"))

class Random(Plain):
    def model(self, shape):
        from truthfl.simulate import ConvolutionalNetwork
        network = ConvolutionalNetwork(8, 8, 1, 2, 2)
        class Unsteady:
            size = network.size
            def __getattr__(self, name):
                return getattr(network, name)
            def init(self, seed):
                return np.random.default_rng().normal(size=network.size).astype(np.float32)
        for name in ("scores", "loss", "accuracy", "predict", "weighted_gradient"):
            setattr(Unsteady, name, getattr(network, name))
        return Unsteady()

class Estimator(Plain):
    def model(self, shape):
        from sklearn.linear_model import SGDClassifier
        return from_sklearn(SGDClassifier(loss="log_loss"), shape, 2)

class Wrong(Plain):
    def model(self, shape):
        from sklearn.linear_model import LogisticRegression
        return LogisticRegression()
"""


def test_a_model_of_a_task_is_checked_and_a_task_without_one_leaves_it_to_the_job(tmp_path):
    (tmp_path / "tasks.py").write_text(OTHER_MODELS)
    plain, random, estimator, wrong = (
        task_choice(f"tasks.py:{name}", {}, tmp_path).load() for name in ("Plain", "Random", "Estimator", "Wrong")
    )
    assert not plain.has_own_model
    assert plain.model((3,)) is None
    assert estimator.has_own_model
    assert estimator.model((3,)) == SoftmaxRegression(3, 2, 1e-4)
    with pytest.raises(
        InputError, match=r"Random's model starts differently each time; from_torch needs seeded=True\."
    ):
        random.model((3,))
    with pytest.raises(InputError, match=r"Wrong\.model gave LogisticRegression, which lacks init, scores"):
        wrong.model((3,))


def test_the_digest_is_that_of_the_source_that_was_executed(tmp_path):
    def in_folder(name, text):
        (tmp_path / name).mkdir()
        return written(tmp_path / name, text)

    first, second = in_folder("a", NUMPY_TASK), in_folder("b", NUMPY_TASK.replace("\n", "\r\n"))
    third = in_folder("c", NUMPY_TASK + "\n# a word")
    assert first.source() == second.source() != third.source()
    assert first.portable() == second.portable() == {"use": "wines.py:Wines", "settings": {}, "source": first.source()}
    (tmp_path / "a" / "wines.py").write_text("something else")
    assert first.source() == second.source()
    stale = json.loads(json.dumps(third.document())) | {"source": first.source()}
    with pytest.raises(InputError, match="the file of Wines was changed in the meantime"):
        TaskChoice.of_document(stale)


def test_an_offer_is_followed_only_with_the_same_source(tmp_path):
    (tmp_path / "other").mkdir()
    choice = written(tmp_path, NUMPY_TASK)
    other = written(tmp_path / "other", NUMPY_TASK + "\n# changed")
    task, _ = fitted(choice, tmp_path)
    terms = task_terms(choice, task)
    assert terms["name"] == "Wines"
    assert terms["document"]["classes"] == ["kind 0", "kind 1", "kind 2"]

    class Terms:
        pass

    offered = Terms()
    offered.task, offered.image_shape, offered.classes = terms, [13], task.classes
    offered.model = {"kind": "own", "penalty": 0.0}
    assert model_of(offered, choice).size == 42
    with pytest.raises(InputError, match=r"the offer's task is Wines .*: get the operator's file and join again"):
        model_of(offered, other)
    with pytest.raises(InputError, match="The server never sends code"):
        model_of(offered)


def test_custom_local_training_is_used_everywhere_and_may_be_gradient_steps(tmp_path):
    (tmp_path / "own").mkdir()
    plain, own = written(tmp_path, NUMPY_TASK), written(tmp_path / "own", OWN_STEPS)
    task, read = fitted(plain, tmp_path)
    data, choice = wine_samples(task, read), ModelChoice("own", penalty=0.0)
    gradient_steps, own_steps = (choice.for_samples(data, fitted(one, tmp_path)[0]) for one in (plain, own))
    assert isinstance(own_steps, OwnSteps)
    partition, training = iid_partition(120, [40, 30, 50], seed=1), Training(4, 2, 0.1)
    federations = [Federated(one, data, partition, training) for one in (gradient_steps, own_steps)]
    strategies = Strategies(1.0, [5, 7, 6], [1.0, 0.5, 1.0])
    wanted, found = (train(one, strategies, [3], evaluate_on={"test": data}).params[0] for one in federations)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    np.testing.assert_allclose(train_plainly(federations[1], strategies, 3), found, atol=1e-6)
    recipe = Recipe(6, 16, 0.5, 0.03, 0)
    alone = [train_alone(one, data.features[:30], data.labels[:30], recipe, 4) for one in (gradient_steps, own_steps)]
    np.testing.assert_allclose(alone[1], alone[0], atol=1e-6)
    for one, wanted in zip((gradient_steps, own_steps), alone, strict=True):
        samples = [(data.features[:30], data.labels[:30])]
        np.testing.assert_array_equal(train_all_alone(one, samples, recipe, 4, classes=data.classes)[0], wanted)


STEP_FAULTS = [
    ("return local\n", "return local[1:]\n", "Wines's local_steps gave 41 values of type float32; it must give the "),
    (
        "return local\n",
        "return None\n",
        "Wines's local_steps gave 1 values of type object; it must give the ",
    ),
    ("local = np.array(params)", "local = params", "Wines.local_steps failed (ValueError: output array is read-only)."),
]


@pytest.mark.parametrize(("old", "new", "sentence"), STEP_FAULTS)
def test_wrong_steps_are_said_in_a_sentence(tmp_path, old, new, sentence):
    assert old in OWN_STEPS
    task, read = fitted(written(tmp_path, OWN_STEPS.replace(old, new)), tmp_path)
    data = wine_samples(task, read)
    model = ModelChoice("own").for_samples(data, task)
    with pytest.raises(InputError) as told:
        train_alone(model, data.features, data.labels, Recipe(1, 8, 0.5, 1e-3, 0), 4)
    assert str(told.value).startswith(sentence)


def cell(choice, source):
    job = read_job(source.parent / "job.toml")
    return Cell(FederationSpec(job.data, job.trained_model, (20, 20, 20), task=choice), 3, 0.5, batch_size=8)


def test_worker_processes_train_it_from_plain_values_and_a_changed_file_is_other_work(tmp_path):
    own_job_file(tmp_path)
    (tmp_path / "changed").mkdir()
    first = task_choice("wines.py:Wines", {}, tmp_path)
    items = cell(first, tmp_path / "wines.csv").tasks([1, 2])
    other = written(tmp_path / "changed", NUMPY_TASK + "\n# changed")
    assert items[0].address != cell(other, tmp_path / "wines.csv").tasks([1, 2])[0].address
    json.dumps(items[0].settings)
    with WorkerPool(2) as pool:
        there = do_all(items, Store(tmp_path / "store"), workers=pool)
    np.testing.assert_array_equal(there[0]["test_loss"], items[0].do()["test_loss"])


def test_a_job_with_a_custom_task_is_planned_run_and_named_by_its_source(tmp_path):
    job = read_job(own_job_file(tmp_path))
    assert job.model.kind == "own"
    assert job.document()["task"]["use"] == "wines.py:Wines"
    assert job.document()["task"]["source"] == job.task.source()
    design = PilotDesign(seeds=2, honest_seeds=8, batch_sizes=(4, 8, 16))
    run_job(job, tmp_path / "out", seed=3, design=design)
    with open_ledger(tmp_path / "out" / "ledger.db") as book:
        entries = book.entries()
    assert sum('"name":"Wines"' in entry.payload for entry in entries) > 0
    assert not [entry.kind for entry in entries if f"{tmp_path}/wines.py" in entry.payload]
    assert [entry.kind for entry in entries].count("receipt") == 3


def test_lies_about_it_are_searched(tmp_path):
    path = own_job_file(tmp_path)
    path.write_text(path.read_text().replace("rounds = 10", "rounds = 3"))
    verified = verify_job(read_job(path), tmp_path / "verified", quick=True, runs=200, workers=1)
    assert [verdict.rule for verdict in verified.verdicts][:2] == ["lceme calibrated", "flat"]
    assert "strongly convex" in verified.absent["lceme as printed"]


def test_a_task_without_a_model_is_not_silently_learned_by_another_one():
    sentence = told(ModelChoice("own").for_shape, (8, 8, 1), 10, PICTURES.load())
    assert sentence == "the model's kind is 'own', and Pictures brings no model."
