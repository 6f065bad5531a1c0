"""The ClientApp, with Flower's NumPyClient."""

from flwr.app import Context
from flwr.client import Client, NumPyClient
from flwr.clientapp import ClientApp
from sklearn.metrics import log_loss

from digits_sklearn.task import CLASSES, create_model, get_parameters, load_data, set_parameters


class DigitsClient(NumPyClient):
    """A client with its own part of the data."""

    def __init__(self, partition_id: int, num_partitions: int, epochs: int) -> None:
        self.data, self.epochs = load_data(partition_id, num_partitions), epochs

    def fit(self, parameters: list, config: dict) -> tuple[list, int, dict]:
        """Train the model."""
        inputs, labels, _, _ = self.data
        model = create_model(config["lr"])
        set_parameters(model, parameters)
        for _ in range(self.epochs):
            model.partial_fit(inputs, labels)
        return get_parameters(model), len(labels), {"train_accuracy": model.score(inputs, labels)}

    def evaluate(self, parameters: list, config: dict) -> tuple[float, int, dict]:
        """Evaluate the model on the client's test images."""
        _, _, inputs, labels = self.data
        model = create_model(lr=1.0)
        set_parameters(model, parameters)
        loss = log_loss(labels, model.predict_proba(inputs), labels=CLASSES)
        return loss, len(labels), {"accuracy": model.score(inputs, labels)}


def client_fn(context: Context) -> Client:
    """Return the client of this node."""
    here = context.node_config
    return DigitsClient(here["partition-id"], here["num-partitions"], context.run_config["local-epochs"]).to_client()


app = ClientApp(client_fn=client_fn)
