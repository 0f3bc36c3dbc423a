"""What the server tries out on digits of its own before it promises anything: your own training, many times over.

It finds what small batches, guessed labels and scaled reports do to the loss, and sets pay by it. The letters are those
of docs/mechanism.md, sections 2 to 4.
"""

import numpy as np

from digits.task import CLASSES, Softmax, load_servers_data, test, train
from truthfl import Clients, LossModel, Training, confidence_margin, lceme, optimal_batch_sizes
from truthfl.flower import Promise

BATCH_SIZES, USUAL = (20, 40, 80), 40
SCALES = (0.5, 1.5)


def promise(names, samples_of, config) -> Promise:
    """The contract for these clients: which batch size each is asked for, and how her pay falls with the loss."""
    samples = np.array([samples_of[name] for name in names])
    clients = Clients(
        name=names,
        weight=samples / samples.sum(),
        gradient_variance=1.0,  # is measured as part of v
        sample_cost=config["sample-cost"],
        labeling_cost=config["labeling-cost"] * samples,
        dataset_size=samples,
    )
    training = Training(config["num-server-rounds"], config["local-steps"], config["learning-rate"])
    model, error = loss_model(samples, config)
    batches = optimal_batch_sizes(clients, model, training, loss_value=config["loss-value"])
    margin = confidence_margin(lceme(clients, model, training, batches), error)
    return Promise(clients, training, model, lceme(clients, model, training, batches, margin=margin), error)


def loss_model(samples, config):
    """c_0, v_i, b_i and g_i; and how much the final loss of honest work varies from job to job."""
    weight, seeds = samples / samples.sum(), range(config["pilot-runs"])
    honest = np.array([[final_loss(samples, size, config, seed) for seed in seeds] for size in BATCH_SIZES])
    v, constant = np.polyfit(np.square(weight).sum() / np.array(BATCH_SIZES), honest.mean(axis=1), 1)
    few = seeds[: max(2, len(seeds) // 4)]

    def harm(client, **lie):
        lied = [final_loss(samples, USUAL, config, seed, liar=client, **lie) for seed in few]
        return np.mean(lied) - honest[BATCH_SIZES.index(USUAL), : len(few)].mean()

    everybody = range(len(samples))
    model = LossModel(
        constant=constant,
        sampling=v * np.square(weight),
        labeling=[harm(client, guesses=True) for client in everybody],
        reporting=[max(0.0, np.mean([harm(client, scale=s) / (s - 1) ** 2 for s in SCALES])) for client in everybody],
    )
    return model, float(np.std([final_loss(samples, USUAL, config, seed, anew=True) for seed in seeds], ddof=1))


def final_loss(samples, batch_size, config, seed, *, liar=None, guesses=False, scale=1.0, anew=False):
    """Of a job with so many samples each, tested as the job will be.

    The samples are the server's own, in another order for each seed; `anew`, drawn with replacement, as if they came
    from elsewhere.
    """
    (features, labels), (test_features, test_labels) = load_servers_data()
    draws, weight = np.random.default_rng(seed), samples / samples.sum()
    tested = draws.integers(len(test_labels), size=config["test-draws"])
    rows = np.split(draws.choice(len(labels), size=samples.sum(), replace=anew), np.cumsum(samples)[:-1])
    data = [(features[own], labels[own]) for own in rows]
    if guesses:
        data[liar] = data[liar][0], draws.integers(len(CLASSES), size=samples[liar])
    model, common = Softmax(), Softmax().get_weights()
    for round_ in range(config["num-server-rounds"]):
        changed = list(common)
        for client, own in enumerate(data):
            model.set_weights(common)
            train(model, own, config["learning-rate"], batch_size, config["local-steps"], (seed, round_, client))
            share = weight[client] * (scale if client == liar else 1.0)
            for part, new in enumerate(model.get_weights()):
                changed[part] = changed[part] + share * (new - common[part])
        common = changed
    model.set_weights(common)
    return test(model, (test_features[tested], test_labels[tested]))[0]
