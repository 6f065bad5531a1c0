"""The one format in which a run is written down and read back.

A run record is a folder: ``scenario.toml`` (everything resolved), ``facts.jsonl`` (one fact a line, in the order of
time, appended as the run goes on; the first says what run it is) and ``summary.json`` (totals, written last). Beside
them are the models that the run led to (:mod:`~spyker.records.model_files`); the facts of a deployed server go on in
further files, of which the oldest go (:mod:`~spyker.records.segments`). Whoever wants a table, a plot or a page reads
these; nobody looks into a running world.
"""

from spyker.errors import RecordError
from spyker.protocol.facts import Fact
from spyker.records.files import FACTS, SCENARIO, SUMMARY, check_new, is_record, write_atomically
from spyker.records.lines import RecordedFact, fields, line
from spyker.records.reader import Follower, RunRecord, find_runs, first_fact, follow, read, read_back, records_below
from spyker.records.run_facts import (
    ClientFailed,
    Evaluated,
    FactsDropped,
    InitialModelLoaded,
    MetricEvaluated,
    RunStarted,
    ServerPlace,
    ServerResumed,
    UnknownFact,
    evaluated,
    measured,
    run_started,
)
from spyker.records.writer import RecordWriter

__all__ = [
    "FACTS",
    "SCENARIO",
    "SUMMARY",
    "ClientFailed",
    "Evaluated",
    "Fact",
    "FactsDropped",
    "Follower",
    "InitialModelLoaded",
    "MetricEvaluated",
    "RecordError",
    "RecordWriter",
    "RecordedFact",
    "RunRecord",
    "RunStarted",
    "ServerPlace",
    "ServerResumed",
    "UnknownFact",
    "check_new",
    "evaluated",
    "fields",
    "find_runs",
    "first_fact",
    "follow",
    "is_record",
    "line",
    "measured",
    "read",
    "read_back",
    "records_below",
    "run_started",
    "write_atomically",
]
