"""Clipping and noise in training, and what they promise: (ε, δ) against published values."""

from math import inf, log

import numpy as np
import pytest

from truthfl.contracts.audition import pilot as audition_pilot
from truthfl.contracts.audition.pilot import tune_recipe
from truthfl.contracts.setting import Strategies, Training
from truthfl.errors import InputError
from truthfl.learning.data.federations import Data, ModelChoice, server_side
from truthfl.learning.data.partition import Federated, Partition
from truthfl.learning.data.samples import LabeledImages
from truthfl.learning.models.cnn import ConvolutionalNetwork
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.people.behaviours import behaviour
from truthfl.learning.people.profile import Profile
from truthfl.learning.pilot.constants import measure_gradients
from truthfl.learning.pilot.pilot_clients import draw_pilot_clients
from truthfl.learning.pilot.reduced_federation import reduce_federation
from truthfl.learning.privacy import PrivateModel, normals, simulated_key, subkey, uniforms
from truthfl.learning.privacy_promise import ORDERS, NoisySteps, divergences, epsilon, epsilon_of
from truthfl.learning.solo import Recipe, train_all_alone, train_alone
from truthfl.learning.training.plain import train_plainly
from truthfl.learning.training.train import train

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (40, 8, 8, 1)).astype(np.uint8)
CLASSES = ("a", "b", "c", "d")
LABELS = RNG.integers(0, 4, 40)
MODELS = [SoftmaxRegression(64, 4, penalty=0.1), ConvolutionalNetwork(8, 8, 1, 3, 4, penalty=0.1)]


def _params(model):
    return model.init(1) + RNG.normal(0, 0.1, model.size).astype(np.float32)


@pytest.mark.parametrize("plain", MODELS)
def test_each_sample_counts_at_most_so_much(plain):
    params = _params(plain)
    bare = type(plain)(**{**vars(plain), "penalty": 0.0})
    one = np.ones(1, dtype=np.float32)
    each = [bare.weighted_gradient(params, IMAGES[k : k + 1], LABELS[k : k + 1], one) for k in range(40)]
    lengths = np.array([np.linalg.norm(gradient) for gradient in each])
    np.testing.assert_allclose(bare.gradient_lengths(params, IMAGES, LABELS), lengths, rtol=1e-5)
    clip = float(np.median(lengths))
    weight = RNG.uniform(0, 1, 40).astype(np.float32)
    shortened = [
        w * gradient * min(1.0, clip / length) for w, gradient, length in zip(weight, each, lengths, strict=True)
    ]
    expected = np.sum(shortened, axis=0) + 0.1 * weight.sum() * params
    private = PrivateModel(plain, clip)
    np.testing.assert_allclose(private.weighted_gradient(params, IMAGES, LABELS, weight), expected, atol=1e-5)


@pytest.mark.parametrize("plain", MODELS)
def test_a_step_depends_on_one_sample_by_no_more_than_what_the_noise_is_for(plain):
    """With the same draws, a step with one sample more differs by clip / batch at most: also by its penalty."""
    params, clip, batch = _params(plain), 0.7, 10
    private = PrivateModel(plain, clip, 2.0)
    with_all = [private.noisy_gradient(params, IMAGES, LABELS, batch, subkey(b"k" * 32, step)) for step in range(30)]
    # The last sample is drawn by the last number, and the number of samples decides the probability: keep it
    others = np.arange(40) < 39
    changes = []
    for step, gradient in enumerate(with_all):
        key = subkey(b"k" * 32, step)
        drawn = (uniforms(key, 40) * 40 < batch) & others
        weight = np.full(int(drawn.sum()), 1 / batch, dtype=np.float32)
        without = private._clipped_sum(params, IMAGES[drawn], LABELS[drawn], weight)
        without += np.float32(2.0 * clip / batch) * normals(key, private.size) + np.float32(0.1) * params
        changes.append(np.linalg.norm(gradient - without))
    assert max(changes) <= clip / batch * 1.001
    assert min(changes) < 1e-6  # where it is not drawn


