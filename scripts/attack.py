"""Attack a real federation on this machine in all known ways, and report how each attack ended.

    python scripts/attack.py [--short] [--only NAME ...] [--list] [--at-once N] [--keep FOLDER]

Servers and participants are processes of `truthfl serve` and `truthfl join` over TLS. Attackers run changed code
(`attacks/patches`); everyone else runs truthfl unchanged. Each attack gets one line: who did what, what happened, and
whether the defence held. The exit code is 1 if one did not hold. docs/security.md says what is not defended.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # for benchmarks

from attacks.federation import end_running
from attacks.outcomes import FAILED, Outcome, Stage, one_line

from attacks import STAGES

LONGEST_ERROR = 300
INTERRUPTED = 130


def run_stage(stage: Stage, folder: Path, names: set[str]) -> list[Outcome]:
    """The outcomes of a stage; if the stage itself fails, attacks without an outcome count as not held."""
    told: list[Outcome] = []
    try:
        for one in stage.run(folder, names):
            told.append(one)
    except Exception as error:  # any failure of this stage; the other stages still report
        reason = one_line(f"{type(error).__name__}: {error}")[:LONGEST_ERROR]
        told += [Outcome(name, FAILED, reason) for name in sorted(names - {one.attack for one in told})]
    return told


def outcomes(chosen: dict[Stage, set[str]], folder: Path, at_once: int) -> Iterator[tuple[Stage, list[Outcome]]]:
    """Run the stages: federations, `at_once` at a time; then the short form's stages, which run in this process."""
    number_of = {stage: str(number) for number, stage in enumerate(chosen)}
    pool = ThreadPoolExecutor(at_once)
    started = [
        (stage, pool.submit(run_stage, stage, folder / number_of[stage], names))
        for stage, names in chosen.items()
        if not stage.short
    ]
    try:
        for stage, future in started:
            yield stage, future.result()
    except BaseException:  # an interruption, above all
        pool.shutdown(wait=False, cancel_futures=True)
        end_running()
        raise
    for stage, names in chosen.items():
        if stage.short:
            yield stage, run_stage(stage, folder / number_of[stage], names)


@contextmanager
def workplace(kept: Path | None) -> Iterator[Path]:
    """The folder to keep, or one that is removed at the end."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="truthfl-attack-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # so that only the modes of its contents protect them
        yield Path(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="list the names of the attacks")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="these attacks alone")
    parser.add_argument("--short", action="store_true", help="the quick ones, without participants on loopback")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="federations at the same time")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the federations' folders here")
    asked = parser.parse_args()
    stages = [stage for stage in STAGES if stage.short or not asked.short]
    known = {name for stage in stages for name in stage.attacks}
    if not set(asked.only) <= known:
        parser.error(f"no such attack: {', '.join(sorted(set(asked.only) - known))}; --list tells them")
    chosen = {stage: {name for name in stage.attacks if not asked.only or name in asked.only} for stage in stages}
    chosen = {stage: names for stage, names in chosen.items() if names}
    if asked.list:
        for stage, names in chosen.items():
            print(f"\n{stage.title}", *(f"  {name}: {stage.attacks[name]}" for name in sorted(names)), sep="\n")
        return 0
    verdicts, began = [], time.monotonic()
    with workplace(asked.keep) as folder:
        for stage, found in outcomes(chosen, folder, asked.at_once):
            print(f"\n{stage.title}")
            for one in found:
                verdicts.append(one.verdict)
                print(f"  {one.attack}: {stage.attacks[one.attack]}. {one.verdict.upper()}: {one.happened}", flush=True)
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
    print(f"\n{len(verdicts)} attacks in {time.monotonic() - began:.0f} s: {counts}")
    return 1 if FAILED in verdicts else 0


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's `&` has the first ignored, also in children
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted; all federations were ended.", file=sys.stderr)
        sys.exit(INTERRUPTED)
