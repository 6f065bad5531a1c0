"""Run records: the format of a run's results.

A run record is a folder with ``scenario.toml`` (the resolved scenario), ``facts.jsonl`` (one fact per line, ordered by
time and appended during the run; the first describes the run) and ``summary.json`` (totals, written last). It also
contains the final models (:mod:`~spyker.records.model_files`). The facts of a deployed server are rotated
(:mod:`~spyker.records.segments`). Tables, plots and pages are made from run records only.
"""

from spyker.errors import RecordError
from spyker.protocol.facts import Fact
from spyker.records.files import FACTS, SCENARIO, SUMMARY, check_new, is_record, write_atomically
from spyker.records.lines import RecordedFact, fields, line
from spyker.records.reader import Follower, RunRecord, find_runs, first_fact, follow, read, read_back, records_below
from spyker.records.run_facts import (
    ClientFailed,
    ClientReplaced,
    Evaluated,
    EvaluatedByClients,
    FactsDropped,
    InitialModelLoaded,
    MetricEvaluated,
    RegionScore,
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
    "ClientReplaced",
    "Evaluated",
    "EvaluatedByClients",
    "Fact",
    "FactsDropped",
    "Follower",
    "InitialModelLoaded",
    "MetricEvaluated",
    "RecordError",
    "RecordWriter",
    "RecordedFact",
    "RegionScore",
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
