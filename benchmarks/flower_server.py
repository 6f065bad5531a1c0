"""Flower's side of the comparison of servers; runs in its own environment, with Flower and without Spyker.

``server FOLDER PORT CLIENTS PARAMETERS ROUNDS`` is Flower's gRPC server with FedAvg over all clients and no evaluation,
and prints the client updates per second of the rounds after the first. ``clients FOLDER PORT CLIENTS`` is so many
clients that answer with what they received. Flower calls both functions deprecated and offers SuperLink and SuperNodes
instead, which are not measured here. FOLDER has the server's certificate.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.client import NumPyClient, start_client
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerConfig, start_server
from flwr.server.strategy import FedAvg

LARGEST = 2**31 - 1


class Echo(NumPyClient):
    def fit(self, parameters: Any, config: Any) -> Any:
        return parameters, 1, {}


def serve(folder: Path, port: int, clients: int, parameters: int, rounds: int) -> None:
    marks: list[float] = []
    strategy = FedAvg(
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=clients,
        min_available_clients=clients,
        initial_parameters=ndarrays_to_parameters([np.zeros(parameters, np.float32)]),
        evaluate_fn=lambda number, arrays, config: marks.append(time.perf_counter()),
    )
    files = [(folder / name).read_bytes() for name in ("ca.pem", "cert.pem", "key.pem")]
    start_server(
        server_address=f"127.0.0.1:{port}",
        config=ServerConfig(num_rounds=rounds),
        strategy=strategy,
        grpc_max_message_length=LARGEST,
        certificates=(files[0], files[1], files[2]),
    )
    # marks: before the first round, after it, and after each of the others
    print("updates per second:", clients * (rounds - 1) / (marks[-1] - marks[1]), flush=True)


def attend(folder: Path, port: int, clients: int) -> None:
    def client() -> None:
        start_client(
            server_address=f"localhost:{port}",
            client=Echo().to_client(),
            root_certificates=(folder / "ca.pem").read_bytes(),
            grpc_max_message_length=LARGEST,
        )

    threads = [threading.Thread(target=client, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    match sys.argv[1:]:
        case "server", folder, *numbers:
            serve(Path(folder), *map(int, numbers))
        case "clients", folder, *numbers:
            attend(Path(folder), *map(int, numbers))
