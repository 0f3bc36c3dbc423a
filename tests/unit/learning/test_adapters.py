"""A PyTorch module, a JAX function and scikit-learn's estimators are the same models as the built-in ones.

Tests of PyTorch and JAX are skipped where they are not installed.
"""

import subprocess
import sys
import warnings

import numpy as np
import pytest

from truthfl import Strategies, Training
from truthfl.errors import InputError
from truthfl.learning.data.partition import Federated, iid_partition
from truthfl.learning.data.samples import LabeledImages, LabeledSamples
from truthfl.learning.models import adapters
from truthfl.learning.models.adapters import SklearnNetwork, from_jax, from_sklearn, from_torch
from truthfl.learning.models.cnn import ConvolutionalNetwork
from truthfl.learning.models.model import log_softmax
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.training.rounds import NumPyEngine, make_engine
from truthfl.learning.training.train import train

CLASSES = 4


def pictures(count, height, width, channels, seed=0):
    drawn = np.random.default_rng(seed)
    images = drawn.integers(0, 256, (count, height, width, channels), dtype=np.uint8)
    return images, drawn.integers(0, CLASSES, count), drawn.uniform(0.0, 0.2, count).astype(np.float32)


def torch_library():
    return pytest.importorskip("torch", reason="PyTorch is not installed, so its adapter is not tested")


def jax_library():
    return pytest.importorskip("jax", reason="JAX is not installed, so its adapter is not tested")


def torch_network(torch, height, width, channels, filters):
    units = filters * ((height - 4) // 2) * ((width - 4) // 2)
    nn = torch.nn
    layers = [nn.Conv2d(channels, filters, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(units, CLASSES)]
    return nn.Sequential(*layers)


def torch_regression(torch, pixels):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(pixels, CLASSES))


def jax_regression(penalty=0.0, shape=(4, 3, 2)):
    import jax.numpy as jnp

    def apply(params, images):
        return images.reshape(len(images), -1) @ params["weights"].T + params["biases"]

    pixels = int(np.prod(shape))
    initial = {"weights": jnp.zeros((CLASSES, pixels)), "biases": jnp.zeros(CLASSES)}
    return from_jax(apply, initial, shape, penalty=penalty)


def assert_same_model(adapted, own, params, images, labels, weight):
    assert adapted.size == own.size
    assert adapted.loss(params, images, labels) == pytest.approx(own.loss(params, images, labels), rel=1e-5)
    assert adapted.accuracy(params, images, labels) == own.accuracy(params, images, labels)
    np.testing.assert_array_equal(adapted.predict(params, images), own.predict(params, images))
    ours, theirs = (m.weighted_gradient(params, images, labels, weight) for m in (own, adapted))
    assert theirs.dtype == np.float32
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-4 * np.abs(ours).max())


def assert_trains_alike(adapted, own, shape):
    images, labels, _ = pictures(120, *shape)
    data = LabeledImages(images, labels, [str(k) for k in range(CLASSES)])
    settings = [
        Federated(model, data, iid_partition(120, [40, 30, 50], seed=1), Training(4, local_steps, 0.1))
        for model in (adapted, own)
        for local_steps in (1, 2)
    ]
    assert isinstance(make_engine(settings[0]), NumPyEngine)
    strategies, test = Strategies(1.0, [5, 7, 6], [1.0, 0.5, 1.0]), {"test": data}
    trained = [train(s, strategies, [3, 4], evaluate_on=test, threads=2) for s in settings]
    for theirs, ours in zip(trained[:2], trained[2:], strict=True):
        np.testing.assert_allclose(theirs.params, ours.params, atol=2e-5)
        np.testing.assert_allclose(theirs.evaluations["test"].loss, ours.evaluations["test"].loss, rtol=1e-5)


@pytest.mark.parametrize(("shape", "filters"), [((28, 28, 1), 8), ((11, 13, 3), 3)])
@pytest.mark.parametrize("penalty", [0.0, 0.3])
def test_the_network_in_pytorch_is_the_built_in_one(shape, filters, penalty):
    torch = torch_library()
    images, labels, weight = pictures(70, *shape)
    own = ConvolutionalNetwork(*shape, filters=filters, classes=CLASSES, penalty=penalty)
    adapted = from_torch(torch_network(torch, *shape, filters), shape, penalty=penalty)
    assert_same_model(adapted, own, own.init(5), images, labels, weight)


