"""The test of solo models: what they can tell apart, whatever the scale of their scores and their class frequencies.

One factor of all scores and one bias per class are fitted on one half of the test samples, and the loss is taken on the
other half; and the other way round. So over-confidence, a scaled report and a client's own class frequencies do not
count. Of the classes' mean losses the geometric mean is taken, so that no class of which a client happens to have few
rules it; its risk is about that of the mean loss (`benchmarks/solo_statistics.py`). docs/mechanism.md, section 8.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.blas_threads import one_blas_thread
from truthfl.learning.draws import Purpose, bits, key
from truthfl.learning.elsewhere import usual_threads
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.model import Features, Model, Params
from truthfl.learning.softmax import SoftmaxRegression

Floats = NDArray[np.float64]

MOST_TEST_SAMPLES = 2000  # of the test set, drawn by the secret
RIDGE = 1e-3  # on the biases, so that a class which is absent in one half has a finite one
NEWTON_STEPS, HALVINGS = 30, 8
LEAST_LOSS = 1e-6  # of a class
BLOCK = 16  # models fitted at a time


def solo_losses(
    model: Model, params: NDArray[np.float32], test: LabeledSamples, seed: int, *, threads: int | None = None
) -> Floats:
    """The corrected test losses of solo models, (models,); the seed chooses the test samples and divides them in two.

    A model whose scores are not finite, or all the same, has the loss of the class frequencies.
    """
    chosen = np.argsort(bits(key(seed, Purpose.AUDITION), len(test)), kind="stable")[:MOST_TEST_SAMPLES]
    scores, labels = _scores_on(model, test.features[chosen]), test.labels[chosen]

    def tested(first: int) -> Floats:
        block = params[first : first + BLOCK]
        return corrected_losses(np.stack([scores(one) for one in block]), labels)

    workers = usual_threads() if threads is None else threads
    with np.errstate(over="ignore", invalid="ignore"), one_blas_thread():
        if workers == 1 or len(params) <= BLOCK:
            losses = [tested(first) for first in range(0, len(params), BLOCK)]
        else:
            with ThreadPoolExecutor(workers) as pool:
                losses = list(pool.map(tested, range(0, len(params), BLOCK)))
    return np.concatenate(losses) if losses else np.empty(0)


def _scores_on(model: Model, features: Features) -> Callable[[Params], NDArray[np.float32]]:
    """The scores of these images by parameters; softmax regression converts the pixels once for all."""
    if isinstance(model, SoftmaxRegression):
        return partial(model.scores_of_inputs, x=model.inputs(features))
    return partial(model.scores, features=features)


def corrected_losses(scores: NDArray[np.float32], labels: NDArray[np.int64]) -> Floats:
    """The losses of models with these scores (models, samples, classes); the halves are even and odd samples."""
    wide = _standardized(scores.astype(np.float64))
    of_sample = np.empty(wide.shape[:2])
    for fitted_on in (0, 1):
        factor, biases = _fit(wide[:, fitted_on::2], labels[fitted_on::2])
        tested, own = wide[:, 1 - fitted_on :: 2], labels[1 - fitted_on :: 2]
        of_sample[:, 1 - fitted_on :: 2] = -_log_probabilities(tested, factor, biases)[:, np.arange(len(own)), own]
    present = np.unique(labels)
    of_class = np.stack([of_sample[:, labels == one].mean(axis=1) for one in present], axis=1)
    return np.asarray(np.exp(np.log(np.maximum(of_class, LEAST_LOSS)).mean(axis=1)))


def _standardized(scores: Floats) -> Floats:
    """Scores with mean 0 over the classes and variance 1; 0 if they are not finite or all the same."""
    finite = np.isfinite(scores).all(axis=(1, 2), keepdims=True)
    scores = np.where(finite, scores, 0.0)
    largest = np.abs(scores).max(axis=(1, 2), keepdims=True)
    scores = scores / np.where(largest > 0, largest, 1.0)
    scores = scores - scores.mean(axis=2, keepdims=True)
    deviation = scores.std(axis=(1, 2), keepdims=True)
    return scores / np.where(deviation > 1e-12, deviation, 1.0)


def _log_probabilities(scores: Floats, factor: Floats, biases: Floats) -> Floats:
    z = factor[:, None, None] * scores + biases[:, None, :]
    z -= reduce(np.maximum, np.moveaxis(z, 2, 0))[:, :, None]  # class by class: faster than a maximum of few numbers
    z -= np.log(np.exp(z).sum(axis=2, keepdims=True))
    return z


def _fit(scores: Floats, labels: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The factor and the biases with the least cross-entropy, by Newton's method; the problem is convex."""
    models, count, classes = scores.shape
    one_hot, squared = np.eye(classes)[labels], np.square(scores)
    theta = np.zeros((models, classes + 1))
    theta[:, 0] = 1.0

    def evaluated(at: Floats) -> tuple[Floats, Floats]:
        """Log-probabilities and objective."""
        log_p = _log_probabilities(scores, at[:, 0], at[:, 1:])
        entropy = -log_p[:, np.arange(count), labels].mean(axis=1)
        return log_p, entropy + 0.5 * RIDGE * (np.square(at[:, 1:]).sum(axis=1) + 1e-3 * np.square(at[:, 0]))

    log_p, value = evaluated(theta)
    for _ in range(NEWTON_STEPS):
        p = np.exp(log_p)
        residual, mean_score = p - one_hot, (p * scores).sum(axis=2)
        gradient = np.empty_like(theta)
        gradient[:, 0] = (residual * scores).sum(axis=(1, 2)) / count + 1e-3 * RIDGE * theta[:, 0]
        gradient[:, 1:] = residual.mean(axis=1) + RIDGE * theta[:, 1:]
        hessian = np.empty((models, classes + 1, classes + 1))
        hessian[:, 0, 0] = ((p * squared).sum(axis=2) - np.square(mean_score)).mean(axis=1) + 1e-3 * RIDGE
        hessian[:, 0, 1:] = hessian[:, 1:, 0] = (p * (scores - mean_score[:, :, None])).mean(axis=1)
        hessian[:, 1:, 1:] = -(p.transpose(0, 2, 1) @ p) / count
        diagonal = np.arange(1, classes + 1)
        hessian[:, diagonal, diagonal] += p.mean(axis=1) + RIDGE
        step = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
        size = np.ones(models)
        for _ in range(HALVINGS):
            trial = theta - size[:, None] * step
            trial_log_p, trial_value = evaluated(trial)
            worse = trial_value > value + 1e-12
            if not worse.any():
                break
            size = np.where(worse, size / 2.0, size)
        trial_log_p[worse], trial[worse], trial_value[worse] = log_p[worse], theta[worse], value[worse]
        previous, log_p, theta, value = value, trial_log_p, trial, trial_value
        if (previous - value < 1e-9).all():
            break
    return theta[:, 0], theta[:, 1:]
