r"""A language model that clients in four regions adapt to their texts, while only adapters travel.

The adapters are those of LoRA (Hu and others: Low-Rank Adaptation of Large Language Models, 2021): to each matrix of a
frozen model, which all clients have, a product of two thin matrices is added, and only these are trained. Servers and
clients exchange the parameters of the module that is passed to TorchTask. The frozen model is therefore not part of
this module.

    python lora_text.py

first trains the model on Python's own language reference. Then 16 clients, each with docstrings of different modules of
the standard library, adapt it twice: with adapters and, for comparison, with all parameters. Nothing is downloaded.
The same with a command, once the model exists:

    spyker run --task lora_text:adapters --set task.base=runs/lora/base.safetensors --clients 16 \
        --set training.optimiser=adam --set training.rate=0.003 --set training.batch-size=16 --set stride.gain=1.0
"""

import argparse
import ast
import math
import random
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import spyker
from spyker import Training

LETTERS = "".join(map(chr, range(32, 127))) + "\n"
CONTEXT, WIDTH, HEADS, LAYERS = 64, 64, 4, 2
CLIENT_EXAMPLES, TEST_EXAMPLES = 32, 128
SETTINGS = {"training.optimiser": "adam", "training.batch-size": 16, "stride.gain": 1.0}
RATES = {"adapters": 0.003, "whole": 0.0005}  # the best of three or four values each


