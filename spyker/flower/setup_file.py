"""The results of a ServerApp in a file, so that the clients of a federation need not run it.

The file is Flower's own serialisation of a ``RecordDict``; it contains arrays and plain values, and no code.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import ConfigRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictBytes
from google.protobuf.message import DecodeError

from spyker.errors import UsageError
from spyker.flower.arrays import NDArray
from spyker.flower.client_calls import as_record
from spyker.flower.server_app import ServerAppSetup
from spyker.records.files import replacing
from spyker.untrusted_files import read_bytes

ARRAYS, TRAIN, EVALUATE, NAMES = "arrays", "train", "evaluate", "names"
WHERE = "task.setup"


def write_setup(path: Path, setup: ServerAppSetup, arrays: dict[str, NDArray]) -> None:
    """Write the initial arrays and configurations of a ServerApp.

    Args:
        path: the file.
        setup: the results of the ServerApp. Its evaluation function is code, and is left out.
        arrays: the initial model, including arrays that servers do not average.

    """
    content = RecordDict(
        {
            ARRAYS: as_record(arrays),
            TRAIN: ConfigRecord(dict(setup.train or {})),
            EVALUATE: ConfigRecord(dict(setup.evaluate or {})),
            NAMES: ConfigRecord({"arrays": setup.names[0], "config": setup.names[1]}),
        }
    )
    with replacing(path) as temporary:
        temporary.write_bytes(recorddict_to_proto(content).SerializeToString(deterministic=True))


def read_setup(path: Path) -> ServerAppSetup:
    """Read what :func:`write_setup` wrote; raise a ``UsageError`` if the file is missing or damaged."""
    remedy = "Name the file that spyker federation create wrote"
    try:
        content = recorddict_from_proto(RecordDictBytes.FromString(read_bytes(path)))
        arrays = {name: array.numpy() for name, array in content.array_records[ARRAYS].items()}
        train, evaluate, names = (dict(content.config_records[name]) for name in (TRAIN, EVALUATE, NAMES))
        return ServerAppSetup(arrays, train, evaluate, (str(names["arrays"]), str(names["config"])))
    except OSError as error:
        raise UsageError(WHERE, f"{path} cannot be read ({error.strerror})", remedy) from None
    except (DecodeError, KeyError, ValueError, TypeError) as error:
        raise UsageError(WHERE, f"{path} is not such a file ({type(error).__name__})", remedy) from None
