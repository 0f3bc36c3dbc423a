"""A Ray cluster of two nodes on this machine, in its own process; as a script, it takes commands.

"end a node" on standard input ends the second node, with all its processes, while it computes a task; the end of the
input ends the cluster. Standard output has the head's address, then a line after each command.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

MEMORY = 80 * 1024 * 1024
LOOPBACK = "127.0.0.1"
AT_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # all of Ray then has the address 127.0.0.1


class TwoNodes:
    """The cluster as tests see it: the address of its head, and a way to end the second node."""

    def __init__(self, process):
        self.process = process
        self.head, self.client_port = self._line().split()

    def _line(self):
        line = self.process.stdout.readline()
        assert line, "the cluster did not start"
        return line.strip()

    def end_a_node(self):
        """End the second node in the middle of a task."""
        self.process.stdin.write("end a node\n")
        self.process.stdin.flush()
        assert self._line() == "ended"


@contextmanager
def two_nodes():
    """A cluster of two nodes with one processor each."""
    short = tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True)  # it holds sockets
    with short as folder, _started(Path(folder)) as cluster:
        yield cluster


@contextmanager
def _started(folder):
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder), "PYTHONWARNINGS": "ignore"}
    environment |= AT_LOOPBACK
    environment.pop("RAY_ADDRESS", None)
    with (
        (folder / "cluster.log").open("w") as log,
        subprocess.Popen(
            [sys.executable, __file__],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield TwoNodes(process)
        finally:
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def processes_of(node):
    """A node's main process, and its children, which compute tasks."""
    (leader,) = (info.process.pid for info in node.all_processes["raylet"])
    return leader, [int(pid) for pid in Path(f"/proc/{leader}/task/{leader}/children").read_text().split()]


def is_computing(pid):
    try:
        title = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False
    return title.startswith("ray::truthfl")


def end_while_computing(node, seconds=60):
    """End a node's processes at once when one of them computes; that one is stopped first, to be sure."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        leader, others = processes_of(node)
        for pid in filter(is_computing, others):
            os.kill(pid, signal.SIGSTOP)
            if is_computing(pid):
                for each in (leader, *others):
                    os.kill(each, signal.SIGKILL)
                return
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.005)
    raise TimeoutError("the node computed nothing")


def main():
    import socket

    from ray.cluster_utils import Cluster

    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        client_port = free.getsockname()[1]
    settings = {"num_cpus": 1, "object_store_memory": MEMORY, "include_dashboard": False}
    head = settings | {"ray_client_server_port": client_port}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    second = cluster.add_node(**settings)
    cluster.wait_for_nodes()
    print(cluster.address, client_port, flush=True)
    for _ in sys.stdin:
        end_while_computing(second)
        cluster.remove_node(second, allow_graceful=False)
        print("ended", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
