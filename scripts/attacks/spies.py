"""What a curious operator sees: masked reports, their sum, a solo model, and a report after a false dropout."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from benchmarks.attacks.inversions import LastLayer, from_first_report, membership
from numpy.typing import NDArray

from attacks.federation import Federation
from attacks.outcomes import Outcome, not_defended, outcome
from truthfl.federation.protocol.job_task import model_of
from truthfl.learning.training.draws import Purpose, below, bits, key
from truthfl.ledger.terms import Offer

ATTACKS = {
    "spy-on-masked-report": "the operator inverts what Ada sent in the first round",
    "spy-on-sum": "the operator inverts the sum of the first round",
    "spy-by-false-dropout": "the operator says that Ben dropped out, and takes off the masks that the others tell",
    "spy-on-solo-model": "the operator asks Ada's solo model which pictures it was trained on",
}
STOLEN_ROUND, CLASSES = 3, 10
Array = NDArray[np.float64]


def on_masked(made: Federation, names: set[str]) -> Iterator[Outcome]:
    """The attacks on data that the operator of a masked federation has seen."""
    offers = {offer.client.name: offer for offer in made.view().agreement.offers}
    for attack, judge in JUDGES.items():
        if attack in names:
            yield judge(made, attack, offers)


def masked_report(made: Federation, attack: str, offers: dict[str, Offer]) -> Outcome:
    """Ada's masked report reveals nothing about Ada's change; inverting the change itself finds labels."""
    offer = offers["Ada"]
    seen, true = _seen(made, "masked-Ada"), _seen(made, "true-Ada-0")
    correlation = abs(float(np.corrcoef(seen, true)[0, 1]))
    chance = 4.0 / np.sqrt(len(true))
    scaled = seen * (np.linalg.norm(true) / np.linalg.norm(seen))
    found, of_true = _label_counts(made, offer, scaled), _label_counts(made, offer, true)
    held = correlation < chance
    return outcome(
        attack,
        held,
        f"correlation {correlation:.3f} with Ada's change, as by chance (below {chance:.2f}); {found} of 10 label "
        f"counts right, from the report without masks {of_true}",
    )


def summed(made: Federation, attack: str, offers: dict[str, Offer]) -> Outcome:
    """The sum is correctly that of the weighted changes; it shows only all of them together."""
    total = _seen(made, "sum")
    parts = [offer.client.weight * _seen(made, f"true-{name}-0") for name, offer in offers.items()]
    error = float(np.abs(total - np.sum(parts, axis=0)).max())
    like = float(np.corrcoef(total, parts[0])[0, 1])
    if error > 1e-6:
        return outcome(attack, False, f"the sum differs by {error:.2g} from that of the changes")
    return not_defended(attack, f"the sum is seen, to {error:.1g}; its correlation with Ada's own change is {like:.2f}")


def false_dropout(made: Federation, attack: str, _: dict[str, Offer]) -> Outcome:
    """The masks that Ben shares are revealed, but Ben's own stays; Ben's record shows that Ben was left out."""
    stolen, true = _seen(made, "stolen"), _seen(made, f"true-Ben-{STOLEN_ROUND}")
    like = abs(float(np.corrcoef(stolen, true)[0, 1]))
    chance = 4.0 / np.sqrt(len(true))
    found = "your computer sent 1 report" in made.log("Ben")
    words = f"correlation {like:.3f} with Ben's change, as by chance (below {chance:.2f})"
    return outcome(
        attack, found and like < chance, f"{words}; {'Ben is told afterwards' if found else 'Ben is not told'}"
    )


def solo_model(made: Federation, attack: str, offers: dict[str, Offer]) -> Outcome:
    """Ada's solo model is not masked: losses distinguish Ada's pictures from others'."""
    offer, name = offers["Ada"], made.view().name
    models = np.load(made.served / "models" / f"{name}-solo.npy")
    with np.load(made.data("Ada")) as own, np.load(made.data("Ben")) as other:
        held = own["images"][: offer.client.samples], own["labels"][: offer.client.samples]
        others = other["images"], other["labels"]
    area = membership(model_of(offer.job), models[offer.client.index], held, others)
    return not_defended(attack, f"area under the ROC curve {area:.2f}, chance is 0.5; [privacy] noise lowers it")


def _label_counts(made: Federation, offer: Offer, change: Array) -> int:
    """The number of classes whose count in the first batch is recovered exactly."""
    model, batch = model_of(offer.job), offer.client.batch_size
    counts, _ = from_first_report(LastLayer(model, None), change, offer.job.step_size, batch, np.full(CLASSES, 0.1))
    with np.load(made.data(offer.client.name)) as own:
        labels = own["labels"][: offer.client.samples]
    drawn = below(bits(key(offer.job.seed, Purpose.BATCH, offer.client.index, 0, 0), batch), len(labels))
    return int((counts == np.bincount(labels[drawn], minlength=CLASSES)).sum())


def _seen(made: Federation, name: str) -> Array:
    """An array that operator or participant kept; masked arrays, which are modulo 2**32, become signed."""
    array = np.load(made.folder / "seen" / f"{name}.npy")
    return (array.view(np.int32) if array.dtype == np.uint32 else array).astype(float)


JUDGES = {
    "spy-on-masked-report": masked_report,
    "spy-on-sum": summed,
    "spy-by-false-dropout": false_dropout,
    "spy-on-solo-model": solo_model,
}
