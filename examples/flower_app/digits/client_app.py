"""The client: trains on digits of her own with the batch size in the run config."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits.task import Softmax, load_data, test, train
from truthfl.flower import assigned_batch, paid


def data_of(context: Context):
    return load_data(context.node_config["partition-id"], context.node_config["num-partitions"])


app = paid(ClientApp(mods=[assigned_batch]), samples=lambda context: len(data_of(context)[0][1]))


@app.train()
def train_on_own_digits(msg: Message, context: Context) -> Message:
    model, (data, _) = Softmax(), data_of(context)
    model.set_weights(msg.content["arrays"].to_numpy_ndarrays())
    loss = train(
        model,
        data,
        learning_rate=context.run_config["learning-rate"],
        batch_size=context.run_config["batch-size"],
        local_steps=context.run_config["local-steps"],
        seed=(context.node_config["partition-id"], msg.content["config"]["server-round"]),
    )
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(data[1])})
    return Message(RecordDict({"arrays": ArrayRecord(model.get_weights()), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate_on_own_digits(msg: Message, context: Context) -> Message:
    model, (_, data) = Softmax(), data_of(context)
    model.set_weights(msg.content["arrays"].to_numpy_ndarrays())
    loss, accuracy = test(model, data)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(data[1])})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