def test_draws_follow_their_distributions_and_their_key():
    key = simulated_key(3)
    many, noise = uniforms(key, 100_000), normals(key, 100_001)
    assert abs(many.mean() - 0.5) < 0.005
    assert 0 <= many.min() < many.max() < 1
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 1) < 0.02
    assert abs((noise > 1.959964).mean() - 0.025) < 0.003
    assert abs(np.corrcoef(noise[:50_000], noise[50_001:])[0, 1]) < 0.02
    np.testing.assert_array_equal(normals(key, 10), normals(key, 10))
    assert not np.array_equal(normals(subkey(key, 1), 10), normals(subkey(key, 2), 10))
    assert subkey(key, 1, 23) != subkey(key, 12, 3)
    assert simulated_key(1) != simulated_key(2)


def test_noise_has_its_size_and_batches_theirs_on_average():
    plain = SoftmaxRegression(64, 4)
    private = PrivateModel(plain, 0.5, 3.0)
    params = plain.init(0)
    steps = np.stack([private.noisy_gradient(params, IMAGES, LABELS, 8, subkey(b"n" * 32, k)) for k in range(400)])
    quiet = PrivateModel(plain, 0.5)
    clear = np.stack([quiet.noisy_gradient(params, IMAGES, LABELS, 8, subkey(b"n" * 32, k)) for k in range(400)])
    assert abs((steps - clear).var(axis=0).sum() / private.noise_variance(8) - 1) < 0.05
    assert private.noise_variance(8) == pytest.approx(260 * (3 * 0.5 / 8) ** 2)
    every = quiet.weighted_gradient(params, IMAGES, LABELS, np.full(40, 1 / 40, dtype=np.float32))
    assert np.linalg.norm(clear.mean(axis=0) - every) < 3 * 0.5 / np.sqrt(8 * 400)  # three standard errors
    assert not quiet.noisy_gradient(params, IMAGES[:0], LABELS[:0], 8, b"n" * 32).any()


def _federated(model, local_steps=1, **more):
    data = LabeledImages(IMAGES, LABELS, CLASSES)
    return Federated(
        model, data, Partition(np.arange(40), np.array([0, 9, 20, 31, 40])), Training(5, local_steps, 0.3), **more
    )


@pytest.mark.parametrize("local_steps", [1, 2])
@pytest.mark.parametrize("plain", MODELS)
def test_simulated_training_is_what_participants_do(plain, local_steps):
    federated = _federated(PrivateModel(plain, 1.0, 0.5), local_steps, participation=[1, 1, 0.5, 1])
    kinds = [behaviour(name) for name in ("truthful", "exaggerator", "truthful", "echo")]
    profile = Profile(kinds, [4, 5, 6, 7])
    fast = train(federated, profile, 3, threads=1).params[0]
    np.testing.assert_allclose(fast, train_plainly(federated, profile, 3), atol=2e-5)
    quiet = train(_federated(plain, local_steps, participation=[1, 1, 0.5, 1]), profile, 3, threads=1).params[0]
    assert np.abs(fast - quiet).max() > 0.01


def test_solo_training_is_what_participants_do():
    model, recipe = PrivateModel(MODELS[0], 1.0, 0.5), Recipe(6, 5, 0.2, 0.03, 0)
    own = [(IMAGES[:20], LABELS[:20]), (IMAGES[20:], LABELS[20:])]
    many = train_all_alone(model, own, recipe, 3, classes=CLASSES, threads=1)
    for one, samples in zip(many, own, strict=True):
        np.testing.assert_allclose(one, train_alone(model, *samples, recipe, 3), atol=1e-5)
    secret = train_alone(model, *own[0], recipe, 3, private_key=b"s" * 32)
    assert np.abs(secret - many[0]).max() > 0.01
    np.testing.assert_array_equal(secret, train_alone(model, *own[0], recipe, 3, private_key=b"s" * 32))


def test_the_plan_counts_noise_as_variance():
    quiet = measure_gradients(_federated(PrivateModel(MODELS[0], 1.0)), batch_size=5)
    noisy = measure_gradients(_federated(PrivateModel(MODELS[0], 1.0, 0.1)), batch_size=5)
    added = noisy.gradient_variance - quiet.gradient_variance
    np.testing.assert_allclose(added, 5 * 260 * (0.1 / 5) ** 2, rtol=0.25)