@pytest.mark.parametrize("channels", [1, 3])
def test_softmax_regression_in_pytorch_is_the_built_in_one(channels):
    torch = torch_library()
    images, labels, weight = pictures(600, 6, 5, channels)
    own = SoftmaxRegression(30 * channels, CLASSES, penalty=0.1)
    adapted = from_torch(torch_regression(torch, own.pixels), (6, 5, channels), penalty=0.1)
    params = np.random.default_rng(1).normal(size=own.size).astype(np.float32)

    def channels_first(flat):  # PyTorch flattens channel by channel, the built-in model pixel by pixel
        weights = flat[:-CLASSES].reshape(CLASSES, 6, 5, channels).transpose(0, 3, 1, 2)
        return np.concatenate([weights.ravel(), flat[-CLASSES:]])

    theirs = channels_first(params)
    assert adapted.loss(theirs, images, labels) == pytest.approx(own.loss(params, images, labels), rel=1e-5)
    ours = channels_first(own.weighted_gradient(params, images, labels, weight))
    np.testing.assert_allclose(adapted.weighted_gradient(theirs, images, labels, weight), ours, atol=2e-4)


def test_training_a_pytorch_module_is_training_the_built_in_network():
    torch = torch_library()
    own = ConvolutionalNetwork(9, 8, 2, filters=3, classes=CLASSES)
    adapted = from_torch(torch_network(torch, 9, 8, 2, 3), (9, 8, 2))
    adapted.init = own.init
    assert_trains_alike(adapted, own, (9, 8, 2))


def test_a_pytorch_module_starts_where_it_is_or_by_seed_and_is_left_alone():
    torch = torch_library()
    images, labels, weight = pictures(3, 8, 8, 1)
    module = torch_network(torch, 8, 8, 1, 2)
    before = np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])
    plain, seeded = from_torch(module, (8, 8, 1)), from_torch(module, (8, 8, 1), seeded=True)
    np.testing.assert_array_equal([plain.init(0), plain.init(1)], [before, before])
    np.testing.assert_array_equal(seeded.init(7), seeded.init(7))
    assert np.abs(seeded.init(7) - seeded.init(8)).max() > 0.01
    plain.weighted_gradient(seeded.init(7), images, labels, weight)
    np.testing.assert_array_equal(np.concatenate([p.detach().numpy().ravel() for p in module.parameters()]), before)


def test_frozen_parameters_are_left_out():
    torch = torch_library()
    images, labels, weight = pictures(3, 8, 8, 1)
    module = torch_network(torch, 8, 8, 1, 2)
    for parameter in module[0].parameters():
        parameter.requires_grad = False
    adapted = from_torch(module, (8, 8, 1))
    assert adapted.size == CLASSES * (2 * 4 + 1)
    assert adapted.weighted_gradient(adapted.init(0), images, labels, weight).shape == (adapted.size,)


def test_what_is_wrong_with_a_module_is_said_in_a_sentence():
    torch = torch_library()
    images, _, weight = pictures(3, 8, 8, 1)
    with pytest.raises(InputError, match=r"type str; it must be a torch\.nn\.Module"):
        from_torch("a module", (8, 8, 1))
    with pytest.raises(InputError, match="nothing to train"):
        from_torch(torch.nn.Flatten(), (8, 8, 1))
    with pytest.raises(InputError, match="does not accept samples of shape"):
        from_torch(torch_network(torch, 28, 28, 1, 2), (8, 8, 1))
    with pytest.raises(InputError, match="one row per sample"):
        from_torch(torch.nn.Conv2d(1, 2, 5), (8, 8, 1))
    with pytest.raises(InputError, match=r"must be torch\.float32"):
        from_torch(torch_network(torch, 8, 8, 1, 2).double(), (8, 8, 1))
    with pytest.raises(InputError, match="must be the lengths of one sample's features"):
        from_torch(torch_network(torch, 8, 8, 1, 2), images)
    adapted = from_torch(torch_network(torch, 8, 8, 1, 2), (8, 8, 1))
    with pytest.raises(InputError, match="label 9; the model's scores are for classes 0 to 3"):
        adapted.weighted_gradient(adapted.init(0), images, np.array([0, 9, 1]), weight)


def test_seeding_needs_layers_that_can_start_anew():
    torch = torch_library()

    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(CLASSES, 64))

        def forward(self, x):
            return x.flatten(1) @ self.weight.T

    assert from_torch(Plain(), (8, 8, 1)).size == CLASSES * 64
    with pytest.raises(InputError, match="no reset_parameters"):
        from_torch(Plain(), (8, 8, 1), seeded=True)


