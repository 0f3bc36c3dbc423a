"""Somebody's own Flower app, paid: the example in one process, its batch sizes, its average, strange replies."""

import re
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from coded_replies import recoded
from participants import changed
from truthfl import LossModel
from truthfl.errors import InputError
from truthfl.federation.simulated.grid import InProcessGrid
from truthfl.flower import PaidStrategy, assigned_batch, paid
from truthfl.ledger import participant_folder
from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.checking import check, check_receipt
from truthfl.ledger.job_view import job_view

EXAMPLE = Path(__file__).parent.parent / "examples" / "flower_app"
sys.path.insert(0, str(EXAMPLE))
client_app, pilot, server_app, task, try_it = (
    import_module(f"digits.{name}") for name in ("client_app", "pilot", "server_app", "task", "try_it")
)
NAMES = ("Ada", "Ben", "Cleo", "Dora")
ADA, BEN = 100, 101


@pytest.fixture
def config(tmp_path):
    few = {"folder": str(tmp_path / "out"), "num-server-rounds": 3, "test-draws": 500, "pilot-runs": 4}
    return try_it.run_config() | few


@pytest.fixture
def known_loss(monkeypatch):
    """A loss model without a pilot, which is not what is tested here; it asks for another batch size of each."""

    def loss_model(samples, _):
        weight = samples / samples.sum()
        return LossModel(constant=0.2, sampling=2.0 * weight**2, labeling=weight * 5, reporting=weight), 0.01

    monkeypatch.setattr(pilot, "loss_model", loss_model)


class Watched(PaidStrategy):
    """Keeps what came out."""

    last = None

    def start(self, *args, **more):
        Watched.last = super().start(*args, **more)
        return Watched.last


class Meddler(InProcessGrid):
    """A grid on which replies are changed on their way; `change(reply)` gives those that arrive instead."""

    change = staticmethod(lambda reply: [reply])

    def pull_messages(self, message_ids):
        return [one for reply in super().pull_messages(message_ids) for one in self.change(reply)]


@pytest.fixture
def go(config, known_loss, monkeypatch):  # noqa: ARG001
    """Run the example with some replies changed; what the book says of it, and the model."""
    monkeypatch.setattr(server_app, "PaidStrategy", Watched)
    monkeypatch.setattr(try_it, "InProcessGrid", Meddler)

    def run(change=None, nodes=None):
        grid = try_it.grid_of(client_app.app, nodes or try_it.node_configs(config), config)
        grid.change = change or grid.change
        try_it.run(config, grid)
        return what_came_out(config)

    return run


def what_came_out(config):
    with open_for_reading(Path(config["folder"]) / "ledger.db") as book:
        entries = book.entries()
    assert check(entries) is None
    job = entries[-1].job
    return job_view(job, [entry for entry in entries if entry.job == job]), model_in(config["folder"])


def model_in(folder):
    with np.load(Path(folder) / "model.npz") as parts:
        return np.concatenate([part.ravel() for part in parts.values()])


def by_hand(config, offers, left_out=()):
    """The old model plus the sum of the weights times the changes, round by round."""
    common, model = task.Softmax().get_weights(), task.Softmax()
    for round_ in range(1, config["num-server-rounds"] + 1):
        change = [np.zeros(part.shape) for part in common]
        for i, offer in enumerate(offers):
            if offer.client.name not in left_out:
                model.set_weights(common)
                steps = config["learning-rate"], offer.client.batch_size, config["local-steps"]
                task.train(model, task.load_data(i, len(offers))[0], *steps, (i, round_))
                for part, new in enumerate(model.get_weights()):
                    change[part] += offer.client.weight * (new - common[part])
        common = [(old + moved).astype(np.float32) for old, moved in zip(common, change, strict=True)]
    return np.concatenate([part.ravel() for part in common])


def same(one, other):
    return np.abs(one - other).max() < 1e-5


def of(node, kind="train"):
    return lambda reply: reply.metadata.message_type == kind and reply.metadata.src_node_id == node


def edited(reply, arrays=None, **metrics):
    """The same reply with other arrays, or other metrics."""
    content = dict(reply.content) | ({"arrays": arrays} if arrays else {})
    content["metrics"] = MetricRecord(dict(reply.content["metrics"]) | metrics)
    made = Message(RecordDict(content), reply_to=reply)
    vars(made.metadata).update(vars(reply.metadata))
    return made


