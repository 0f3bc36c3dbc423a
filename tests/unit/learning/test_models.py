"""The built-in models: gradients against finite differences and against each other, NumPy against the kernel."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfl import InputError
from truthfl.learning.models.cnn import ConvolutionalNetwork
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.training.compute import CompiledModel, Kernel, kernel

SHAPES = [
    (SoftmaxRegression(64, 10, 0.01), (8, 8, 1)),
    (SoftmaxRegression(67, 23), (67, 1, 1)),
    (ConvolutionalNetwork(8, 8, 1, 3, 10), (8, 8, 1)),
    (ConvolutionalNetwork(13, 17, 3, 5, 7, 0.1), (13, 17, 3)),
    (ConvolutionalNetwork(28, 28, 1, 8, 10), (28, 28, 1)),
    (ConvolutionalNetwork(6, 70, 2, 4, 18), (6, 70, 2)),
]
needs_kernel = pytest.mark.skipif(kernel() is None, reason="the compiled kernel is not built here, or turned off")


def samples(model, shape, seed, count=37, dark=0.6):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (count, *shape)).astype(np.uint8)
    images[generator.random(images.shape) < dark] = 0
    labels = generator.integers(0, model.classes, count)
    params = (generator.normal(size=model.size) * 0.2).astype(np.float32)
    return params, images, labels, generator.uniform(0, 2 / count, count).astype(np.float32)


def weighted_loss(model, params, images, labels, weight):
    """The same in float64, one image at a time, from the definition."""
    p = params.astype(np.float64)
    x = images.astype(np.float64) / 255.0
    if isinstance(model, SoftmaxRegression):
        scores = x.reshape(len(x), -1) @ p[: -model.classes].reshape(model.classes, -1).T + p[-model.classes :]
    else:
        filters, biases, dense, dense_biases = model.parts(p)
        rows, columns = model.height - 4, model.width - 4
        z = np.zeros((len(x), model.filters, rows, columns))
        for k in range(5):
            for l in range(5):  # noqa: E741
                z += np.einsum("nijc,fc->nfij", x[:, k : k + rows, l : l + columns], filters[:, :, k, l])
        z = np.maximum(z + biases[:, None, None], 0.0)[:, :, : rows // 2 * 2, : columns // 2 * 2]
        pooled = z.reshape(len(x), model.filters, rows // 2, 2, columns // 2, 2).max(axis=(3, 5))
        scores = pooled.reshape(len(x), -1) @ dense.T + dense_biases
    top = scores.max(axis=1)
    entropy = top + np.log(np.exp(scores - top[:, None]).sum(axis=1)) - scores[np.arange(len(x)), labels]
    return float(weight.astype(np.float64) @ (entropy + 0.5 * model.penalty * np.square(p).sum()))


@pytest.mark.parametrize(("model", "shape"), SHAPES, ids=str)
def test_gradients_are_those_of_the_loss(model, shape):
    """Central differences of the loss written from its definition, along random directions."""
    params, images, labels, weight = samples(model, shape, seed=1)
    gradient = model.weighted_gradient(params, images, labels, weight).astype(np.float64)
    generator = np.random.default_rng(2)
    step, errors = 1e-8, []
    for _ in range(20):
        direction = generator.normal(size=model.size)
        ahead = weighted_loss(model, params + step * direction, images, labels, weight)
        behind = weighted_loss(model, params - step * direction, images, labels, weight)
        errors.append(abs((ahead - behind) / (2 * step) - gradient @ direction) / np.linalg.norm(gradient))
    assert np.median(errors) < 1e-4  # a kink of ReLU or pooling may lie within one step or another
    one = model.loss(params, images, labels)
    assert one == pytest.approx(weighted_loss(model, params, images, labels, np.full(37, 1 / 37)), rel=1e-5)


@pytest.mark.parametrize(("model", "shape"), SHAPES, ids=str)
def test_a_prediction_is_the_class_whose_loss_is_least(model, shape):
    params, images, _, _ = samples(model, shape, seed=1)
    predicted = model.predict(params, images)
    one = [[model.loss(params, images[k : k + 1], np.array([c])) for c in range(model.classes)] for k in range(37)]
    assert (predicted == np.argmin(one, axis=1)).all()
    assert len(np.unique(predicted)) > 1
    assert model.accuracy(params, images, predicted) == 1.0


@needs_kernel
@pytest.mark.parametrize("instruction_set", ["plain", "best"])
@pytest.mark.parametrize(("model", "shape"), SHAPES, ids=str)
def test_the_kernel_computes_what_numpy_computes(model, shape, instruction_set):
    found = kernel()
    chosen = found if instruction_set == "best" else Kernel(found.library, "plain")
    compiled = CompiledModel(model, chosen)
    for seed, count in ((3, 1), (4, 8), (5, 50)):
        params, images, labels, weight = samples(model, shape, seed, count)
        assert (compiled.layout.unpack(compiled.layout.pack(params)) == params).all()
        slow = model.weighted_gradient(params, images, labels, weight)
        fast = compiled.weighted_gradient(params, images, labels, weight)
        assert np.abs(fast - slow).max() <= 2e-6 * np.abs(slow).max()
        loss, accuracy = compiled.evaluate(params, images, labels)
        assert loss == pytest.approx(model.loss(params, images, labels), rel=1e-5)
        assert accuracy == pytest.approx(model.accuracy(params, images, labels))


@needs_kernel
@given(
    st.integers(6, 30), st.integers(6, 40), st.integers(1, 4), st.integers(1, 9), st.integers(2, 20), st.integers(0, 99)
)
def test_any_image_size_channels_filters_and_classes(height, width, channels, filters, classes, seed):
    model = ConvolutionalNetwork(height, width, channels, filters, classes)
    params, images, labels, weight = samples(model, (height, width, channels), seed, count=9)
    slow = model.weighted_gradient(params, images, labels, weight)
    fast = CompiledModel(model, kernel()).weighted_gradient(params, images, labels, weight)
    assert np.abs(fast - slow).max() <= 1e-5 * np.abs(slow).max()


def test_in_a_tie_one_place_takes_the_whole_gradient():
    """All-white images: the four places of each patch tie, and the gradient must not be counted four times."""
    model = ConvolutionalNetwork(8, 8, 1, 2, 3)
    params = np.abs(model.init(0))
    images, labels = np.full((4, 8, 8, 1), 255, dtype=np.uint8), np.arange(4) % 3
    weight = np.full(4, 0.25, dtype=np.float32)
    gradient = model.weighted_gradient(params, images, labels, weight)
    direction = np.zeros(model.size)
    direction[:25] = 1.0  # all of the first filter together: the tie stays a tie, so the loss is smooth this way
    step = 1e-5
    ahead = weighted_loss(model, params + step * direction, images, labels, weight)
    behind = weighted_loss(model, params - step * direction, images, labels, weight)
    assert gradient @ direction == pytest.approx((ahead - behind) / (2 * step), rel=1e-4)


def test_images_too_small_for_a_filter():
    with pytest.raises(InputError, match="images are 5 × 8 pixels; the network needs at least 6 × 6"):
        ConvolutionalNetwork(5, 8, 1, 2, 10)
