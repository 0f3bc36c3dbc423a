"""Participants who label nothing by hand because they have a model from an earlier job or from elsewhere.

Each federation has a first job of honest people, who all know its joint model, and a second job on other samples.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attacks.federation import SEED, Federation, ledger_check, truthfl
from attacks.jobs import mnist_job_text
from attacks.outcomes import Outcome, Stage, not_defended, outcome
from attacks.people import Person
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.job_view import JobView, job_view

ROUNDS, SECONDS_TO_DECIDE = 15, 60
SERVER = f"enrol_seconds = 600\nanswer_seconds = 60\nlabel_seconds = 120\naudition_seconds = {SECONDS_TO_DECIDE}"
NAMES = ("Ada", "Ben", "Cleo", "Dora")
PILOT, TEST = 1100, 500
FIRST, SECOND = "first.npz", "second.npz"
ATTACKS = {
    "borrowed-model": "Cleo, one of three, labels nothing and sends the joint model of the job before",
    "borrowed-model-disguised": "Dora, one of four, sends it scaled and with noise",
    "borrowed-model-labels": "Cleo labels their pictures by the joint model of the job before, and nothing by hand",
    "own-solo-again": "Cleo labels nothing and sends their paid solo model of the job before",
    "own-solo-disguised": "the same, with a little noise",
    "another-solo-again": "Cleo labels nothing and sends Ada's solo model of the job before, which the server leaked",
    "another-solo-disguised": "the same, with much noise",
    "published-test-again": "the operator tests another job on the test set that was published with the first",
    "too-good-model": "Cleo sends a model from elsewhere that is better than honest ones can be; the operator refuses",
    "too-good-unattended": "the same, and nobody is there to decide",
}

SOLO_AGAIN = {  # by attack: whose model is sent, and with how much noise, as a share of its parameters
    "own-solo-again": ("Cleo", 0.0),
    "own-solo-disguised": ("Cleo", 0.05),
    "another-solo-again": ("Ada", 0.0),
    "another-solo-disguised": ("Ada", 0.5),
}


def run(folder: Path, names: set[str]) -> Iterator[Outcome]:
    """Run the federations of these attacks."""
    if {"borrowed-model", "published-test-again"} & names:
        made = first_job(folder / "three", NAMES[:3])
        if "published-test-again" in names:
            yield test_set_again(made, "published-test-again")
        if "borrowed-model" in names:
            second_job(made, "borrowed")
            yield unpaid_as_known(made, "borrowed-model")
    if "borrowed-model-labels" in names:
        yield labels_by_model(folder / "labels", "borrowed-model-labels")
    for attack, (whose, noise) in SOLO_AGAIN.items():
        if attack in names:
            yield solo_again(folder / attack, attack, whose, noise)
    for attack in sorted({"too-good-model", "too-good-unattended"} & names):
        yield too_good(folder / attack, attack)
    if "borrowed-model-disguised" in names:
        made = first_job(folder / "four", NAMES)
        second_job(made, "disguised")
        yield unpaid_as_known(made, "borrowed-model-disguised")


def solo_again(folder: Path, attack: str, whose: str, noise: float) -> Outcome:
    """A solo model of the first job in the second. One's own with noise resembles a model of the same labels."""
    made = first_job(folder, NAMES[:3])
    model = np.load(made.served / "models" / f"{views(made)[0].name}-solo.npy")[NAMES.index(whose)]
    noises = np.random.default_rng(1).normal(size=model.shape)
    borrowed = model + noise * np.sqrt(np.square(model).mean()) * noises
    np.save(made.folder / "borrowed.npy", borrowed.astype(np.float32))
    second_job(made, "borrowed")
    if attack != "own-solo-disguised":
        return unpaid_as_known(made, attack)
    view = views(made)[-1]
    return not_defended(attack, f"held {list(view.holds)}; Cleo is paid {view.settlements['Cleo'].document['pay']}")


