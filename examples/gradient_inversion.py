"""Gradient inversion: a server reconstructs the image that a client trained with from its update.

    python gradient_inversion.py --out gradient-inversion.png

Each of 25 clients trains one step with one handwritten digit and sends its update. An honest-but-curious server, which
runs FedAvg and records updates, attacks the update of one client, the sum of all updates, as with secure aggregation,
and an update with differential privacy of single examples. It knows the model and, for the sum, all labels.

Two attacks, both on plain update vectors:

- ``read_first_layer``: in a fully connected first layer the gradient of a neuron's weights is the input, times the
  gradient of its bias (Phong et al.: Privacy-Preserving Deep Learning via Additively Homomorphic Encryption, 2018).
- ``search_images``: search images whose gradient has the direction of the update (Zhu et al.: Deep Leakage from
  Gradients, 2019; Geiping et al.: Inverting Gradients, 2020). It works for convolutions.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

import spyker
from spyker.algorithm import ClientMessage, FedAvg, PeerMessage, RoundEnded, Update, Vector

SIDE, LABELS = 8, 10
CLIENTS = 25
PRIVATE = {
    "privacy.unit": "example",
    "privacy.epsilon": 8.0,
    "privacy.delta": 1e-5,
    "privacy.trainings": 10,
}


def fully_connected() -> nn.Module:
    """Return a network with a fully connected first layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE**2, 64), nn.ReLU(), nn.Linear(64, LABELS))


def convolutional() -> nn.Module:
    """Return a small CNN."""
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 12, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(12 * 16, LABELS),
    )


MODELS = {"fully connected": fully_connected, "convolutional": convolutional}


def images() -> tuple[Tensor, Tensor]:
    """Return all digits and their labels in random order."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(5))
    pixels = torch.from_numpy(digits.images / 16).float().unsqueeze(1)
    return pixels[order], torch.from_numpy(digits.target).long()[order]


class OneImage(spyker.FederatedTask):
    """A task in which each client has one image."""

    def __init__(self, network: str) -> None:
        self.network = network

    def model(self) -> nn.Module:
        """Return a new network, always the same."""
        torch.manual_seed(1)
        return MODELS[self.network]()

    def data(self, client: spyker.ClientInfo) -> tuple[Tensor, Tensor]:
        """Return the client's image."""
        pixels, labels = images()
        return pixels[client.number, None], labels[client.number, None]

    def test(self) -> tuple[Tensor, Tensor]:
        """Return images that no client has."""
        pixels, labels = images()
        return pixels[CLIENTS : CLIENTS + 100], labels[CLIENTS : CLIENTS + 100]


class CuriousServer(FedAvg):
    """FedAvg that records the clients' updates: trained minus received weights."""

    seen: ClassVar[dict[int, Vector]] = {}

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Record an update, and process it."""
        if isinstance(message, Update):
            self.seen[sender] = message.weights - self.weights.snapshot()
        super().receive(sender, message)


def updates(network: str, settings: Mapping[str, object] | None = None) -> list[Vector]:
    """Run one round in the emulator and return the updates that the server sees."""
    CuriousServer.seen.clear()
    with tempfile.TemporaryDirectory() as folder:
        spyker.run(
            algorithm=CuriousServer,
            task=OneImage,
            clients=CLIENTS,
            duration=10,
            settings={"task.network": network, "training.batch-size": 1, "training.rate": 0.1, **(settings or {})},
            out=f"{folder}/run",
            workers=0,
            progress=False,
            callbacks=[lambda _, fact: isinstance(fact, RoundEnded)],
        )
    return [CuriousServer.seen[client] for client in range(CLIENTS)]


def pieces(network: str) -> tuple[nn.Module, dict[str, slice]]:
    """Return the model that the clients received, and the positions of its tensors in an update vector."""
    model, found, start = OneImage(network).model(), {}, 0
    for name, parameter in model.named_parameters():
        found[name] = slice(start, start := start + parameter.numel())
    return model, found


def flat(gradients: Mapping[str, Tensor]) -> Tensor:
    """Return gradients as one vector, in the layout of Spyker's updates: convolutions are stored channels-last."""
    return torch.cat([(g.permute(0, 2, 3, 1) if g.ndim == 4 else g).flatten() for g in gradients.values()])


