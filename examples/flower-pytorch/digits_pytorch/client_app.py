"""The ClientApp, with Flower's message API."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_pytorch.task import Net, load_data, test, train

app = ClientApp()


def received(message: Message, context: Context) -> tuple:
    """Return the received model and this client's data."""
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    here, run = context.node_config, context.run_config
    return net, *load_data(here["partition-id"], here["num-partitions"], run["batch-size"])


@app.train()
def fit(message: Message, context: Context) -> Message:
    """Train the model."""
    net, loader, _ = received(message, context)
    loss = train(net, loader, context.run_config["local-epochs"], message.content["config"]["lr"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(loader.dataset)})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the model on the client's test images."""
    net, _, loader = received(message, context)
    loss, accuracy = test(net, loader)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(loader.dataset)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)
