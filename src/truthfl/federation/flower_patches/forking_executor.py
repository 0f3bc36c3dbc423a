"""Executor of a participant's SuperNode: one forked process per message.

Flower's executor starts a new interpreter for each message, which takes seconds, and runs the code submitted with the
run. This one forks a process that has all modules loaded, and runs only the ClientApp installed here: no code of the
operator, no other kind of task.

`main` takes MODULE:NAME of that app, then the arguments of flower-superexec. It is called by `python -c`, since the
forked processes would otherwise import the main module again. Imports `shorter_polling`, `replace_part` and Flower.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from flwr.supercore.cli import flower_superexec
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResult, SubprocessExecutor

from truthfl.federation.flower_patches.replace_part import replace_part
from truthfl.federation.flower_patches.shorter_polling import shorten_object_polling

MESSAGE_RUNNER, TASK_LOOP = "flwr.supernode.runtime.run_clientapp", "flwr.supercore.superexec.run_superexec"
POLL_SECONDS = 1.0
_processes = multiprocessing.get_context("forkserver")


class ForkingExecutor(SubprocessExecutor):
    """Accepts tasks for ClientApps only, and runs `client_app` (MODULE:NAME) for each."""

    def __init__(self, client_app: str) -> None:
        self.client_app = client_app

    def get_eligible_capacity(
        self,
        supported_task_types: set[TaskType],
        *,
        insecure: bool = False,  # noqa: ARG002
        root_certificates_path: str | None = None,  # noqa: ARG002
    ) -> tuple[set[TaskType], set[str]]:
        return supported_task_types & {TaskType.CLIENT_APP}, set()

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        _processes.Process(target=answer_message, args=(self.client_app, spec, os.getpid())).start()
        return LaunchResult.accepted()


def answer_message(client_app: str, spec: ExecutionSpec, executor: int) -> None:
    """Reply to the message of this task; the main function of a forked process.

    executor  the id of the executor's process
    """
    threading.Thread(target=exit_with_executor, args=(executor,), daemon=True).start()
    shorten_object_polling()
    app = load_app(client_app)
    runner = import_module(MESSAGE_RUNNER)
    replace_part(runner, "install_from_fab", lambda *_, **__: None)
    replace_part(runner, "get_load_client_app_fn", lambda *_, **__: lambda *_: app)
    root = spec.root_certificates_path
    runner.run_clientapp(
        runtime_api_address=spec.runtime_api_address,
        token=spec.token,
        insecure=spec.insecure,
        certificates=None if root is None else Path(root).read_bytes(),
        parent_pid=spec.parent_pid,
    )


def exit_with_executor(executor: int) -> None:
    """Exit this process when the executor's process has ended, even if it was killed."""
    while _is_running(executor):
        time.sleep(POLL_SECONDS)
    os._exit(1)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def load_app(client_app: str) -> Any:
    """Import the app MODULE:NAME."""
    module, _, name = client_app.partition(":")
    return getattr(import_module(module), name)


def main() -> None:
    """Run Flower's task loop with `ForkingExecutor`."""
    client_app = sys.argv.pop(1)
    load_app(client_app)
    _processes.set_forkserver_preload([MESSAGE_RUNNER, __name__, client_app.partition(":")[0]])
    forkserver.ensure_running()
    replace_part(import_module(TASK_LOOP), "get_executor", lambda *_, **__: ForkingExecutor(client_app))
    flower_superexec()