def test_the_example_as_it_is(config, capsys):
    """With its pilot: everybody signs, is paid, and has a receipt that holds."""
    config |= {"num-server-rounds": 20}
    try_it.run(config, try_it.grid_of(client_app.app, try_it.node_configs(config), config))
    try_it.show(config["folder"])
    assert "The ledger has no fault." in capsys.readouterr().out
    found, model = what_came_out(config)
    assert tuple(offer.client.name for offer in found.agreement.offers) == NAMES
    assert [found.answer_to(offer).document["document"]["kind"] for offer in found.agreement.offers] == [
        "acceptance"
    ] * 4
    assert all(found.delivered[name] == 20 for name in NAMES)
    assert {entry.document["client"]: entry.document["amount"] for entry in found.payments} == {
        name: found.settlements[name].document["pay"] for name in NAMES
    }
    assert all(entry.document["amount"] > 0 for entry in found.payments)
    with open_for_reading(Path(config["folder"]) / "ledger.db") as book:
        for name in NAMES:
            (paper,) = participant_folder.receipts(Path(config["folder"]) / name)
            assert check_receipt(paper, book.entries()) is None
    assert min(accuracy for _, accuracy in evaluated_by_hand(model)) > 0.85


def test_the_operator_knows_how_many_digits_each_has(config):
    sizes = [len(task.load_data(i, 4)[0][1]) for i in range(4)]
    assert [config[f"clients.{name}"] for name in NAMES] == sizes


