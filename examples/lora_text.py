r"""A language model that clients in four regions adapt to their texts, while only adapters travel.

The adapters are those of LoRA (Hu and others: Low-Rank Adaptation of Large Language Models, 2021): beside each matrix
of a model that everybody has and nobody changes there is a product of two thin ones, and only these are trained. What a
server and its clients send each other is the parameters of the module that TorchTask is given; so the frozen model is
kept out of it, and the rest is as with any other model.

    python lora_text.py

reads Python's own language reference for a while, which gives the model; then 16 clients, each with docstrings of
other modules of the standard library, adapt it twice: with adapters, and, to compare, with the whole model travelling.
Nothing is downloaded. With commands, once there is a model:

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
RATES = {"adapters": 0.003, "whole": 0.0005}  # each the best of three or four that were tried


class Block(nn.Module):
    """One layer of a transformer: attention to what came before, then a small network, both beside the direct way."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_network = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries_keys_values, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Of the shape (examples, places, WIDTH), as what comes in."""
        n, length, _ = x.shape
        parts = self.queries_keys_values(self.before_attention(x)).view(n, length, 3, HEADS, WIDTH // HEADS)
        seen = scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.merge(seen.transpose(1, 2).reshape(n, length, WIDTH))
        return x + self.narrow(nn.functional.gelu(self.widen(self.before_network(x))))


class Transformer(nn.Module):
    """What is the next letter? Scores for each letter and place, in the order that cross_entropy expects."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last, self.scores = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS))

    def forward(self, text: Tensor) -> Tensor:
        """Of the shape (examples, letters, places)."""
        x = self.letters(text) + self.places.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.scores(self.last(x)).transpose(1, 2)


class Adapter(nn.Module):
    """A frozen matrix, and beside it B·A of a low rank. B starts at zero, so that nothing changes at first."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = (frozen,)  # in a tuple, which PyTorch does not look into: it is no part of this module
        self.a = nn.Parameter(torch.randn(rank, frozen.in_features) / math.sqrt(frozen.in_features))
        self.b = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """What the frozen matrix says, and a correction."""
        return self.frozen[0](x) + x @ self.a.T @ self.b.T


class Adapted(nn.Module):
    """A frozen transformer with adapters at all matrices of its layers. Its parameters are the adapters alone."""

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
        """As the transformer."""
        return self.base[0](text)


def adapters(clients: int, seed: int, training: Training, base: str, rank: int = 4) -> spyker.TorchTask:
    """The task of which only adapters travel."""
    torch.manual_seed(seed)
    return docstring_task(Adapted(read_base(base), rank), clients, seed, training)


def whole(clients: int, seed: int, training: Training, base: str) -> spyker.TorchTask:
    """The same with the whole model, to compare."""
    return docstring_task(read_base(base), clients, seed, training)


def docstring_task(model: nn.Module, clients: int, seed: int, training: Training) -> spyker.TorchTask:
    """Each client has the docstrings of some files; a model is judged by those of files that no client has."""
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
    """The docstrings of one file of the standard library after the other, in an order that follows from the seed."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    random.Random(seed).shuffle(files)
    for file in files:
        nodes = ast.walk(ast.parse(file.read_bytes()))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        yield "\n\n".join(ast.get_docstring(node) or "" for node in nodes if isinstance(node, documented))


def take(texts: Iterator[str], count: int) -> tuple[Tensor, Tensor]:
    """So many examples from as many of the next texts as that needs."""
    text = ""
    while len(text) <= count * CONTEXT:
        text += next(texts)
    return examples(text, count)


def examples(text: str, count: int) -> tuple[Tensor, Tensor]:
    """The first pieces of a text, and for each of their letters the one that follows."""
    numbers = torch.tensor([max(0, LETTERS.find(letter)) for letter in text[: count * CONTEXT + 1]])
    usable = (len(numbers) - 1) // CONTEXT * CONTEXT
    return numbers[:usable].view(-1, CONTEXT), numbers[1 : usable + 1].view(-1, CONTEXT)


def read_base(path: str) -> Transformer:
    """The model that everybody has."""
    base = Transformer()
    base.load_state_dict(load_file(path))
    return base


def pretrain(path: Path, steps: int) -> None:
    """Make the model that everybody has, from the language reference that comes with Python."""
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
    """Make the model, adapt it in two ways, and say what that cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000, help="how long to train the model that everybody has")
    parser.add_argument("--duration", type=float, default=5, help="virtual seconds of either run")
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