def test_merged_clients_each_add_their_noise():
    sizes = np.full(40, 1)
    data = LabeledImages(IMAGES, LABELS, CLASSES)
    model = PrivateModel(SoftmaxRegression(64, 4), 1.0, 5.0)
    whole = Federated(
        model, data, Partition(np.arange(40), np.concatenate(([0], np.cumsum(sizes)))), Training(1, 1, 0.3)
    )
    reduced = reduce_federation(whole, sampled=2, groups=2)
    assert reduced.federated.merged.tolist() == [1, 1, 19, 19]

    def spread(federated, batches):
        runs = train(federated, Strategies.truthful(batches), np.arange(40), threads=1).params
        return runs.var(axis=0).sum()

    batches = np.array([len(clients) for clients in reduced.members], dtype=float)
    ratio = spread(reduced.federated, batches) / spread(whole, np.ones(40))
    assert 0.8 < ratio < 1.25


def test_the_recipe_of_private_training_has_every_sample_once(monkeypatch):
    for name in ("STEPS", "SHORT_STEPS", "RECIPE_CLIENTS"):
        monkeypatch.setattr(audition_pilot, name, 2)
    side = server_side(
        Data("digits", pilot_samples=300, test_samples=100), ModelChoice(clip=1.0), (40, 40), Training(2, 1, 0.5)
    )
    pilot = draw_pilot_clients(side, 20, 1)
    assert tune_recipe(pilot, 16, 1.0, 1e-9).shifts == 0


# N = 60,000, batches of 256, δ = 1e-5; https://github.com/tensorflow/privacy/blob/master/tutorials/README.md: the
# table of its parameters, and the 3.01 of its earlier versions. They convert by log(1/δ)/(order − 1).
@pytest.mark.parametrize(
    ("noise", "epochs", "published"), [(1.1, 60, 3.01), (1.12, 60, 2.92), (0.6, 30, 9.74), (1.2, 10, 1.20)]
)
def test_divergences_give_published_values(noise, epochs, published):
    steps = epochs * 60_000 // 256
    earlier = (steps * divergences(256 / 60_000, noise) + log(1e5) / (ORDERS - 1)).min()
    assert earlier == pytest.approx(published, rel=0.004)
    assert 0.7 * published < epsilon([NoisySteps(steps, 256 / 60_000, noise)]) < published


def test_more_published_values():
    # Abadi and others, "Deep Learning with Differential Privacy" (2016), section 3.2: 1.26 for this
    earlier = (10_000 * divergences(0.01, 4.0) + log(1e5) / (ORDERS - 1)).min()
    assert earlier == pytest.approx(1.26, abs=0.005)
    # https://github.com/google/differential-privacy, rdp_privacy_accountant_test.py: (1, 1e-6), and pure privacy
    assert epsilon([NoisySteps(1, 1.0, 4.530877117)], 1e-6) == pytest.approx(1.0, abs=1e-5)
    assert epsilon_of(np.full(31, 1.1), 1e-5, np.arange(2.0, 33.0)) == pytest.approx(1.32783806176)


def test_epsilon_of_one_noisy_number_is_above_the_exact_one():
    """δ of the Gaussian mechanism in closed form: Balle and Wang, arXiv 1805.06530, theorem 8."""
    from scipy.special import ndtr

    for noise in (0.5, 1.0, 4.0):
        bound = epsilon([NoisySteps(1, 1.0, noise)])
        exact = ndtr(0.5 / noise - bound * noise) - np.exp(bound) * ndtr(-0.5 / noise - bound * noise)
        assert 1e-7 < exact < 1e-5


def test_epsilon_at_its_ends():
    assert epsilon([]) == 0
    assert epsilon([NoisySteps(0, 0.5, 0.0), NoisySteps(7, 0.0, 1.0)]) == 0
    assert epsilon([NoisySteps(1, 0.5, 0.0)]) == inf
    nearly, all_ = epsilon([NoisySteps(3, 0.999999, 1.0)]), epsilon([NoisySteps(3, 1.5, 1.0)])
    assert all_ < nearly < 1.01 * all_  # orders between whole ones are bounded
    both = epsilon([NoisySteps(50, 0.1, 1.0), NoisySteps(50, 0.1, 1.0)])
    assert both == pytest.approx(epsilon([NoisySteps(100, 0.1, 1.0)]))
    with pytest.raises(InputError, match="noise"):
        NoisySteps(1, 0.1, -1.0)
