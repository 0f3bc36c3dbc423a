"""Executor of the operator's SuperLink: ServerApps only, each in a process whose arguments have no secret.

Flower's executor names the task's token among the arguments of the process, which every user of the machine can read;
with it one may act as the ServerApp. This one writes the arguments to the process's standard input.

`main` takes the arguments of flower-superexec. Imports `replace_part` and Flower.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

from flwr.supercore.cli import flower_superexec
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResult, SubprocessExecutor

from truthfl.federation.flower_patches.replace_part import replace_part

TASK_LOOP, COMMAND = "flwr.supercore.superexec.run_superexec", "flwr.superlink.cli"
RUN = f"from {__name__} import run_serverapp; run_serverapp()"


class ServerAppExecutor(SubprocessExecutor):
    """Accepts tasks for ServerApps only."""

    def get_eligible_capacity(
        self,
        supported_task_types: set[TaskType],
        *,
        insecure: bool = False,  # noqa: ARG002
        root_certificates_path: str | None = None,  # noqa: ARG002
    ) -> tuple[set[TaskType], set[str]]:
        return supported_task_types & {TaskType.SERVER_APP}, set()

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        process = subprocess.Popen([sys.executable, "-P", "-c", RUN], stdin=subprocess.PIPE, text=True)
        if process.stdin is not None:
            with process.stdin as arguments:
                json.dump(serverapp_arguments(spec), arguments)
        return LaunchResult.accepted()


def serverapp_arguments(spec: ExecutionSpec) -> list[str]:
    """The arguments of flwr-serverapp for this task."""
    root = spec.root_certificates_path
    protection = ["--insecure"] if spec.insecure else [] if root is None else ["--root-certificates", root]
    parent = [] if spec.parent_pid is None else ["--parent-pid", str(spec.parent_pid)]
    return ["--runtime-api-address", spec.runtime_api_address, "--token", spec.token, *protection, *parent]


def run_serverapp() -> None:
    """Run a ServerApp with the arguments that standard input has; the main function of its process."""
    sys.argv[1:] = json.load(sys.stdin)
    import_module(COMMAND).flwr_serverapp()


def main() -> None:
    """Run Flower's task loop with `ServerAppExecutor`."""
    replace_part(import_module(TASK_LOOP), "get_executor", lambda *_, **__: ServerAppExecutor())
    flower_superexec()
