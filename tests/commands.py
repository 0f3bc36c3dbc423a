"""`truthfl` with some words, as a process of its own that need not import all of it again.

The processes are forks of one that has imported truthfl, once for all tests of a pytest process: with standard input,
output, folder, environment and exit code of their own, as a shell starts them. That the command works where nothing is
imported is shown by all tests that start `python -m truthfl` (the guides, the README, interrupts and many others).
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = 120
IMPORTED = [
    "truthfl.cli.app",
    "truthfl.cli.run",
    "truthfl.cli.plan",
    "truthfl.cli.verify",
    "truthfl.federation.simulated.in_process",
    "truthfl.ledger",
    "truthfl.reporting",
    "truthfl.studies",
    "sklearn.datasets",
    "rich.console",
    "rich.table",
]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(IMPORTED)


def truthfl(*words, cwd=None, timeout=SECONDS):
    """Waits for its end; gives what `subprocess.run` with captured text gives."""
    words = [str(word) for word in words]
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder) / name for name in ("out", "error")]
        where = (str(cwd or Path.cwd()), dict(os.environ))
        process = FORKS.Process(target=_command, args=(words, *map(str, streams), *where))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(words, timeout)
        out, error = (file.read_text(encoding="utf-8") for file in streams)
        return subprocess.CompletedProcess(words, process.exitcode, out, error)


def _command(words, out, error, folder, environment):
    from truthfl.cli.entry import main

    flags = os.O_WRONLY | os.O_CREAT
    for number, opened in enumerate((os.open(os.devnull, os.O_RDONLY), os.open(out, flags), os.open(error, flags))):
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, buffering=1)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["truthfl", *words]
    main()
