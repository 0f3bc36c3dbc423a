"""What a node costs the server, with far more nodes than this machine could run, since they replay one report.

    python -m benchmarks.replayed_nodes [--nodes 1000] [--rounds 5] [--json]

The server is that of `truthfl serve`, over TLS. The nodes are light clients in another process (`peers.light_nodes`).
Each greets with its own key, waits for messages on a TLS connection, and answers a training message with a prepared
report of softmax regression on MNIST (7,850 numbers) and its code. The server codes every message, checks the code, the
numbers and the length of every report, and averages them, as in a round without masks. Nodes do not train, and nothing
is written to a ledger. Both processes share this machine's cores.

A round's time is from its first message to the mean; CPU is that of the server's whole process. Memory is the server's
largest resident set; memory per node is the growth since before the first node connected. Connecting includes a first
round. Bytes are those of messages and replies, without TLS and HTTP headers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.light_nodes import PARAMETERS, code_key_of, round_fields
from benchmarks.peers.open_files import allow_open_files
from benchmarks.peers.process_memory import megabytes, most_megabytes
from truthfl.certificates import certificates_in, make_certificates
from truthfl.federation.deployed.job_server import JobServer, open_job_server
from truthfl.federation.operator.live_status import server_use
from truthfl.federation.protocol.messages import (
    PARAMS,
    array_bytes_digest,
    ask_nodes,
    coded_training_message,
    model_record,
)
from truthfl.federation.protocol.reports import report_or_reason

HOST, ROOT = "127.0.0.1", Path(__file__).parent.parent
ROUND_SECONDS, REPORT_BOUND = 120.0, 100.0


def replayed_round(server: JobServer, number_of: dict[int, int]) -> np.ndarray:
    """One round with all nodes; return the mean of their reports.

    number_of  each node's number, by node id
    """
    params = np.zeros(PARAMETERS, dtype=np.float32)
    arrays = model_record(params)
    digest = array_bytes_digest(arrays)
    messages = [
        coded_training_message(code_key_of(number), node, arrays, digest, round_fields(number))
        for node, number in number_of.items()
    ]
    reports: dict[int, np.ndarray] = {}
    for node, reply in ask_nodes(server.grid, messages, timeout=ROUND_SECONDS):
        number = number_of[node]
        common, key = {PARAMS: params}, code_key_of(number)
        report = report_or_reason(reply, common, round_fields(number), bound=REPORT_BOUND, code_key=key)
        if isinstance(report, str):
            raise SystemExit(f"the report of node {number} was refused: {report}")
        reports[number] = report[PARAMS]
    if len(reports) < len(number_of):
        raise SystemExit(f"{len(number_of) - len(reports)} of {len(number_of)} nodes did not reply.")
    return np.mean([reports[number] for number in sorted(reports)], axis=0)


def measure(nodes: int, rounds: int) -> dict[str, Any]:
    """Rounds with this many nodes."""
    allow_open_files(2 * nodes)
    words = [sys.executable, "-m", "benchmarks.peers.light_nodes", "--nodes", str(nodes)]
    with (
        tempfile.TemporaryDirectory() as place,
        subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        keys = Path(place) / "keys"
        make_certificates(keys, (HOST,))
        lines = json.loads(process.stdout.readline())
        names = {f"node {number}": line for number, line in enumerate(lines)}
        with open_job_server(HOST, 0, keys, names) as server:
            before, started = megabytes(), server_use(server.grid)
            process.stdin.write(json.dumps([HOST, server.port, str(certificates_in(keys).root)]) + "\n")
            process.stdin.flush()
            if process.stdout.readline().strip() != "connected":
                raise SystemExit("the nodes did not connect.")
            while len(server.grid.get_node_ids()) < nodes:  # until the last node's first request has arrived
                time.sleep(0.01)
            number_of = {server.registry.find(line).node_id: number for number, line in enumerate(lines)}
            replayed_round(server, number_of)  # nodes open their second connections for this
            connected, times = server_use(server.grid), []
            for _ in range(rounds):
                began = time.monotonic()
                replayed_round(server, number_of)
                times.append(time.monotonic() - began)
            used, to_connect, most = (
                server_use(server.grid).since(connected),
                connected.since(started),
                most_megabytes(),
            )
            process.stdin.close()
    return {
        "nodes": nodes,
        "rounds": rounds,
        "median_round_s": statistics.median(times),
        "slowest_round_s": max(times),
        "connect_s": to_connect.seconds,
        "server_cpu_ms_to_connect": 1000 * to_connect.cpu_seconds / nodes,
        "server_cpu_ms_per_node_round": 1000 * used.cpu_seconds / (nodes * rounds),
        "sent_bytes_per_node_round": used.sent_bytes / (nodes * rounds),
        "received_bytes_per_node_round": used.received_bytes / (nodes * rounds),
        "server_mb": most,
        "server_kb_per_node": 1024 * (most - before) / nodes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.nodes, options.rounds)
    if options.json:
        print(json.dumps(found))
        return
    sent, received = (found[f"{way}_bytes_per_node_round"] for way in ("sent", "received"))
    print(f"{found['nodes']:,} nodes, {found['rounds']} rounds; connected after {found['connect_s']:.1f} s")
    print(f"a round, median          {found['median_round_s']:8.3f} s   slowest {found['slowest_round_s']:.3f} s")
    print(f"server's CPU             {found['server_cpu_ms_per_node_round']:8.2f} ms a node and round")
    print(f"    to connect           {found['server_cpu_ms_to_connect']:8.2f} ms a node")
    print(f"bytes a node and round   {sent:8,.0f} sent, {received:,.0f} received")
    print(f"server's memory          {found['server_mb']:8.0f} MB, {found['server_kb_per_node']:.0f} KB a node")


if __name__ == "__main__":
    main()