def read_first_layer(update: Vector) -> Tensor:
    """Return the image that each neuron of a fully connected first layer reveals."""
    _, where = pieces("fully connected")
    weights = torch.from_numpy(update[where["1.weight"]]).view(-1, 1, SIDE, SIDE)
    bias = torch.from_numpy(update[where["1.bias"]]).view(-1, 1, 1, 1)
    return (weights / bias)[bias.flatten().abs() > 1e-8]


def guess_label(update: Vector, network: str) -> Tensor:
    """Return the label of a single image: a step raises the bias of its output alone."""
    _, where = pieces(network)
    last = list(where.values())[-1]
    return torch.tensor([int(update[last].argmax())])


def search_images(update: Vector, network: str, labels: Tensor, iterations: int, seed: int = 0) -> Tensor:
    """Return images with these labels whose mean gradient has the direction opposite to the update's."""
    model, _ = pieces(network)
    parameters = dict(model.named_parameters())
    target = -torch.from_numpy(update)
    generator = torch.Generator().manual_seed(seed)
    guess = torch.rand(len(labels), 1, SIDE, SIDE, generator=generator).requires_grad_()
    optimiser = torch.optim.Adam([guess], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, iterations)
    for _ in range(iterations):
        loss = functional.cross_entropy(model(guess), labels)
        gradients = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
        found = flat(dict(zip(parameters, gradients, strict=True)))
        distance = 1 - functional.cosine_similarity(found, target, dim=0)
        (guess.grad,) = torch.autograd.grad(distance, [guess])
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            guess.clamp_(0, 1)
    return guess.detach()


def closest(found: Tensor, original: Tensor) -> Tensor:
    """Return the image with the highest correlation with the original. The attacker does not know which that is."""
    return found[likeness(found, original).argmax()]


def likeness(found: Tensor, original: Tensor) -> Tensor:
    """Return the correlations of images with one image."""
    a, b = (x.flatten(1) - x.flatten(1).mean(1, keepdim=True) for x in (found, original[None]))
    return functional.cosine_similarity(a, b)


def recognised(found: Tensor, number: int) -> bool:
    """Return whether the reconstruction is more similar to the client's digit than to all others."""
    pixels, _ = images()
    return int(likeness(pixels, found).argmax()) == number


def attack(network: str, iterations: int) -> dict[str, Tensor]:
    """Return the image of client 0 and its reconstructions from one update, the sum, and a private update."""
    pixels, labels = images()
    clear, private = updates(network), updates(network, PRIVATE)
    together: Vector = np.sum(clear, axis=0, dtype=np.float32)
    seen = {"one update": (clear[0], 1), f"sum of {CLIENTS}": (together, CLIENTS), "update, ε = 8": (private[0], 1)}
    result = {"original": pixels[0]}
    for name, (update, count) in seen.items():
        if network == "fully connected":
            found = read_first_layer(update)
        else:
            known = labels[:CLIENTS] if count > 1 else guess_label(update, network)
            found = search_images(update, network, known, iterations)
        result[name] = closest(found, pixels[0])
    return result


def draw(found: Mapping[str, Mapping[str, Tensor]], path: str) -> None:
    """Draw one row per model."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes: Any = figure.subplots(len(found), 4)
    for number, (network, columns) in enumerate(found.items()):
        for axis, (name, image) in zip(axes[number], columns.items(), strict=True):
            axis.imshow(image[0].numpy(), cmap="gray_r", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[], title="" if number else name)
        axes[number][0].set_ylabel(network)
    figure.savefig(path, dpi=80)


def main() -> None:
    """Attack, print which digits were recognised, and draw."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="gradient-inversion.png", help="file of the figure")
    parser.add_argument("--iterations", type=int, default=400, help="steps of the image search")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = {network: attack(network, args.iterations) for network in MODELS}
    print("| model | seen by the server | correlation with the original | recognised |\n|---|---|---:|---|")
    for network, columns in found.items():
        original = columns["original"]
        for name, image in list(columns.items())[1:]:
            score = float(likeness(image[None], original)[0])
            print(f"| {network} | {name} | {score:.3f} | {'yes' if recognised(image, 0) else 'no'} |")
    draw(found, args.out)


if __name__ == "__main__":
    main()
