"""The ServerApp: FedAvg with an evaluation after each round."""

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_pytorch.task import Net, load_test_data, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds."""
    config = context.run_config
    result = FedAvg(fraction_evaluate=0.5).start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        train_config=ConfigRecord({"lr": config["learning-rate"]}),
        num_rounds=config["num-server-rounds"],
        evaluate_fn=judge,
    )
    print(result.evaluate_metrics_serverapp)


def judge(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate a model on images that no client has."""
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test(net, load_test_data())
    return MetricRecord({"loss": loss, "accuracy": accuracy})
