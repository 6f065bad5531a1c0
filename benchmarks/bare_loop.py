"""Local training in plain PyTorch on one thread, without any framework."""

from __future__ import annotations

import json
import sys
import time

import torch
from torch import nn

from benchmarks.rates import CLIENTS
from spyker.config.scenario import load
from spyker.engines.process_settings import keep_memory
from spyker.tasks.built_in.models import mnist_cnn
from spyker.tasks.registry import resolve, task_spec
from spyker.tasks.torch_task import TorchTask


def main() -> None:
    overrides, updates, warm_up = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    keep_memory()  # as the engine does; without it two concurrent loops lose a sixth to page faults
    scenario = resolve(load(None, overrides, clients=CLIENTS))
    task = task_spec(scenario).make()
    assert isinstance(task, TorchTask)
    datasets = [task.clients[k].read() for k in range(CLIENTS)]
    initial = {name: value.clone() for name, value in mnist_cnn().state_dict().items()}
    model = mnist_cnn().to(memory_format=torch.channels_last)
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    for i in range(updates):
        if i == warm_up:
            began = time.perf_counter()
        inputs, targets = datasets[i % CLIENTS]
        model.load_state_dict(initial)
        optimiser = torch.optim.SGD(model.parameters(), lr=scenario.training.rate)
        for _ in range(scenario.training.epochs):
            for batch in torch.randperm(len(targets)).split(scenario.training.batch_size):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(inputs[batch]), targets[batch]).backward()
                optimiser.step()
    print((updates - warm_up) / (time.perf_counter() - began))


if __name__ == "__main__":
    main()