def labels_by_model(folder: Path, attack: str) -> Outcome:
    """The first job's joint model makes the second job's labels. The solo model from them resembles no earlier one.

    Its pay depends on how good those labels are, and that is not defended. If a job starts from such a model, as a job
    on a task known to the ledger should, the labels that it can give teach nothing and earn nothing.
    """
    made, borrower = first_job(folder, NAMES[:3]), NAMES[2]
    right: list[float] = []
    second_job(made, "", lambda made, name: right.append(label_by_model(made, name)))
    view = views(made)[-1]
    assert view.agreement is not None
    offer = next(one for one in view.agreement.offers if one.client.name == borrower)
    paid = {name: entry.document["label_pay"] for name, entry in view.settlements.items()}
    words = (
        f"{right[0]:.0%} of the model's labels are right; held {list(view.holds)}; solo losses {solo(view)}; "
        f"paid for labels {paid}, where {borrower}'s cost {offer.client.labeling_cost:.0f} by hand"
    )
    return not_defended(attack, words)


def label_by_model(made: Federation, name: str) -> float:
    """Make a participant's labels with the borrowed model; return the share of correct labels."""
    from truthfl.learning.models.softmax import SoftmaxRegression

    with np.load(made.data(name)) as file:
        images, right = file["images"], file["labels"]
    features = images.reshape(*images.shape[:3], -1)
    labels = SoftmaxRegression(28 * 28, 10, 1e-3).predict(np.load(made.folder / "borrowed.npy"), features)
    np.savez(made.data(name), images=images, labels=labels.astype(right.dtype))
    return float((labels == right).mean())


def first_job(folder: Path, names: tuple[str, ...]) -> Federation:
    """A finished job of honest people, and its joint model, which the borrower has."""
    folder.mkdir(parents=True, exist_ok=True)
    halves(folder)
    made = Federation(folder, text_of(FIRST, names), tuple(map(Person, names)))
    with made.running():
        made.wait_for_end()
    shutil.copy(made.served / "models" / f"{views(made)[0].name}.npy", folder / "borrowed.npy")
    return made


def halves(folder: Path) -> None:
    """Two files of digits without a common picture."""
    from truthfl.learning.data.datasets import bundled_mnist

    digits = bundled_mnist()
    for name, chosen in ((FIRST, slice(0, None, 2)), (SECOND, slice(1, None, 2))):
        np.savez(folder / name, images=digits.images[chosen], labels=digits.labels[chosen])


def text_of(source: str, names: tuple[str, ...]) -> str:
    return mnist_job_text(names, rounds=ROUNDS, source=source, pilot_samples=PILOT, test_samples=TEST, server=SERVER)


def second_job(made: Federation, patch: str, label: Callable[[Federation, str], object] | None = None) -> None:
    """Another job in the same folder and ledger, on the other half; the last participant borrows.

    label  makes the borrower's labels; by default they label nothing
    """
    names = tuple(person.name for person in made.people)
    (made.folder / "job.toml").write_text(text_of(SECOND, names), encoding="utf-8")
    shutil.rmtree(made.folder / "shares")
    truthfl("share", "job.toml", "--out", "shares", "--seed", SEED, folder=made.folder)
    for name in names:
        made.make_data(name)
    (label or label_nothing)(made, names[-1])
    made.more_words = ("--new", "--seed", SEED + 1)
    made.people = (*made.people[:-1], replace(made.people[-1], patch=patch))
    with made.running():
        made.wait_for_end()


def label_nothing(made: Federation, name: str) -> None:
    """Label all pictures 0."""
    with np.load(made.data(name)) as file:
        arrays = {"images": file["images"], "labels": np.zeros_like(file["labels"])}
    np.savez(made.data(name), **arrays)


def views(made: Federation) -> list[JobView]:
    """The ledger's jobs, in order."""
    with open_for_reading(made.served / "ledger.db") as ledger:
        return [job_view(name, ledger.entries(name)) for name in ledger.jobs()]


