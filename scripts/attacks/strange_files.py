"""Hostile or exposed files: pictures that keep a computer busy or pass for others, tables, a repository."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

from PIL import Image

from attacks.outcomes import Outcome, Stage, outcome
from truthfl.errors import TruthflError
from truthfl.samples.pixels import load_cached
from truthfl.samples.sources import open_samples

SCANS, SIDE = 5_000, 5_000
MOST_SECONDS = 10.0
FORMULA = "=HYPERLINK(0)"
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def busy_picture(folder: Path, attack: str) -> Outcome:
    """Each scan has some hundred bytes and goes through all pixels, so decoding takes hours."""
    data, home = _folder(folder, "data"), folder / "home"
    content = _jpeg(Image.new("L", (SIDE, SIDE), 99))
    last_scan = content[content.rindex(b"\xff\xda") : -2]
    (data / "bomb.jpg").write_bytes(content[:-2] + SCANS * last_scan + content[-2:])
    (data / "whole.jpg").write_bytes(content)
    began = time.monotonic()
    loaded = load_cached(open_samples(data), home)
    seconds = time.monotonic() - began
    reasons = " ".join(problem.reason for problem in loaded.source.problems)
    held = seconds < MOST_SECONDS and len(loaded.source) == 1 and "scans" in reasons
    return outcome(attack, held, f"passed over after {seconds:.1f} s: {reasons}")


def twin_picture(folder: Path, attack: str) -> Outcome:
    """A picture of 3 MB with a changed byte in the middle, and one that replaces it with the same times."""
    data, home = _folder(folder, "data"), folder / "home"
    content = bytearray(_jpeg(Image.effect_noise((1500, 1500), 90)))
    first, second = data / "a.jpg", data / "b.jpg"
    first.write_bytes(content)
    content[len(content) // 2] ^= 1
    second.write_bytes(content)
    source = open_samples(data, home=home)
    status = first.stat()
    first.write_bytes(content)
    os.utime(first, ns=(status.st_atime_ns, status.st_mtime_ns))
    try:
        source.media(0)
        said = "the other picture is shown"
    except TruthflError as error:
        said = str(error)
    held = len({one.partition("-")[0] for one in source.ids}) == 2 and "another picture" in said
    return outcome(attack, held, f"{len(content):,} bytes: two samples; once replaced: {said}")


def formula_in_table(folder: Path, attack: str) -> Outcome:
    """The operator names a class like a formula; a participant opens their exported labels in a spreadsheet."""
    data = _folder(folder, "data")
    Image.new("L", (8, 8)).save(data / "one.png")
    (folder / "in.csv").write_text(f"name,label\none.png,{FORMULA}\n")
    label = ("label", "--data", "data", "--home", "home", "--classes", f"{FORMULA},dog")
    done = [_truthfl(folder, *label, "--import", "in.csv"), _truthfl(folder, *label, "--export", "out.csv")]
    with (folder / "out.csv").open(newline="") as table:
        cells = [cell for row in csv.reader(table) for cell in row]
    executed = [cell for cell in cells if cell.startswith(FORMULA_STARTS)]
    held = all(one.returncode == 0 for one in done) and not executed and f"'{FORMULA}" in cells
    happened = f"the cell is '{FORMULA}, which a spreadsheet shows and does not execute"
    return outcome(attack, held, happened, otherwise=f"a spreadsheet would execute {' and '.join(executed)}")


def keys_in_repository(folder: Path, attack: str) -> Outcome:
    """A user with keys and a home in a repository adds all files to it and pushes them."""
    made = [
        subprocess.run(["git", "init", "--quiet", "."], cwd=folder, capture_output=True, check=True),
        _truthfl(folder, "keys", "participant", "Ada"),
        _truthfl(folder, "keys", "server", "--out", "certificates"),
    ]
    subprocess.run(["git", "add", "."], cwd=folder, capture_output=True, check=True)
    added = subprocess.run(["git", "ls-files"], cwd=folder, capture_output=True, check=True, text=True).stdout.split()
    private = ("keys/Ada", "certificates/server.key", "certificates/operator")
    there = [name for name in private if (folder / name).is_file()]
    held = all(one.returncode == 0 for one in made) and len(there) == 3 and added == []
    return outcome(attack, held, f"{', '.join(there)} are not added", otherwise=f"added: {', '.join(added)}")


def _folder(folder: Path, name: str) -> Path:
    (folder / name).mkdir(parents=True)
    return folder / name


def _jpeg(picture: Image.Image) -> bytes:
    file = BytesIO()
    picture.save(file, "JPEG", progressive=True, quality=95)
    return file.getvalue()


def _truthfl(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "truthfl", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


ATTACKS: dict[str, tuple[str, Callable[[Path, str], Outcome]]] = {
    "file-of-scans": ("somebody's photo has 5,000 scans, which take hours to decode", busy_picture),
    "file-twin": ("a photo differs from another in one byte, or takes its place and times", twin_picture),
    "file-formula": ("a class is named like a formula, and labels are opened in a spreadsheet", formula_in_table),
    "file-keys-pushed": ("somebody adds the folder with their keys to a repository", keys_in_repository),
}


def run(folder: Path, names: set[str]) -> Iterator[Outcome]:
    """Make the files, each attack in a separate folder."""
    for attack, (_, act) in ATTACKS.items():
        if attack in names:
            yield act(_folder(folder, attack), attack)


STAGE = Stage("files", {name: words for name, (words, _) in ATTACKS.items()}, run, short=True)
