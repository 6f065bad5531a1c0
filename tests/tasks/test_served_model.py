"""A served model is one file that tells a server all it needs."""

import json

import numpy as np
import pytest

from spyker.errors import UsageError
from spyker.tasks.layout import Layout
from spyker.tasks.served_model import ModelSpec, ServedModel, read_served_model, write_served_model
from spyker.tasks.task import Metric

LAYOUT = Layout(("body.weight", "body.bias", "norm.mean"), ((2, 3), (2,), (2,)))
MODEL = ServedModel(
    ModelSpec(
        LAYOUT,
        b"\x01\x02",
        2,
        Metric("perplexity", False, (40.0,)),
        (Metric("accuracy", limits=(0.0, 1.0)),),
        0.25,
        "c0de",
    ),
    np.arange(10, dtype=np.float32),
)


def test_a_served_model_is_read_as_it_was_written(tmp_path):
    write_served_model(tmp_path / "model.safetensors", MODEL)
    read = read_served_model(tmp_path / "model.safetensors")
    assert read.spec == MODEL.spec
    assert np.array_equal(read.weights, MODEL.weights)
    assert len(read.sha256) == 64


def changed(content, change):
    """Return a safetensors file whose header was changed."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def about(header, **fields):
    own = json.loads(header["__metadata__"]["spyker"])
    header["__metadata__"]["spyker"] = json.dumps(own | fields)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:40],
        lambda content: b"\xff" * 8 + content[8:],
        lambda content: changed(content, lambda h: h.pop("__metadata__")),
        lambda content: changed(content, lambda h: about(h, names=["body.weight"])),
        lambda content: changed(content, lambda h: about(h, names=["body.weight", "body.bias", "elsewhere"])),
        lambda content: changed(content, lambda h: about(h, buffers=11)),
        lambda content: changed(content, lambda h: about(h, buffers=-1)),
        lambda content: changed(content, lambda h: about(h, metrics=[])),
        lambda content: changed(content, lambda h: about(h, format=99)),
        lambda content: changed(content, lambda h: about(h, rate=-1.0)),
        lambda content: content[:-4] + np.float32(np.nan).tobytes(),
    ],
)
def test_a_damaged_file_is_refused_with_a_remedy(tmp_path, damage):
    path = tmp_path / "model.safetensors"
    write_served_model(path, MODEL)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UsageError, match="federation create"):
        read_served_model(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_served_model(tmp_path / "model.safetensors")
