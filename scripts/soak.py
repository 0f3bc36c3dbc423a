"""Run jobs of all kinds back to back on one PostgreSQL ledger, kill processes at random, and check what holds.

    python scripts/soak.py [--minutes 60] [--seed 0] [--kill-every 4] [--gently] [--keep FOLDER]

One ledger serves federations of `truthfl serve` and `truthfl join` (pictures, tables, texts, several labels, a custom
task; both contracts; TLS with keys, invitations, loopback; an operator who pauses, extends, removes or ends),
participants who stay from job to job, `truthfl run`, settlement and `ledger check`. Servers, participants, runs, pages,
commands, PostgreSQL and its processes are killed without warning and started again by the same command.

A row counts as lost if it is missing at the end, although an outside observer saw it committed, a command reported it
as written, or a participant's receipt proves it. A settlement, payment, receipt or round that a contract requires and
its job lacks is also lost. Doubled means a second row of the same job, kind and key, a second payment or receipt for
one contract, or a job that began twice. Memory is measured for processes that live through the soak
(`soaking/memory.py` defines flat).

The seed determines the jobs, what happens to them, and whom the killer chooses; the moments depend on the machine. The
exit code is 1 if something does not hold; the folder is then kept.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # for benchmarks, and the soak's own parts

from scripts.soaking.private_postgresql import NoPostgreSQL, restartable_server
from scripts.soaking.soak_run import run_soak

INTERRUPTED = 130


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kill-every", type=float, default=4.0, metavar="SECONDS", help="on average")
    parser.add_argument("--gently", action="store_true", help="two jobs at a time instead of three")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="work in this folder, and keep it")
    asked = parser.parse_args()
    if asked.minutes <= 0 or asked.kill_every <= 0:
        parser.error("minutes and seconds must be above 0")
    if asked.keep is not None:
        asked.keep.mkdir(parents=True, exist_ok=True)
    folder = asked.keep.resolve() if asked.keep is not None else Path(tempfile.mkdtemp(prefix="truthfl-soak-"))
    try:
        with restartable_server() as server:
            result = run_soak(server, folder, asked.seed, 60.0 * asked.minutes, asked.kill_every, gently=asked.gently)
    except NoPostgreSQL as missing:
        print(f"{missing}; a soak needs PostgreSQL.", file=sys.stderr)
        return 3
    print(result.table())
    if result.faults:
        print(f"Seed {asked.seed} FAILED: {result.faults[0]}. The folder {folder} is kept.")
        return 1
    print(result.sentence(asked.seed))
    if asked.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's `&` has the first ignored, also in children
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted; all processes were ended.", file=sys.stderr)
        sys.exit(INTERRUPTED)
