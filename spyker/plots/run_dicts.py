"""Results of runs as plain dictionaries, unrounded, for programs."""

from __future__ import annotations

from typing import Any

from spyker.plots.curves import curve, targets
from spyker.records import RunRecord
from spyker.records.model_files import model_path


def as_dict(run: RunRecord) -> dict[str, Any]:
    """Return description, results and folder of a run."""
    start, points = run.start, curve(run)
    model = model_path(run.folder)
    return {
        "folder": run.folder,
        "algorithm": start.algorithm,
        "task": start.task,
        "seed": start.seed,
        "clients": start.clients,
        "servers": len(start.servers),
        "world": start.world,
        "finished": points.finished,
        "model": model if model.exists() else None,
        "metric": points.metric,
        "higher_is_better": points.higher_is_better,
        "time": points.time[-1],
        "updates": points.updates[-1],
        "bytes": points.bytes[-1],
        "final": points.mean[-1],
        "worst_server": points.worst[-1],
        "best_server": points.best[-1],
        "averaged": points.averaged[-1],
        "reached": [
            {"target": target, "time": hit and hit[0], "updates": hit and hit[1]}
            for target in targets([run])
            for hit in [points.reached(target)]
        ],
        "evaluation_by_clients": (run.summary or {}).get("evaluation_by_clients"),
        "warnings": (run.summary or {}).get("warnings", []),
        "failed_clients": (run.summary or {}).get("failed_clients", []),
    }
