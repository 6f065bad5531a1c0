"""The ServerApp: FedAvg from an untrained model."""

from flwr.app import Context
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp

from digits_sklearn.task import create_model, get_parameters


def mean_accuracy(results: list[tuple[int, dict]]) -> dict:
    """Return the clients' mean accuracy, weighted by their numbers of images."""
    count = sum(examples for examples, _ in results)
    return {"accuracy": sum(examples * metrics["accuracy"] for examples, metrics in results) / count}


def server_fn(context: Context) -> ServerAppComponents:
    """Return strategy and configuration of the server."""
    config = context.run_config
    strategy = FedAvg(
        initial_parameters=ndarrays_to_parameters(get_parameters(create_model(lr=1.0))),
        on_fit_config_fn=lambda server_round: {"lr": config["learning-rate"]},
        evaluate_metrics_aggregation_fn=mean_accuracy,
    )
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=config["num-server-rounds"]))


app = ServerApp(server_fn=server_fn)
