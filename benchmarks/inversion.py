"""What a server can recover from one report, from all reports, from sums of masked reports, and from a solo model.

    python -m benchmarks.inversion [--model softmax|cnn] [--noise 0 0.5 1 2] [--clip 1] [--clients 3] [--json]

Ten clients with 162 MNIST digits each train 100 rounds, as in the demo. The attacks of `benchmarks.attacks.inversions`
run on some of them. The columns:

    labels      the share of classes whose number in the batch is recovered exactly; with all reports, the share of
                recovered labels; with the solo model, the correlation with the true numbers
    pictures    the share of the client's pictures that are recovered: with a correlation of 0.9 with the true picture
    likeness    the mean of these correlations
    membership  the area under the ROC curve by which the solo model distinguishes the client's samples from others;
                0.5 is chance

"known" assumes that the batches of masked reports follow from the job's seed. Then the same with clipping and noise,
with the ε at δ = 1e-5 of solo training and rounds together, and the accuracy.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import numpy as np

from benchmarks.attacks.inversions import (
    LastLayer,
    from_all_reports,
    from_first_report,
    from_solo_model,
    likeness,
    membership,
)
from truthfl.contracts.setting import Training
from truthfl.learning.data.federations import Data, ModelChoice, build_federation
from truthfl.learning.models.model import log_softmax
from truthfl.learning.privacy_promise import promised_privacy
from truthfl.learning.solo import Recipe, train_alone
from truthfl.learning.training.draws import Purpose, below, bits, key
from truthfl.learning.training.local_training import local_model

CLIENTS, SAMPLES, ROUNDS, BATCH, SEED = 10, 162, 100, 20, 5
FIRST_BATCH = 62  # of the attack on one report
ALIKE = 0.9
RECIPE = Recipe(steps=60, batch_size=64, step_size=0.5, penalty=1e-3, shifts=0)
STEP_SIZES = (0.15, 0.5, 1.5, 5.0)  # of solo training; the best is used
JOINT_STEP = {"softmax": 0.85, "cnn": 0.2}  # as tuned in jobs; with clipping, the step of solo training is used
TRUSTS = (0.0, 0.1, 0.2, 0.4, 0.8)  # of the attack on solo models; the best for clients made from own data is used
OWN_SAMPLES = 600  # of the server's


class Scene:
    """The clients' data, the server's own, and the reports of all rounds."""

    def __init__(self, kind, clip, noise):
        choice = ModelChoice(kind, clip=clip, noise=noise)
        self.place = build_federation(Data(), choice, (SAMPLES,) * CLIENTS, Training(ROUNDS, 1, 1.0))
        self.model, self.federated = self.place.federated.model, self.place.federated
        self.plain = getattr(self.model, "plain", self.model)
        self.start = self.model.init(SEED)
        own = self.place.pilot.data.images[:OWN_SAMPLES]
        self.layer = LastLayer.of(self.plain, own, self.start)
        data = self.place.pilot.data
        self.average = np.stack([pixels(data.images[data.labels == label]).mean(axis=0) for label in range(10)])
        self.typical = np.exp(log_softmax(self.model.scores(self.start, own))).mean(axis=0)

    def samples(self, client):
        rows = self.federated.partition.rows_of(client)
        return self.federated.data.images[rows], self.federated.data.labels[rows]

    def change(self, client, common, round_, batch, step_size):
        images, labels = self.samples(client)
        work = {"client": client, "round_": round_, "batch_size": batch, "local_steps": 1, "step_size": step_size}
        return local_model(self.model, common, images, labels, seed=SEED, **work) - common

    def job(self, step_size):
        """The common models and each client's changes in all rounds, and the last model."""
        common, models, changes = self.start, [], []
        for round_ in range(ROUNDS):
            models.append(common)
            changes.append([self.change(client, common, round_, BATCH, step_size) for client in range(CLIENTS)])
            common = common + np.mean(changes[-1], axis=0)
        return models, changes, common

    def accuracy(self, params):
        return self.model.accuracy(params, self.place.test.images, self.place.test.labels)


def batch_of(client, round_, batch):
    """The samples in a client's batch, which follow from the job's seed."""
    return below(bits(key(SEED, Purpose.BATCH, client, round_, 0), batch), SAMPLES)


def pixels(images):
    return images.reshape(len(images), -1) / 255.0


def nothing(scene, client):
    """The server's knowledge of a client's pictures without any message: the average of its own pictures of a class."""
    like = likeness(scene.average, pixels(scene.samples(client)[0]))
    return np.nan, (like >= ALIKE).mean(), like.mean()


def one_report(scene, client, others=()):
    """The attack on one report of the first round, or on its sum with others' reports."""
    private = scene.model is not scene.plain
    step, clients = 0.5, (client, *others)
    change = sum(scene.change(one, scene.start, 0, FIRST_BATCH, step) for one in clients)
    change = change + len(clients) * step * scene.plain.penalty * scene.start
    counts, pictures = from_first_report(scene.layer, change, step, FIRST_BATCH, scene.typical * len(clients))
    images, labels = scene.samples(client)
    drawn = np.arange(SAMPLES) if private else np.unique(batch_of(client, 0, FIRST_BATCH))
    true = np.bincount(labels if private else labels[batch_of(client, 0, FIRST_BATCH)], minlength=10)
    found = counts * len(labels) / FIRST_BATCH if private else counts
    like = likeness(pictures, pixels(images[drawn]))
    return (np.rint(found) == true).mean(), (like >= ALIKE).mean(), like.mean()


