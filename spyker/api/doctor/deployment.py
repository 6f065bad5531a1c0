"""The configuration of a deployed server, and what it names. It needs the extra ``[deploy]``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from spyker.api.doctor.certificate_checks import server_certificate
from spyker.api.doctor.finding import Finding, fine, wrong
from spyker.api.doctor.machine import writable
from spyker.api.doctor.network import listening, reachable
from spyker.errors import UsageError
from spyker.net.certificates import load_credentials
from spyker.net.server_config import load_config


def configuration(path: Path) -> Iterator[Finding]:
    """What ``spyker serve`` would find."""
    try:
        config = load_config(path)
    except UsageError as error:
        yield wrong("configuration", str(error), f"Mend {path}")
        return
    deploy, scenario = config.deploy, config.scenario
    me = f"server {deploy.server}"
    yield fine("configuration", f"{path}: {me}, {scenario.chosen.title} on {scenario.task.name}")
    ca, certificate, key = (config.path(name) for name in (deploy.ca, deploy.certificate, deploy.key))
    yield from server_certificate(deploy.server, ca, certificate, key, "spyker certs DIR --renew")
    try:
        known = load_credentials(config.path(deploy.credentials))
        yield fine("clients", f"{len(known):,} in {config.path(deploy.credentials)}")
    except UsageError as error:
        yield wrong("clients", str(error), "Copy the clients.json that spyker certs made")
    for what, name in (("state", deploy.state), ("record", deploy.record)):
        yield writable(what, config.path(name), f"Let this user write there, or change deploy.{what}")
    yield listening("deploy.listen-clients", deploy.listen_clients)
    if len(deploy.peers) > 1:
        yield listening("deploy.listen-peers", deploy.listen_peers)
    if deploy.metrics is not None:
        yield listening("deploy.metrics", deploy.metrics)
    for i, address in enumerate(deploy.peers):
        if i != deploy.server:
            yield reachable(f"server {i}", address)
