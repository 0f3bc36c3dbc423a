"""Attack a real federation on this machine in all ways that we know, and tell how each attack ended.

    python scripts/attack.py [--short] [--only NAME ...] [--list] [--keep FOLDER]

Servers and participants are processes of `truthfl serve` and `truthfl join` over TLS; attackers run other code
(`attacks/patches`), the attacked run truthfl as it is. One line for each attack: who did what, what happened, and
whether it held. The exit code is 1 if something did not hold. docs/security.md says what is not defended.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # for benchmarks

from attacks.outcomes import FAILED, Outcome, Stage

from attacks import STAGES

LONGEST_ERROR = 300


def run_stage(stage: Stage, folder: Path, names: set[str]) -> Iterator[Outcome]:
    """The outcomes of a stage; a stage that fails itself did not hold."""
    told = set()
    try:
        for one in stage.run(folder, names):
            told.add(one.attack)
            yield one
    except Exception as error:  # of whatever was attacked; the other stages still tell
        for name in sorted(names - told):
            yield Outcome(name, FAILED, f"{type(error).__name__}: {error}"[:LONGEST_ERROR])


@contextmanager
def workplace(kept: Path | None) -> Iterator[Path]:
    """The folder that is kept, or one that is removed at the end."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="truthfl-attack-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # so that the modes of what is in it are what protects it
        yield Path(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="tell the names of the attacks")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="these attacks alone")
    parser.add_argument("--short", action="store_true", help="the quick ones, without participants on loopback")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the federations' folders here")
    asked = parser.parse_args()
    stages = [stage for stage in STAGES if stage.short or not asked.short]
    known = {name for stage in stages for name in stage.attacks}
    if not set(asked.only) <= known:
        parser.error(f"no such attack: {', '.join(sorted(set(asked.only) - known))}; --list tells them")
    verdicts, began = [], time.monotonic()
    with workplace(asked.keep) as folder:
        for number, stage in enumerate(stages):
            names = {name for name in stage.attacks if not asked.only or name in asked.only}
            if not names:
                continue
            print(f"\n{stage.title}", flush=True)
            if asked.list:
                print(*(f"  {name}: {stage.attacks[name]}" for name in stage.attacks if name in names), sep="\n")
                continue
            for one in run_stage(stage, folder / str(number), names):
                verdicts.append(one.verdict)
                print(f"  {one.attack}: {stage.attacks[one.attack]}. {one.verdict.upper()}: {one.happened}", flush=True)
    if asked.list:
        return 0
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
    print(f"\n{len(verdicts)} attacks in {time.monotonic() - began:.0f} s: {counts}")
    return 1 if FAILED in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
