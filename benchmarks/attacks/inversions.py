"""Attacks by an honest but curious server: what it can recover from the messages it receives.

They use what such a server has: the model it sent, the step size, and its own data (the pilot). Without private
training, and if batches follow from the job's seed, it also knows which of a client's samples are in which batch.

`python -m benchmarks.inversion` measures them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from truthfl.learning.models.cnn import ConvolutionalNetwork
from truthfl.learning.models.model import log_softmax

RIDGE = 1.0  # of the decoder from hidden units to pixels


@dataclass(frozen=True)
class LastLayer:
    """A model's last layer, and pixels from its inputs: the inputs themselves, or by a decoder learned on own data."""

    model: object
    decoder: np.ndarray | None

    @classmethod
    def of(cls, model, own_images, params):
        if not isinstance(model, ConvolutionalNetwork):
            return cls(model, None)
        units = hidden_units(model, params, own_images)
        pixels = own_images.reshape(len(own_images), -1) / 255.0
        return cls(model, np.linalg.solve(units.T @ units + RIDGE * np.eye(units.shape[1]), units.T @ pixels))

    def gradient(self, change, step_size):
        """Gradients (classes, inputs) of weights, and (classes,) of biases, that make this change of the model."""
        gradient = -change / step_size
        if self.decoder is None:
            classes = self.model.classes
            return gradient[:-classes].reshape(classes, -1), gradient[-classes:]
        _, _, dense, biases = self.model.parts(gradient)
        return dense, biases

    def pictures(self, inputs):
        return inputs if self.decoder is None else inputs @ self.decoder


def hidden_units(model, params, images):
    """The inputs of the network's last layer, (samples, units)."""
    placed = model._placed(params)
    return np.concatenate(
        [model._forward(params, placed, images[k : k + 100]).units.T.copy() for k in range(0, len(images), 100)]
    )


def from_first_report(layer, change, step_size, batch, typical):
    """Label counts and a picture of each class, from a report on the first model.

    typical  the model's mean class probabilities on own data; at the start, those of the batch hardly differ
    """
    weights, biases = layer.gradient(change, step_size)
    counts = np.maximum(np.rint(batch * (typical - biases)), 0)
    # Row c is (1/B)·(p_c·Σx − Σ_{label c} x). Where some class is dark, the largest row over p is Σx/B.
    everything = (weights / typical[:, None]).max(axis=0)
    sums = typical[:, None] * everything - weights
    inputs = batch * sums / np.maximum(counts, 1)[:, None]
    return counts, layer.pictures(inputs)


def from_solo_model(layer, start, solo, average=0.0, trust=1.0):
    """The weight and a picture of each class, from a model that a client trained alone.

    average, trust  the average of own pictures of each class, and how much of the model is added to it, as a multiple
                    of its length
    """
    weights, biases = layer.gradient(solo - start, 1.0)
    pictures = layer.pictures(-weights)
    length = np.linalg.norm(average, axis=1, keepdims=True) if np.ndim(average) else 1.0
    size = np.maximum(np.linalg.norm(pictures, axis=1, keepdims=True), 1e-12)
    return -biases, average + trust * length * pictures / size


def from_all_reports(model, models, changes, batches, samples, step_size, rounds=60):
    """A client's pictures and labels from all their reports on softmax regression, by alternating least squares.

    A report is Σ_k drawn_tk (p_tk − y_k) ⊗ (x_k, 1), and `batches` has the draws. Given labels y, least squares give
    the pictures x, and given pictures, the labels. Both give the probabilities p by the models that were sent.
    """
    classes, count = model.classes, len(changes)
    gradients = [-(change / step_size) - model.penalty * common for change, common in zip(changes, models, strict=True)]
    rows = np.stack([_with_biases(model, g) for g in gradients])  # (rounds, classes, pixels + 1)
    sent = np.stack([_with_biases(model, common) for common in models])
    drawn = np.zeros((count, samples))
    for t, batch in enumerate(batches):
        np.add.at(drawn[t], batch, 1.0 / len(batch))
    together = drawn.T @ drawn
    p = np.full((count, samples, classes), 1.0 / classes)
    target = np.einsum("tk,tkc->tc", drawn, p) - rows[:, :, -1]
    soft = _shares(np.linalg.lstsq(drawn, target, rcond=1e-2)[0])
    for k in range(rounds):
        ridge = 1e-2 * 0.8**k + 1e-9
        system = (drawn[:, :, None] * (p - soft[None])).transpose(1, 0, 2).reshape(samples, count * classes)
        gram = system @ system.T
        scale = ridge * np.trace(gram) / samples * np.eye(samples)
        pictures = np.linalg.solve(gram + scale, system @ rows.reshape(count * classes, -1)).clip(0.0, 1.0)
        pictures[:, -1] = 1.0
        p = np.exp(
            log_softmax((pictures @ sent.reshape(count * classes, -1).T).reshape(-1, classes).astype(np.float32))
        )
        p = p.reshape(samples, count, classes).transpose(1, 0, 2).astype(float)
        inner = together * (pictures @ pictures.T)
        missing = np.einsum("tk,tkc,kd->tcd", drawn, p, pictures, optimize=True) - rows
        right = np.einsum("tk,kd,tcd->kc", drawn, pictures, missing, optimize=True)
        scale = ridge * np.trace(inner) / samples * np.eye(samples)
        soft = _shares(np.linalg.solve(inner + scale, right + scale @ soft))
    return soft.argmax(axis=1), pictures[:, :-1]


def _with_biases(model, params):
    """The weights with the biases as their last column, (classes, pixels + 1)."""
    weights, biases = params[: -model.classes].reshape(model.classes, -1), params[-model.classes :]
    return np.concatenate((weights, biases[:, None]), axis=1).astype(float)


def _shares(values):
    """Rows projected to be non-negative and sum to 1."""
    positive = values.clip(1e-3, None)
    return positive / positive.sum(axis=1, keepdims=True)


def membership(model, solo, held, others):
    """How well losses distinguish a client's training samples from others: area under the ROC curve; 0.5 is chance."""

    def losses(images, labels):
        log_p = log_softmax(model.scores(solo, images))
        return -log_p[np.arange(len(labels)), labels]

    inside, outside = losses(*held), losses(*others)
    ranks = np.concatenate((inside, outside)).argsort(kind="stable").argsort(kind="stable")
    below = ranks[: len(inside)].sum() - len(inside) * (len(inside) - 1) / 2
    return float(1.0 - below / (len(inside) * len(outside)))


def likeness(pictures, truth):
    """The correlation of each true picture with its best match, and the match."""

    def standard(rows):
        centered = rows - rows.mean(axis=1, keepdims=True)
        return centered / np.maximum(np.linalg.norm(centered, axis=1, keepdims=True), 1e-12)

    likenesses = standard(truth) @ standard(pictures).T
    return likenesses.max(axis=1)
