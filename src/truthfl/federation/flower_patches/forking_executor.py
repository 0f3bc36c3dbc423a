"""A participant's executor: each message gets a process of its own, forked from one that has everything loaded.

Flower's own starts a new interpreter for each message, which takes seconds, and runs whatever code came with the run.
This one runs the ClientApp that is installed here, and nothing else: no code of the operator's, no other kind of task.
`main` takes MODULE:NAME of that app, then the arguments of flower-superexec; it is called by `python -c`, for then the
forked processes have no main module to load again. Looks at `shorter_polling`, `replace_part` and Flower.
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
from truthfl.federation.flower_patches.shorter_polling import fetch_parts_soon

MESSAGE_RUNNER, TASK_LOOP = "flwr.supernode.runtime.run_clientapp", "flwr.supercore.superexec.run_superexec"
LOOK_EVERY = 1.0  # seconds
_processes = multiprocessing.get_context("forkserver")


class ForkingExecutor(SubprocessExecutor):
    """Takes on ClientApps alone, and runs `client_app` for all of them."""

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
    """Answer the message of this task: what a forked process does, and all."""
    threading.Thread(target=end_with, args=(executor,), daemon=True).start()
    fetch_parts_soon()
    app = installed(client_app)
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


def end_with(executor: int) -> None:
    """Leave when the executor is gone, even if it was killed: nobody waits for this answer any more."""
    while _is_there(executor):
        time.sleep(LOOK_EVERY)
    os._exit(1)


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def installed(client_app: str) -> Any:
    """The app of this MODULE:NAME."""
    module, _, name = client_app.partition(":")
    return getattr(import_module(module), name)


def main() -> None:
    """Flower's own loop over tasks, with our way to run them."""
    client_app = sys.argv.pop(1)
    installed(client_app)
    _processes.set_forkserver_preload([MESSAGE_RUNNER, __name__, client_app.partition(":")[0]])
    forkserver.ensure_running()
    replace_part(import_module(TASK_LOOP), "get_executor", lambda *_, **__: ForkingExecutor(client_app))
    flower_superexec()