def test_the_assigned_batch_size_arrives_in_the_training_code(config, go, monkeypatch):
    used, sent = {}, []

    def watched_train(model, data, learning_rate, batch_size, local_steps, seed):
        used.setdefault(NAMES[seed[0]], set()).add(batch_size)
        return task.train(model, data, learning_rate, batch_size, local_steps, seed)

    class Watching(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            sent.append(dict(config))
            return super().configure_train(server_round, arrays, config, grid)

    monkeypatch.setattr(client_app, "train", watched_train)
    monkeypatch.setattr(server_app, "FedAvg", Watching)
    found, _ = go()
    assert used == {offer.client.name: {offer.client.batch_size} for offer in found.agreement.offers}
    assert len({offer.client.batch_size for offer in found.agreement.offers} - {config["batch-size"]}) >= 3
    assert all("batch-size" not in one for one in sent)  # a client's batch size is hers alone


def plain(name):
    """The module as it was before it was paid, by the diff that README shows."""
    source = (EXAMPLE / "digits" / f"{name}.py").read_text()
    diffs = re.findall(r"^```diff\n(.*?)^```$", (EXAMPLE / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (shown,) = [diff for diff in diffs if f"+++ digits/{name}.py" in diff]
    for hunk in shown.split("@@\n")[1:]:
        lines = hunk.splitlines()
        after, before = ("\n".join(line[1:] for line in lines if line[:1] != sign) for sign in "-+")
        assert source.count(after) == 1, after
        source = source.replace(after, before)
    assert "truthfl" not in source
    module = ModuleType(name)
    exec(compile(source, f"plain {name}", "exec"), vars(module))
    return module


def test_when_all_deliver_the_model_is_that_of_the_plain_app(config, go, tmp_path, monkeypatch):
    found, model = go()
    nodes, models = try_it.node_configs(config), {}
    monkeypatch.setattr(try_it, "server_app", plain("server_app"))
    for sizes in ("assigned", "usual"):
        config["folder"] = str(tmp_path / sizes)
        grid = try_it.grid_of(plain("client_app").app, nodes, config)
        if sizes == "assigned":
            for node, offer in zip(nodes, found.agreement.offers, strict=True):
                grid.contexts[node].run_config["batch-size"] = offer.client.batch_size
        try_it.run(config, grid)
        models[sizes] = model_in(config["folder"])
    assert same(model, models["assigned"])
    assert not same(model, models["usual"])
    assert same(model, by_hand(config, found.agreement.offers))
    assert np.abs(model).max() > 0.5


def test_claimed_samples_change_nothing(config, go):
    def boast(reply):
        mine = of(ADA)(reply) or of(ADA, "evaluate")(reply)
        return [edited(reply, **{"num-examples": 10**9}) if mine else reply]

    found, model = go(boast)
    assert same(model, by_hand(config, found.agreement.offers))
    expected = np.array([offer.client.weight for offer in found.agreement.offers]) @ np.array(evaluated_by_hand(model))
    metrics = Watched.last.evaluate_metrics_clientapp[3]
    assert [metrics["eval_loss"], metrics["eval_acc"]] == pytest.approx(expected, abs=1e-5)


def poisoned(reply):
    arrays = [array.copy() for array in reply.content["arrays"].to_numpy_ndarrays()]
    arrays[0][0, 0] = np.nan
    return [edited(reply, arrays=ArrayRecord(arrays))]


BAD = {
    "NaN": (poisoned, "it has NaN or infinity"),
    "missing": (lambda _: [], "no report in time"),
    "empty": (
        lambda reply: [edited(reply, arrays=ArrayRecord(task.Softmax().get_weights()))],
        "empty: it is the model as it was sent",
    ),
}


@pytest.mark.parametrize("kind", list(BAD))
def test_a_bad_reply_counts_as_no_change_and_the_round_goes_on(config, go, kind):
    config["num-server-rounds"] = 1 if kind == "empty" else 3
    change, reason = BAD[kind]
    home = Path(config["folder"]) / "Ada"
    found, model = go(lambda reply: [recoded(home, one) for one in change(reply)] if of(ADA)(reply) else [reply])
    assert same(model, by_hand(config, found.agreement.offers, left_out=("Ada",)))
    assert not same(model, by_hand(config, found.agreement.offers))
    assert {entry.document["reason"] for entry in found.rejections} == {reason}
    assert found.delivered == dict.fromkeys(NAMES[1:], config["num-server-rounds"])
    assert found.settlements["Ada"].document["pay"] == 0
    assert all(set(metrics) == {"train_loss"} for metrics in Watched.last.train_metrics_clientapp.values())


def test_strange_metrics_do_no_harm(config, go):
    strange = iter([{"mood": 3}, {"train_loss": [1.0, 2.0]}, {"train_loss": float("nan")}])

    def odd(reply):
        if of(ADA)(reply):
            return [edited(reply, **next(strange))]
        return [edited(reply, eval_loss=[0.5], humour=1.0) if of(BEN, "evaluate")(reply) else reply]

    found, model = go(odd)
    assert same(model, by_hand(config, found.agreement.offers))
    assert found.delivered == dict.fromkeys(NAMES, 3)
    trained, evaluated = (
        [dict(one) for one in kind.values()]
        for kind in (Watched.last.train_metrics_clientapp, Watched.last.evaluate_metrics_clientapp)
    )
    assert [set(one) for one in trained] == [{"train_loss"}] * 3
    assert [set(one) for one in evaluated] == [{"eval_acc", "eval_loss"}] * 3
    assert np.isfinite([*trained[2].values(), *evaluated[2].values()]).all()
    weight = np.array([offer.client.weight for offer in found.agreement.offers])
    told = np.array(evaluated_by_hand(model))
    assert evaluated[2]["eval_acc"] == pytest.approx(weight @ told[:, 1], abs=1e-5)
    others = weight * (np.array(NAMES) != "Ben")
    assert evaluated[2]["eval_loss"] == pytest.approx(others @ told[:, 0] / others.sum(), abs=1e-5)


def evaluated_by_hand(model):
    """Each client's loss and accuracy on her own digits."""
    softmax = task.Softmax()
    softmax.set_weights([model[:640].reshape(64, 10), model[640:]])
    return [task.test(softmax, task.load_data(i, len(NAMES))[1]) for i in range(len(NAMES))]


def test_who_declines_is_left_out_and_the_others_are_offered_anew(config, go):
    nodes = try_it.node_configs(config)
    nodes[BEN] |= {"accept": "if it pays", "labeling-cost": 10_000.0}
    seen = []

    def note(reply):
        seen.append((reply.metadata.src_node_id, reply.metadata.message_type))
        return [reply]

    found, model = go(note, nodes)
    assert [(offer.client.name, offer.job.version) for offer in found.agreement.offers] == [
        ("Ada", 2),
        ("Cleo", 2),
        ("Dora", 2),
    ]
    assert found.answers["1/Ben"].document["document"]["kind"] == "refusal"
    assert sum(offer.client.weight for offer in found.agreement.offers) == pytest.approx(1.0)
    assert set(found.settlements) == {"Ada", "Cleo", "Dora"}
    assert not {(BEN, "train"), (BEN, "evaluate")} & set(seen)
    ben = changed(found.agreement.offers[0], client="Ben")
    assert same(
        model, by_hand(config, [found.agreement.offers[0], ben, *found.agreement.offers[1:]], left_out=("Ben",))
    )


def counting_app():
    """An app whose model also counts, in whole numbers, and that has a word of its own for weights."""
    app = paid(ClientApp(mods=[assigned_batch]), samples=lambda _: 1000)

    @app.train()
    def train(msg, context):
        steps, weight = msg.content["arrays"].to_numpy_ndarrays()
        change, claimed = context.node_config["partition-id"], 10 ** context.node_config["partition-id"]
        arrays = ArrayRecord([steps + msg.content["config"]["batch-size"], weight + np.float32(change)])
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"rows": claimed})}), reply_to=msg)

    return app