def unpaid_as_known(made: Federation, attack: str) -> Outcome:
    """The borrowed model is recognized and not paid; only honest people determine the others' levels."""
    (code, said), view = ledger_check(made), views(made)[-1]
    borrower = made.people[-1].name
    held = view.holds.get(borrower)
    known = None if held is None else held.document["known"]
    pay = {name: entry.document["pay"] for name, entry in view.settlements.items()}
    words = f"likeness {known}; paid {pay}; solo losses {solo(view)}; {borrower} is told: {told(made, borrower)}"
    holds = code == 0 and known is not None and pay.get(borrower) == 0 and view.test is not None
    return outcome(
        attack, holds and all(pay[name] > 0 for name in pay if name != borrower), words, otherwise=f"{words}; {said}"
    )


def solo(view: JobView) -> dict[str, float | None]:
    tested = {name: entry.document["solo_loss"] for name, entry in view.auditions.items()}
    tested |= {name: entry.document["solo_loss"] for name, entry in view.holds.items()}
    return {name: None if loss is None else round(loss, 3) for name, loss in tested.items()}


def told(made: Federation, name: str) -> str:
    return next(
        (line for line in made.log(name).splitlines() if "did not pass" in line or "looks at" in line), "nothing"
    )


def test_set_again(made: Federation, attack: str) -> Outcome:
    """The same job again, with the published test set from the folder."""
    done = truthfl(*made.serve_words, "--new", folder=made.folder)
    jobs = len(views(made))
    return outcome(attack, done.returncode == 2 and jobs == 1 and "were published" in done.stderr, done.stderr)


def model_from_elsewhere() -> NDArray[np.float32]:
    """A model from somebody who has thousands of labels."""
    from truthfl.learning.data.datasets import bundled_mnist
    from truthfl.learning.models.softmax import SoftmaxRegression
    from truthfl.learning.solo import Recipe, train_alone

    digits = bundled_mnist()
    return train_alone(
        SoftmaxRegression(28 * 28, 10, 1e-3), digits.features, digits.labels, Recipe(600, 64, 0.5, 1e-3, 0), 1
    )


def too_good(folder: Path, attack: str) -> Outcome:
    """A job without an earlier one in its ledger: the model is held; the operator refuses it, or is absent."""
    names = NAMES[:3]
    folder.mkdir(parents=True, exist_ok=True)
    halves(folder)
    np.save(folder / "borrowed.npy", model_from_elsewhere())
    people = (*map(Person, names[:-1]), Person(names[-1], attack, "borrowed"))
    made = Federation(folder, text_of(SECOND, names), people)
    label_nothing(made, names[-1])
    decision = "nobody decided"
    with made.running():
        made.wait_until(lambda: "better than honest ones" in made.log("serve"))
        if attack == "too-good-model":
            why = ("--why", "it is our own model")
            done = truthfl("refuse", names[-1], "--out", "served", *why, folder=folder)
            decision = done.stdout + done.stderr
        made.wait_for_end()
    (code, said), view = ledger_check(made), views(made)[-1]
    settled = {name: entry.document for name, entry in view.settlements.items()}
    pay = {name: one["pay"] for name, one in settled.items()}
    assert view.agreement is not None
    cap = next(
        float(one.contract.terms()["label_cap"][0]) for one in view.agreement.offers if one.client.name == names[-1]
    )
    done = truthfl("ledger", "export", "served/ledger.db", folder=folder)
    unseen = names[-1] not in done.stdout and f"Nobody decided on the solo model of {names[-1]}" in done.stderr
    if attack == "too-good-model":
        right = pay[names[-1]] == 0 and not unseen
    else:
        right = 0 < settled[names[-1]]["label_pay"] <= cap and unseen
    decision += f"; export: {done.stderr.strip() or 'all'}"
    words = f"{decision}; settled {pay}; solo losses {solo(view)}; {names[-1]} is told: {told(made, names[-1])}"
    return outcome(attack, code == 0 and names[-1] in view.holds and right, words, otherwise=f"{words}; {said}")


STAGE = Stage("borrowed models", ATTACKS, run)