@pytest.mark.parametrize("penalty", [0.0, 0.2])
def test_softmax_regression_in_jax_is_the_built_in_one(penalty):
    jax_library()
    images, labels, weight = pictures(600, 4, 3, 2)
    own, adapted = SoftmaxRegression(24, CLASSES, penalty=penalty), jax_regression(penalty)
    params = np.random.default_rng(1).normal(size=own.size).astype(np.float32)
    theirs = np.concatenate([params[-CLASSES:], params[:-CLASSES]])  # JAX sorts keys: biases come first
    assert adapted.size == own.size
    assert adapted.loss(theirs, images, labels) == pytest.approx(own.loss(params, images, labels), rel=1e-5)
    assert adapted.accuracy(theirs, images, labels) == own.accuracy(params, images, labels)
    ours = own.weighted_gradient(params, images, labels, weight)
    gradient = adapted.weighted_gradient(theirs, images, labels, weight)
    np.testing.assert_allclose(np.concatenate([gradient[CLASSES:], gradient[:CLASSES]]), ours, atol=2e-4)


def test_the_network_in_jax_is_the_built_in_one():
    jax = jax_library()
    shape, filters = (10, 9, 3), 2
    own = ConvolutionalNetwork(*shape, filters=filters, classes=CLASSES)
    rows, columns = own.pooled

    def apply(params, images):
        kernels, biases, dense, dense_biases = params
        z = jax.lax.conv_general_dilated(images, kernels, (1, 1), "VALID", dimension_numbers=("NHWC", "OIHW", "NCHW"))
        z = z[:, :, : 2 * rows, : 2 * columns] + biases[:, None, None]
        pooled = z.reshape(len(images), filters, rows, 2, columns, 2).max(axis=(3, 5))
        return jax.nn.relu(pooled).reshape(len(images), -1) @ dense.T + dense_biases

    images, labels, weight = pictures(70, *shape)
    adapted = from_jax(apply, lambda seed: [jax.numpy.asarray(p) for p in own.parts(own.init(seed))], shape)
    np.testing.assert_array_equal(adapted.init(3), own.init(3))
    assert_same_model(adapted, own, own.init(5), images, labels, weight)
    assert_trains_alike(adapted, own, shape)


def test_what_is_wrong_with_a_jax_function_is_said_in_a_sentence():
    jax_library()
    images, labels, weight = pictures(3, 4, 3, 2)
    ones = np.ones((24, CLASSES), dtype=np.float32)
    with pytest.raises(InputError, match="must be a function"):
        from_jax("a function", ones, (4, 3, 2))
    with pytest.raises(InputError, match="does not accept samples"):
        from_jax(lambda p, x: x @ p, ones, (4, 3, 2))
    with pytest.raises(InputError, match="one row per sample"):
        from_jax(lambda p, x: (x.reshape(len(x), -1) @ p).sum(axis=1), ones, (4, 3, 2))
    with pytest.raises(InputError, match="must be float32"):
        from_jax(lambda p, x: x.reshape(len(x), -1) @ p, ones.astype(np.int32), (4, 3, 2))
    adapted = from_jax(lambda p, x: x.reshape(len(x), -1) @ p, ones, (4, 3, 2))
    with pytest.raises(InputError, match="label -1"):
        adapted.weighted_gradient(adapted.init(0), images, np.array([0, -1, 1]), weight)
    assert adapted.loss(adapted.init(0), images, labels) == pytest.approx(np.log(CLASSES), rel=1e-5)


def table(count, columns, seed=0):
    drawn = np.random.default_rng(seed)
    features = drawn.normal(size=(count, columns)).astype(np.float32)
    return features, drawn.integers(0, CLASSES, count), drawn.uniform(0.0, 0.2, count).astype(np.float32)


def test_rows_of_a_table_reach_a_pytorch_module_as_they_are():
    torch = torch_library()
    features, labels, weight = table(50, 7)
    own = SoftmaxRegression(7, CLASSES, penalty=0.1)
    adapted = from_torch(torch.nn.Linear(7, CLASSES), (7,), seeded=True, penalty=0.2).with_penalty(0.1)
    params = np.random.default_rng(1).normal(size=own.size).astype(np.float32)
    assert_same_model(adapted, own, params, features, labels, weight)