def all_reports(scene, models, changes, client, others=(), known=True):
    """The attack on all reports of a client, or on their sums with others' reports.

    known  whether batches follow from the job's seed; with masked reports they do not, and the server guesses
    """
    clients = (client, *others)
    sums = [np.sum([of_round[one] for one in clients], axis=0) / len(clients) for of_round in changes]
    batches = [
        np.concatenate(
            [SAMPLES * k + batch_of(one if known else CLIENTS + one, t, BATCH) for k, one in enumerate(clients)]
        )
        for t in range(ROUNDS)
    ]
    step = scene.step_size
    labels, pictures = from_all_reports(scene.plain, models, sums, batches, SAMPLES * len(clients), step, rounds=30)
    images, true = scene.samples(client)
    like = np.array([likeness(pictures[k : k + 1], pixels(images[k : k + 1]))[0] for k in range(SAMPLES)])
    return (labels[:SAMPLES] == true).mean(), (like >= ALIKE).mean(), like.mean()


def best_trust(scene, step_size, shadows=4):
    """How far to trust a solo model: the best value for clients that the server makes from its own data."""
    place, found = scene.place, np.zeros(len(TRUSTS))
    partition = place.draw_clients((SAMPLES,) * shadows, 77)
    for shadow in range(shadows):
        images, labels = (
            part[partition.rows_of(shadow)] for part in (place.pilot.data.images, place.pilot.data.labels)
        )
        trained = train_alone(scene.model, images, labels, replace(RECIPE, step_size=step_size), SEED)
        for k, trust in enumerate(TRUSTS):
            _, pictures = from_solo_model(scene.layer, scene.start, trained, scene.average, trust)
            found[k] += likeness(pictures, pixels(images)).mean()
    return TRUSTS[int(found.argmax())]


def solo(scene, client, step_size, trust=0.0):
    """The attack on a solo model, and how well the model distinguishes the client's samples from others."""
    images, labels = scene.samples(client)
    trained = train_alone(scene.model, images, labels, replace(RECIPE, step_size=step_size), SEED)
    weight, pictures = from_solo_model(scene.layer, scene.start, trained, scene.average, trust)
    true = np.bincount(labels, minlength=10)
    like = likeness(pictures, pixels(images))
    return {
        "labels": float(np.corrcoef(weight, true)[0, 1]),
        "pictures": float((like >= ALIKE).mean()),
        "likeness": float(like.mean()),
        "membership": membership(scene.model, trained, (images, labels), _others(scene, client)),
        "accuracy": scene.accuracy(trained),
    }


def _others(scene, client):
    """Samples from the test set that the client does not hold, with the same class frequencies."""
    _, labels = scene.samples(client)
    test, taken = scene.place.test, []
    for label, count in zip(*np.unique(labels, return_counts=True), strict=True):
        taken.append(np.flatnonzero(test.labels == label)[:count])
    rows = np.concatenate(taken)
    return test.images[rows], test.labels[rows]


def best_step(scene, clients):
    def accuracy(step_size):
        return np.mean([solo(scene, client, step_size)["accuracy"] for client in range(clients)])

    return max(STEP_SIZES, key=accuracy)


def measure(kind, clip, noise, clients):
    """One line of results for each possible view of the server."""
    scene = Scene(kind, clip, noise)
    private = scene.model is not scene.plain
    alone = best_step(scene, min(clients, 3))
    scene.step_size = alone if private else JOINT_STEP[kind]
    models, changes, last = scene.job(scene.step_size)
    promised = promised_privacy(clip, noise, samples=SAMPLES, batch_size=BATCH, steps=ROUNDS, recipe=RECIPE)
    lines = {"joint model": {"accuracy": scene.accuracy(last)}}
    if private:
        lines["joint model"]["epsilon"] = promised.epsilon

    def averaged(attack):
        found = np.array([attack(client) for client in range(clients)])
        return dict(zip(("labels", "pictures", "likeness"), found.mean(axis=0).tolist(), strict=True))

    if not private:
        lines["nothing of theirs"] = averaged(lambda client: nothing(scene, client))
    lines["one report"] = averaged(lambda client: one_report(scene, client))
    for count in (3, CLIENTS):
        others = [[(client + k) % CLIENTS for k in range(1, count)] for client in range(clients)]
        lines[f"sum of {count}"] = averaged(lambda client, others=others: one_report(scene, client, others[client]))
        if kind == "softmax" and not private:
            for known, name in ((False, "all sums of"), (True, "known: all sums of")):
                lines[f"{name} {count}"] = averaged(
                    lambda client, others=others, known=known: all_reports(
                        scene, models, changes, client, others[client], known
                    )
                )
    if kind == "softmax" and not private:
        lines["all reports"] = averaged(lambda client: all_reports(scene, models, changes, client))
    trust = best_trust(scene, alone)
    found = [solo(scene, client, alone, trust) for client in range(clients)]
    lines["solo model"] = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("softmax", "cnn"), default="softmax")
    parser.add_argument("--noise", type=float, nargs="*", default=[0.0, 0.5, 1.0, 2.0])
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--clients", type=int, default=3, help="how many clients are attacked")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    settings = [
        ("as it is", 0.0, 0.0),
        *((f"clip {options.clip:g}, noise {z:g}", options.clip, z) for z in options.noise),
    ]
    results = {name: measure(options.model, clip, noise, options.clients) for name, clip, noise in settings}
    if options.json:
        print(json.dumps(results, indent=2))
        return
    columns = ("labels", "pictures", "likeness", "membership", "accuracy", "epsilon")
    print(f"{options.model:<22}{'seen':<18}" + "".join(f"{column:>14}" for column in columns))
    for name, lines in results.items():
        for seen, values in lines.items():
            shown = "".join(
                f"{values[c]:>14.2f}" if np.isfinite(values.get(c, np.nan)) else f"{'':>14}" for c in columns
            )
            print(f"{name:<22}{seen:<18}{shown}")


if __name__ == "__main__":
    main()