class Block(nn.Module):
    """One layer of a transformer: causal attention, then a small network, both with residual connections."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_network = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries_keys_values, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Transform a tensor of the shape (examples, positions, WIDTH)."""
        n, length, _ = x.shape
        parts = self.queries_keys_values(self.before_attention(x)).view(n, length, 3, HEADS, WIDTH // HEADS)
        seen = scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.merge(seen.transpose(1, 2).reshape(n, length, WIDTH))
        return x + self.narrow(nn.functional.gelu(self.widen(self.before_network(x))))


class Transformer(nn.Module):
    """A character-level language model. Its logits have the shape that cross_entropy expects."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last, self.scores = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS))

    def forward(self, text: Tensor) -> Tensor:
        """Return logits of the shape (examples, letters, positions)."""
        x = self.letters(text) + self.places.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.scores(self.last(x)).transpose(1, 2)


class Adapter(nn.Module):
    """A frozen matrix plus B·A of low rank. B starts at zero, so the output is unchanged at first."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = (frozen,)  # in a tuple, so that PyTorch does not register it as part of this module
        self.a = nn.Parameter(torch.randn(rank, frozen.in_features) / math.sqrt(frozen.in_features))
        self.b = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the frozen matrix plus the adapter's."""
        return self.frozen[0](x) + x @ self.a.T @ self.b.T


class Adapted(nn.Module):
    """A frozen transformer with an adapter for each matrix of its layers. Only the adapters are parameters."""

    def __init__(self, base: Transformer, rank: int) -> None:
        super().__init__()
        base.requires_grad_(False)
        self.adapters = nn.ModuleList()
        for block in base.blocks:
            for name in ("queries_keys_values", "merge", "widen", "narrow"):
                self.adapters.append(Adapter(getattr(block, name), rank))
                setattr(block, name, self.adapters[-1])
        self.base = (base,)

    def forward(self, text: Tensor) -> Tensor:
        """Return the transformer's logits."""
        return self.base[0](text)


def adapters(clients: int, seed: int, training: Training, base: str, rank: int = 4) -> spyker.TorchTask:
    """The task with adapters: clients send only these."""
    torch.manual_seed(seed)
    return docstring_task(Adapted(read_base(base), rank), clients, seed, training)


def whole(clients: int, seed: int, training: Training, base: str) -> spyker.TorchTask:
    """The task with all parameters, for comparison."""
    return docstring_task(read_base(base), clients, seed, training)


def docstring_task(model: nn.Module, clients: int, seed: int, training: Training) -> spyker.TorchTask:
    """Each client has the docstrings of some files; files that no client has are the test data."""
    texts = docstrings(seed)
    test, *datasets = [take(texts, count) for count in (TEST_EXAMPLES, *[CLIENT_EXAMPLES] * clients)]
    return spyker.TorchTask(
        model,
        datasets,
        test,
        training,
        seed=seed,
        score=lambda outputs, targets: cross_entropy(outputs, targets, reduction="none").mean(1),
        finish=math.exp,
        metric=spyker.Metric("perplexity", higher_is_better=False),
    )


def docstrings(seed: int) -> Iterator[str]:
    """Yield the docstrings of the files of the standard library, in an order determined by the seed."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    random.Random(seed).shuffle(files)
    for file in files:
        nodes = ast.walk(ast.parse(file.read_bytes()))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        yield "\n\n".join(ast.get_docstring(node) or "" for node in nodes if isinstance(node, documented))


def take(texts: Iterator[str], count: int) -> tuple[Tensor, Tensor]:
    """Return ``count`` examples from as many of the next texts as needed."""
    text = ""
    while len(text) <= count * CONTEXT:
        text += next(texts)
    return examples(text, count)


def examples(text: str, count: int) -> tuple[Tensor, Tensor]:
    """Return the first pieces of a text and, for each letter, the following one."""
    numbers = torch.tensor([max(0, LETTERS.find(letter)) for letter in text[: count * CONTEXT + 1]])
    usable = (len(numbers) - 1) // CONTEXT * CONTEXT
    return numbers[:usable].view(-1, CONTEXT), numbers[1 : usable + 1].view(-1, CONTEXT)


def read_base(path: str) -> Transformer:
    """Load the frozen model."""
    base = Transformer()
    base.load_state_dict(load_file(path))
    return base


def pretrain(path: Path, steps: int) -> None:
    """Train the model on the language reference that comes with Python, and save it."""
    torch.manual_seed(0)
    model = Transformer()
    text = "\n\n".join(topics[name] for name in sorted(topics))
    inputs, targets = examples(text, len(text) // CONTEXT)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.003)
    for step in range(steps):
        batch = torch.randint(len(inputs), (16,))
        optimiser.param_groups[0]["lr"] = 0.003 * (1 - step / steps)
        optimiser.zero_grad()
        loss = cross_entropy(model(inputs[batch]), targets[batch])
        loss.backward()
        optimiser.step()
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), path)
    print(f"{path}: perplexity {math.exp(loss.item()):.1f} on the language reference after {steps} steps", flush=True)


def main() -> None:
    """Train the model, adapt it in both ways, and print results and bytes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000, help="training steps of the frozen model")
    parser.add_argument("--duration", type=float, default=5, help="virtual seconds of each run")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--workers", type=int, help="training processes; default: one per core")
    parser.add_argument("--out", type=Path, default=Path("runs/lora"))
    args = parser.parse_args()
    began = time.monotonic()
    base = args.out / "base.safetensors"
    pretrain(base, args.steps)
    for task in (adapters, whole):
        run = spyker.run(
            task=task,
            clients=args.clients,
            duration=args.duration,
            settings={"task.base": str(base), "training.rate": RATES[task.__name__], **SETTINGS},
            out=args.out / task.__name__,
            overwrite=True,
            workers=args.workers,
            progress=False,
        )
        assert run.summary is not None
        scores = [fact.mean for _, fact, _ in run.facts("evaluation")]
        sent, updates = run.summary["bytes"]["total"] / 1e6, run.summary["updates"]
        numbers = sum(part.numel() for part in run.state_dict().values())
        print(
            f"{task.__name__}: perplexity {scores[0]:.2f} → {scores[-1]:.2f} after {updates} updates; "
            f"{numbers:,} parameters travel, {sent:.1f} MB in all",
            flush=True,
        )
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