def test_rows_of_a_table_reach_a_jax_function_as_they_are():
    jax_library()
    features, labels, weight = table(50, 7)
    own = SoftmaxRegression(7, CLASSES, penalty=0.1)
    start = [np.zeros((CLASSES, 7), dtype=np.float32), np.zeros(CLASSES, dtype=np.float32)]
    adapted = from_jax(lambda p, x: x @ p[0].T + p[1], start, (7,), penalty=0.2).with_penalty(0.1)
    params = np.random.default_rng(1).normal(size=own.size).astype(np.float32)
    assert_same_model(adapted, own, params, features, labels, weight)


def test_linear_estimators_of_scikit_learn_are_the_built_in_regression():
    from sklearn.linear_model import LogisticRegression, SGDClassifier

    assert from_sklearn(LogisticRegression(), (7,), 3) == SoftmaxRegression(7, 3, 1e-3)
    assert from_sklearn(SGDClassifier(loss="log_loss", alpha=0.02), (2, 3), 3) == SoftmaxRegression(6, 3, 0.02)
    assert from_sklearn(SGDClassifier(loss="log_loss"), (7,), 3, penalty=0.0) == SoftmaxRegression(7, 3, 0.0)


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
def test_a_network_of_scikit_learn_has_its_scores(activation):
    from sklearn.neural_network import MLPClassifier

    features, labels, _ = table(60, 7)
    fitted = MLPClassifier((6, 5), activation=activation, max_iter=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two iterations are too few
        fitted.fit(features, labels)
    model = from_sklearn(fitted, (7,), CLASSES)
    parts = [part.ravel() for layer in zip(fitted.coefs_, fitted.intercepts_, strict=True) for part in layer]
    params = np.concatenate(parts).astype(np.float32)
    assert len(params) == model.size
    chances = np.exp(log_softmax(model.scores(params, features)))
    np.testing.assert_allclose(chances, fitted.predict_proba(features), atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
def test_the_gradient_of_a_network_of_scikit_learn_is_that_of_its_loss(activation):
    features, labels, _ = table(40, 5)
    model = SklearnNetwork((5, 6, CLASSES), activation, penalty=0.1)
    start, weight = model.init(3), np.full(40, 1 / 40, dtype=np.float32)
    gradient = model.weighted_gradient(start, features, labels, weight)
    for k in range(0, model.size, 5):
        step = np.zeros(model.size, dtype=np.float32)
        step[k] = 1e-2
        rise = model.loss(start + step, features, labels) - model.loss(start - step, features, labels)
        assert gradient[k] == pytest.approx(rise / 2e-2, abs=2e-3)
    np.testing.assert_array_equal(model.init(3), start)
    assert np.abs(model.init(4) - start).max() > 0.1


def test_the_simplest_network_of_scikit_learn_trains_as_the_built_in_regression():
    data = LabeledSamples(*table(120, 7)[:2], [str(k) for k in range(CLASSES)])
    network, regression = SklearnNetwork((7, CLASSES), penalty=0.01), SoftmaxRegression(7, CLASSES, 0.01)
    losses = []
    for model in (network, regression):
        federated = Federated(model, data, iid_partition(120, [40, 30, 50], seed=1), Training(40, 1, 0.5))
        done = train(federated, Strategies(1.0, [20, 20, 20], 1.0), [3], evaluate_on={"test": data})
        losses.append(done.evaluations["test"].loss[0, -1])
    assert losses[0] == pytest.approx(losses[1], abs=0.02)  # they start elsewhere


def test_other_estimators_are_refused_in_words():
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import SGDClassifier

    with pytest.raises(InputError, match="RandomForestClassifier is none of them: it has no parameters"):
        from_sklearn(RandomForestClassifier(), (7,), 3)
    with pytest.raises(InputError, match="the loss of this SGDClassifier is hinge"):
        from_sklearn(SGDClassifier(), (7,), 3)
    with pytest.raises(InputError, match="estimator is of type str"):
        from_sklearn("a forest", (7,), 3)


@pytest.mark.parametrize(("adapt", "library"), [(from_torch, "PyTorch"), (from_jax, "JAX")])
def test_a_missing_library_is_named(monkeypatch, adapt, library):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(adapters.importlib, "import_module", missing)
    arguments = (None, (8, 8, 1)) if adapt is from_torch else (None, None, (8, 8, 1))
    with pytest.raises(InputError, match=f"^{library} is not installed"):
        adapt(*arguments)


def test_no_library_is_loaded_before_it_is_needed():
    code = "import sys, truthfl.learning.models.adapters; print({'torch', 'jax', 'sklearn'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "set()"
