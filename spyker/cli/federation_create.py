"""``spyker federation create``: the folders of servers and clients."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spyker.api.datasets import data_from, prepare_data
from spyker.api.read_scenario import read_scenario
from spyker.cli.help import examples
from spyker.cli.numbers import above_zero, count
from spyker.cli.options import ALGORITHM_HELP, TASK_HELP, add_data_dir, add_flower, add_set, task_arguments
from spyker.cli.output import add_json
from spyker.config.algorithms import find_algorithm
from spyker.config.scenario import CLIENTS, SERVERS, Scenario
from spyker.config.sections import read
from spyker.config.world import split_clients
from spyker.errors import UsageError
from spyker.placement import Topology
from spyker.plots.table import print_table
from spyker.tasks.initial_model import InitialModelFile
from spyker.tasks.registry import check_code, code_of, evaluated_by_deployed, task_spec
from spyker.tasks.served_model import ModelSpec, ServedModel
from spyker.tasks.task import Task
from spyker.tasks.task_names import BUILT_IN
from spyker.untrusted_files import read_toml

FOLDER = Path("federation")
WITHIN_MS, BETWEEN_MS = 1.0, 100.0  # one-way latencies of emulations of the federation; a deployment has its own
DEPLOY = "deploy."


def add_create(actions: Any) -> None:
    """``spyker federation create``."""
    parser = actions.add_parser(
        "create",
        help="write a folder for each server and each client",
        description="Write a folder for each server and each client, with all that it needs: scenario, initial model, "
        "addresses, certificate and key. The task is made once, on this machine.",
    )
    parser.add_argument("task", nargs="?", metavar="TASK", help=TASK_HELP)
    add_flower(parser)
    parser.add_argument(
        "--server", action="append", default=[], metavar="NAME=HOST:PORT[/PEERPORT]", dest="servers",
        help="a server and the address at which clients and other servers reach it; PEERPORT is its port for servers, "
        "by default PORT + 100; repeat the option for each server",
    )  # fmt: skip
    parser.add_argument(
        "--helper", action="append", default=[], metavar="NAME=HOST:PORT[/PEERPORT]", dest="helpers",
        help="a server without clients that opens sums of masked updates, near the first server; the second one near "
        "the second server, and so on; sets privacy.masking",
    )  # fmt: skip
    parser.add_argument(
        "--client", action="append", default=[], metavar="NAME", dest="names",
        help="a client: letters, digits and dashes; repeat the option for each client",
    )  # fmt: skip
    parser.add_argument(
        "--clients", type=count, metavar="N", help="total number of clients; a client without a name is called client-K"
    )
    parser.add_argument("--algorithm", metavar="A", help=ALGORITHM_HELP)
    parser.add_argument(
        "--scenario", type=Path, metavar="FILE", help="scenario file; its regions, clients and latencies are replaced"
    )
    parser.add_argument("--initial-model", type=Path, metavar="FILE", help="initial model; a safetensors file")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER", help=f"default: {FOLDER}")
    parser.add_argument(
        "--days", type=above_zero, default=365.0, metavar="D", help="validity of certificates in days; default: 365"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the federation in --out, with all its keys")
    add_data_dir(parser)
    add_set(parser)
    add_json(parser)
    examples(
        parser,
        "spyker federation create my_task:Task --server paris=paris.example.org:7000 "
        "--server tokyo=tokyo.example.org:7000 --client charite --client mayo",
        "spyker federation create digits --server a=127.0.0.1:7000/7001 --clients 4 --set training.epochs=3 "
        "--set deploy.checkpoint-seconds=60",
    )
    parser.set_defaults(command=command_create)


def command_create(args: argparse.Namespace) -> int:
    """Create a federation, and print what to copy and what to run where."""
    from spyker.net.federation_folder import check_addresses, check_names, check_place, create_federation
    from spyker.net.server_config import DeploymentOptions

    learnt = task_arguments(args)
    settings = learnt.pop("settings")
    if args.task is None and args.flower is None and args.scenario is None:
        raise UsageError("TASK", "is missing", "Name a task, such as digits or my_task:Task, or a Flower app: --flower")
    deploy = read(DeploymentOptions, deploy_table(settings), "deploy")
    servers = read_servers(args.servers, topology_of(args, settings))
    regions = [name for name, entry in servers.items() if not entry.cloud]
    if args.helpers:
        settings.setdefault("privacy.masking", True)
        settings["privacy.helpers"] = [i % len(regions) for i in range(len(args.helpers))]
        add_helpers(servers, args.helpers)
    clients = client_names(args.names, args.clients)
    check_names(servers, clients)
    check_addresses(servers)
    check_place(args.out, overwrite=args.overwrite)
    given = InitialModelFile.read(args.initial_model)
    world = world_settings(regions, clients)
    chosen = learnt.get("task") or args.task
    with data_from(args.data_dir):
        scenario = read_scenario(args.scenario, algorithm=args.algorithm, task=chosen, settings=world | settings)
        check_code(scenario)
        if len(servers) < len(scenario.placement().servers):
            problem = "is missing: with privacy.masking another server must open the sums of the only one"
            raise UsageError("--helper", problem, "Give it as NAME=HOST:PORT")
        prepare_data([scenario], progress=not args.quiet)
        scenario, model, task = served_model(scenario, given)
    federation = create_federation(
        args.out,
        scenario,
        model,
        servers,
        clients,
        days=args.days,
        deploy=deploy,
        overwrite=args.overwrite,
        write_setup=getattr(task, "write_setup", None),  # of a Flower app
    )
    print(f"{args.out}: servers: {len(servers)}, clients: {len(clients)}, task: {scenario.task.name}")
    rows = []
    for name, entry in servers.items():
        rows.append([str(federation.server_folder(name)), entry.host, f"spyker serve server-{name}"])
    for name in clients:
        folder = federation.client_folder(name)
        rows.append([str(folder), f"the machine of {name}", join_command(folder, scenario.task.name)])
    print_table(["copy", "to", "run there"], rows, words=3)
    who = "clients" if scenario.evaluation.by == CLIENTS else "servers and clients"
    print(f"Servers need spyker-fl[server], clients spyker-fl[client]; {who} also need the task's code and packages.")
    print("Add --check to a command to find out whether it would work. Start the servers first.")
    print(f"Keep {args.out}/ca.key on this machine, and nowhere else: it signs the certificates.")
    args.answer = {
        "folder": str(args.out),
        "folders": [dict(zip(("copy", "to", "run"), row, strict=True)) for row in rows],
    }
    return 0


def join_command(folder: Path, task: str) -> str:
    """Return the command of a client; a built-in task has its own data."""
    return f"spyker join {folder.name}" + ("" if task in BUILT_IN else " --data PATH")


def deploy_table(settings: dict[str, object]) -> dict[str, object]:
    """Take the keys of ``[deploy]`` out of the settings, and return them."""
    keys = [key for key in settings if key.startswith(DEPLOY)]
    return {key.removeprefix(DEPLOY): settings.pop(key) for key in keys}


def topology_of(args: argparse.Namespace, settings: Mapping[str, object]) -> Topology:
    """Return the servers that the chosen algorithm needs."""
    name = args.algorithm or settings.get("algorithm")
    if name is None and args.scenario is not None:
        try:
            name = read_toml(args.scenario).get("algorithm")
        except (OSError, ValueError):
            name = None  # read_scenario explains it
    return find_algorithm(str(name or Scenario().algorithm)).topology


def read_servers(texts: Sequence[str], topology: Topology) -> dict[str, Any]:
    """Parse the servers, in the order of their numbers; the last one of a hierarchy is the cloud."""
    from spyker.net.federation_folder import parse_server

    servers = {}
    for number, text in enumerate(texts):
        name, entry = parse_server(text)
        if name in servers:
            raise UsageError("--server", f"{name} is given twice", "Choose another name for one of them")
        cloud = topology is Topology.CLOUD and number == len(texts) - 1
        servers[name] = replace(entry, number=number, cloud=cloud)
    least = 2 if topology is Topology.CLOUD else 1
    if len(servers) < least:
        raise UsageError("--server", "is missing", f"Give at least {least}, as NAME=HOST:PORT")
    if topology is Topology.SINGLE and len(servers) > 1:
        raise UsageError("--server", "the algorithm has one server", "Give one --server, or choose another --algorithm")
    return servers


def add_helpers(servers: dict[str, Any], texts: Sequence[str]) -> None:
    """Add helpers to the servers; they have the highest numbers."""
    from spyker.net.federation_folder import parse_server

    for text in texts:
        name, entry = parse_server(text)
        if name in servers:
            raise UsageError("--helper", f"{name} is given twice", "Choose another name for one of them")
        servers[name] = replace(entry, number=len(servers), cloud=True)


def client_names(names: Sequence[str], total: int | None) -> list[str]:
    """Return the names of all clients; a client without a name is called ``client-K``."""
    if not names and total is None:
        raise UsageError("--client", "is missing", "Name the clients, or give their number with --clients")
    total = len(names) if total is None else total
    if total < len(names):
        raise UsageError("--clients", f"{total} is not allowed: {len(names)} clients are named", "Give at least these")
    return [*names, *(f"client-{number}" for number in range(len(names), total))]


def world_settings(regions: Sequence[str], clients: Sequence[str]) -> dict[str, object]:
    """Return the settings of ``[world]``: a region for each server that has clients."""
    latency = [[WITHIN_MS if a == b else BETWEEN_MS for b in regions] for a in regions]
    return {
        "world.regions": list(regions),
        "world.clients": split_clients(len(clients), len(regions)),
        "world.latency-ms": latency,
    }


def served_model(scenario: Scenario, given: InitialModelFile | None) -> tuple[Scenario, ServedModel, Task]:
    """Return the scenario with ``evaluation.by``, the initial model of its task, or the given one, and the task.

    Unless the scenario says otherwise, a task whose data stays with the clients is evaluated by them, and so is a
    Flower app without an evaluation function for servers; any other task by the servers, which make it.
    """
    task = replace(task_spec(scenario), own={}).make()  # no data of any client is loaded
    spec = ModelSpec.of(task, code_of(scenario.task))
    by = scenario.evaluation.by
    if by is None and task.local and task.evaluated_by == SERVERS:
        task.hold_out(scenario.evaluation.holdout)  # raises an error if clients cannot evaluate
    by = by or (CLIENTS if task.local else evaluated_by_deployed(scenario.evaluation, task))
    scenario = replace(scenario, evaluation=replace(scenario.evaluation, by=by))
    weights = task.initial() if given is None else given.fit(spec.layout).weights
    return scenario, ServedModel(spec, weights), task
