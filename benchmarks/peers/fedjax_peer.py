"""FedJAX: its federated averaging, compiled by XLA. It draws its own batches, so parameters are not compared."""

from __future__ import annotations

from benchmarks.peers.workload import CLASSES, SIDE, STEP_SIZE

HALF = (SIDE - 4) // 2


def run(work, gate) -> None:
    import jax
    import jax.numpy as jnp

    if not hasattr(jax, "tree_map"):  # FedJAX uses a name that JAX has removed
        jax.tree_map = jax.tree_util.tree_map
    import fedjax
    from fedjax.algorithms import fed_avg

    gate.imported()
    images, labels = work.floats()
    images, labels = images[:, 0, :, :, None], labels.astype("int32")

    def loss(params, batch, rng):  # noqa: ARG001  (FedJAX's signature)
        filters, biases, dense, dense_biases = params
        x, layout = batch["x"], ("NHWC", "HWIO", "NHWC")
        z = jax.lax.conv_general_dilated(x, filters, (1, 1), "VALID", dimension_numbers=layout) + biases
        pooled = jax.nn.relu(z).reshape(len(x), HALF, 2, HALF, 2, work.filters).max(axis=(2, 4))
        likely = jax.nn.log_softmax(pooled.reshape(len(x), -1) @ dense + dense_biases)
        return -jnp.take_along_axis(likely, batch["y"][:, None], axis=1).mean()

    filters, biases, dense, dense_biases = work.model().parts(work.initial())
    by_unit = dense.reshape(CLASSES, work.filters, HALF**2).transpose(2, 1, 0).reshape(-1, CLASSES)
    start = [jnp.asarray(part) for part in (filters.transpose(2, 3, 1, 0), biases, by_unit, dense_biases)]
    steps = fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=None, num_steps=work.local_steps, seed=0)
    averaging = fed_avg.federated_averaging(
        jax.grad(loss), fedjax.optimizers.sgd(STEP_SIZE), fedjax.optimizers.sgd(1.0), steps
    )
    held = [slice(i * work.each, (i + 1) * work.each) for i in range(work.clients)]
    clients = [
        (b"%d" % i, fedjax.ClientDataset({"x": images[own], "y": labels[own]}), jax.random.PRNGKey(i))
        for i, own in enumerate(held)
    ]
    state = averaging.init(start)
    going = gate.open()
    while going:
        state, _ = averaging.apply(state, clients)
        jax.block_until_ready(state.params)
        going = gate.round_done()