def counted(config, strategy, **more):
    grid = try_it.grid_of(counting_app(), try_it.node_configs(config), config)
    start = ArrayRecord([np.zeros(2, dtype=np.int64), np.zeros(3, dtype=np.float32)])
    folder = Path(config["folder"])
    with open_ledger(folder / "ledger.db") as book:
        made = server_app.under_contract(strategy, config, folder, book)
        made.test = replace(made.test, loss=lambda arrays, drawn: 0.1)  # noqa: ARG005
        result = made.start(grid, start, num_rounds=3, **more)
        assert check(book.entries()) is None
    return made, result, grid


@pytest.mark.usefixtures("known_loss")
def test_whole_numbers_stay_whole_and_weights_may_have_any_name(config):
    made, result, _ = counted(config, FedAvg(weighted_by_key="rows", fraction_evaluate=0.0))
    steps, weight = result.arrays.to_numpy_ndarrays()
    assert (steps.dtype, weight.dtype) == (np.int64, np.float32)
    assert weight == pytest.approx(3 * sum(i * offer.client.weight for i, offer in enumerate(made.agreement.offers)))
    assert [one.delivered for one in made.settled] == [3, 3, 3, 3]


@pytest.mark.usefixtures("known_loss")
@pytest.mark.parametrize("given", [{}, {"timeout": 7.0}])
def test_reports_are_waited_for_as_long_as_the_offers_say(config, monkeypatch, given):
    waited = set()

    def send_and_receive(self, messages, *, timeout=None):
        waited.add(timeout)
        return self.pull_messages(self.push_messages(messages))

    monkeypatch.setattr(InProcessGrid, "send_and_receive", send_and_receive)
    made, _, _ = counted(config, FedAvg(fraction_evaluate=0.0), **given)
    assert waited == {offer.job.round_seconds for offer in made.agreement.offers} == {given.get("timeout", 600.0)}


@pytest.mark.usefixtures("known_loss")
def test_a_strategy_that_leaves_clients_out_of_rounds_is_refused(config):
    with pytest.raises(InputError, match=r"fraction_train is 0\.5; a contract asks everybody in every round"):
        counted(config, FedAvg(fraction_train=0.5))


def test_training_without_a_contract_is_refused_and_an_unpaid_message_is_trained_as_ever(config):
    """The mod lets a message pass that says nothing of an offer, and none that says of an offer she never signed."""
    grid = try_it.grid_of(client_app.app, try_it.node_configs(config), config)
    content = {"arrays": ArrayRecord(task.Softmax().get_weights()), "config": ConfigRecord({"server-round": 1})}
    plainly = Message(RecordDict(content), dst_node_id=ADA, message_type="train")
    unsigned = Message(
        RecordDict(content | {"truthfl": ConfigRecord({"offer": "0" * 64, "round": 0})}),
        dst_node_id=ADA,
        message_type="train",
    )
    first, second = grid.send_and_receive([plainly, unsigned])
    assert first.has_content()
    assert set(first.content) == {"arrays", "metrics"}
    assert "not accepted here" in second.error.reason
