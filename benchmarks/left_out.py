"""What sums with a participant's report, minus sums without it, reveal of that report and of its average.

    python -m benchmarks.left_out [--repeats 20]

Five people with 60 small digits each train softmax regression, with secret batches of 30, in rounds from one model.
"4 + 1" is what participants' nodes open from one model; for more sums, an operator needs nearly equal models, which
nodes do not refuse. "report" is the correlation with one of the reports, "mean" the correlation with the mean of very
many.
"""

from __future__ import annotations

import argparse

import numpy as np

from truthfl.learning.data.datasets import small_digits
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.training.local_training import local_model

PEOPLE, SAMPLES, BATCH, STEP, MANY = 5, 60, 30, 0.5, 400
SUMS = ((1, 1), (4, 1), (10, 10), (50, 50))


def changes(model, data, start, person, rounds, secret):
    rows = np.arange(person * SAMPLES, (person + 1) * SAMPLES)
    work = {"client": person, "batch_size": BATCH, "local_steps": 1, "step_size": STEP, "seed": 0}
    keys = [b"%016d%016d" % (secret, round_) for round_ in range(rounds)]
    return np.array(
        [
            local_model(model, start, data.images[rows], data.labels[rows], round_=0, private_key=key, **work) - start
            for key in keys
        ]
    )


def likeness(one, other):
    return float(np.corrcoef(one, other)[0, 1])


def measure(with_person, without, repeats):
    """The mean correlations of the difference with the first report, and with the mean of all reports."""
    data = small_digits()
    model = SoftmaxRegression(data.images[0].size, 10, 1e-3)
    start, found = model.init(0), []
    own_mean = changes(model, data, start, 0, MANY, 0).mean(axis=0)
    for repeat in range(1, repeats + 1):
        rounds = with_person + without
        own = [changes(model, data, start, person, rounds, repeat * PEOPLE + person) for person in range(PEOPLE)]
        others = np.sum(own[1:], axis=0)
        difference = (own[0] + others)[:with_person].mean(axis=0) - others[with_person:].mean(axis=0)
        found.append((likeness(difference, own[0][0]), likeness(difference, own_mean)))
    return np.mean(found, axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    print(f"{'sums':<10}{'report':>8}{'mean':>8}")
    for with_person, without in SUMS:
        report, mean = measure(with_person, without, options.repeats)
        print(f"{f'{with_person} + {without}':<10}{report:>8.2f}{mean:>8.2f}")


if __name__ == "__main__":
    main()
