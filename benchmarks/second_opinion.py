"""How many wrong labels are among those that a participant's model doubts: python -m benchmarks.second_opinion

Takes sets of MNIST one after the other, makes one label in twenty wrong, and counts the wrong labels that the review
page would list: by the quick models, and by a solo model trained as in an audition.
"""

import argparse

import numpy as np

from truthfl.learning.data.datasets import bundled_mnist
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.people.second_opinion import Opinion, class_probabilities, cross_probabilities, doubts
from truthfl.learning.solo import Recipe, train_alone

SETS, SIZES = 6, (160, 400)
CLASSES = tuple("0123456789")
RECIPE = Recipe(steps=100, batch_size=16, step_size=0.5, penalty=0.01, shifts=4)


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    print("labels in a set   sets   wrong   listed wrong: quick models   trained alone   at random")
    for size in SIZES:
        found = np.array([found_in(start, size) for start in range(0, SETS * size, size)]).sum(axis=0)
        wrong, quick, alone = found.tolist()
        print(f"{size:>15} {SETS:>6} {wrong:>7} {quick:>28} {alone:>15} {wrong / 10:>11.0f}")


def found_in(start, size):
    """(wrong labels, those that the quick models list, those that the model trained alone lists) of one set."""
    mnist = bundled_mnist()
    images = mnist.images[start : start + size]
    labels = mnist.labels[start : start + size].astype(np.int64)
    wrong = np.arange(7, size, 20)
    labels[wrong] = (labels[wrong] + 3) % 10
    model = SoftmaxRegression(images[0].size, len(CLASSES), RECIPE.penalty)
    alone = class_probabilities(model, train_alone(model, images, labels, RECIPE, 0), images)
    quick = cross_probabilities(images.repeat(3, axis=3), labels, CLASSES)
    return len(wrong), *(listed(one, labels, wrong) for one in (quick, alone))


def listed(probabilities, labels, wrong):
    """How many of the wrong labels are listed."""
    if probabilities is None:
        return 0
    opinion = Opinion(range(len(labels)), probabilities, handed_in=False)
    return len({doubt.position for doubt in doubts(opinion, labels.tolist())} & set(wrong.tolist()))


if __name__ == "__main__":
    main()
