"""Labels out and in: Label Studio's JSON, and CSV. Looks at `sample`, `label_store`, `matching`.

https://labelstud.io/guide/task_format: a list of tasks, each with its data and its annotations; a class is a result of
type "choices". Ours have the sample's id in the data besides, so that they find their way back whatever files are
called by then.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truthfl.errors import InputError
from truthfl.files import write_file
from truthfl.samples.label_state import NOTHING, Standing
from truthfl.samples.label_store import LabelStore
from truthfl.samples.matching import Matcher
from truthfl.samples.sample import Source

FIELD = {"picture": "image", "text": "text"}
ID = "truthfl_id"
COLUMNS = ("name", ID, "label", "skipped", "flagged")
LARGEST_FILE = 256_000_000


@dataclass(frozen=True)
class Brought:
    """One label in a file: where it stands there, which samples it may mean, what it says."""

    where: str
    id: str
    name: str
    label: str
    skipped: bool
    flagged: bool


def export_labels(path: Path, source: Source, store: LabelStore) -> int:
    """Write all labels to a .json or .csv file; how many there were."""
    found = store.standing()
    write_file(path, export_text(_format(path), source, found))
    return sum(found.get(sample.id, NOTHING).label is not None for sample in source.samples)


def export_text(form: str, source: Source, found: Mapping[str, Standing]) -> str:
    """Every sample with what was decided about it, as "json" or "csv"."""
    return _as_json(source, found) if form == "json" else _as_csv(source, found)


def import_labels(path: Path, source: Source, store: LabelStore, classes: Sequence[str]) -> int:
    """Take labels in from a .json or .csv file, all or none; how many were new or changed."""
    matcher, known = Matcher(source), set(classes)
    labels: dict[str, str] = {}
    skipped, flagged = [], []
    for one in _from_json(path) if _format(path) == "json" else _from_csv(path):
        sample = matcher.find(one.id, one.name)
        if sample is None:
            raise InputError(f"{one.where} is for {one.name or one.id!r}, which {source.place} does not have.")
        if one.flagged:
            flagged.append(sample)
        if not one.label:
            skipped += [sample] * one.skipped
            continue
        if one.label not in known:
            raise InputError(f"{one.where} has the label {one.label!r}; it must be one of {', '.join(classes)}.")
        if labels.setdefault(sample, one.label) != one.label:
            raise InputError(f"{one.where} labels {one.name or one.id} a second time, and differently.")
    return store.take_in(labels, skipped, flagged)


def _format(path: Path) -> str:
    ending = path.suffix.lower().lstrip(".")
    if ending not in ("json", "csv"):
        raise InputError(f"{path} ends in neither .json (Label Studio's) nor .csv; labels are written as one of these.")
    return ending


def _as_json(source: Source, found: Mapping[str, Standing]) -> str:
    field = FIELD[source.kind]
    tasks = []
    for number, sample in enumerate(source.samples, 1):
        now = found.get(sample.id, NOTHING)
        said = sample.name if source.kind == "picture" else source.shown(number - 1).content.decode()
        task: dict[str, Any] = {"id": number, "data": {field: said, ID: sample.id}, "annotations": []}
        if now.label is not None or now.skipped is not None:
            choice = {
                "from_name": "label",
                "to_name": field,
                "type": "choices",
                "value": {"choices": [now.label]},
            }
            result = [] if now.label is None else [choice]
            task["annotations"] = [{"result": result, "was_cancelled": now.label is None}]
        if now.flagged:
            task["meta"] = {"flagged": True}
        tasks.append(task)
    return json.dumps(tasks, ensure_ascii=False, indent=1) + "\n"


def _as_csv(source: Source, found: Mapping[str, Standing]) -> str:
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(COLUMNS)
    for sample in source.samples:
        now = found.get(sample.id, NOTHING)
        marks = ("1" if mark else "" for mark in (now.skipped is not None, now.flagged))
        writer.writerow((sample.name, sample.id, now.label or "", *marks))
    return target.getvalue()


def _from_json(path: Path) -> Iterator[Brought]:
    try:
        tasks = json.loads(_text(path))
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not valid JSON.") from None
    if not isinstance(tasks, list):
        raise InputError(f"{path} is no list of tasks; it must be JSON as Label Studio exports it.")
    for number, task in enumerate(tasks, 1):
        where = f"task {number} of {path}"
        data = task.get("data") if isinstance(task, dict) else None
        if not isinstance(data, dict):
            raise InputError(f"{where} has no data; it must be JSON as Label Studio exports it.")
        name = next((str(data[field]) for field in ("image", "text") if field in data), "")
        meta = task.get("meta")
        flagged = isinstance(meta, dict) and meta.get("flagged") is True
        label, skipped = _choice(task, where)
        yield Brought(where, str(data.get(ID, "")), name, label, skipped, flagged)


def _choice(task: Mapping[str, Any], where: str) -> tuple[str, bool]:
    """The class in the task's last annotation that was not cancelled, or nothing; and whether one was cancelled."""
    annotations = task.get("annotations") or []
    try:
        made = [one for one in annotations if not one.get("was_cancelled")]
        chosen = [one["value"]["choices"] for one in (made[-1]["result"] if made else []) if one["type"] == "choices"]
        names = [str(name) for choices in chosen for name in choices]
    except (AttributeError, KeyError, TypeError):
        raise InputError(f"{where} has annotations of another form than Label Studio's.") from None
    if len(names) > 1:
        raise InputError(f"{where} has {len(names)} classes; a sample has one.")
    return names[0] if names else "", len(made) < len(annotations)


def _from_csv(path: Path) -> Iterator[Brought]:
    rows = csv.DictReader(io.StringIO(_text(path), newline=""))
    try:
        columns = [name.strip() for name in rows.fieldnames or ()]
        named = next((name for name in ("name", "image", "text") if name in columns), None)
        label = next((name for name in ("label", "choice") if name in columns), None)
        if label is None or (named is None and ID not in columns):
            raise InputError(f"line 1 of {path} must be a header with label, and {ID}, name, image or text.")
        rows.fieldnames = columns
        for row in rows:
            said = {key: (value or "").strip() for key, value in row.items() if isinstance(value, str | None)}
            name = said.get(named, "") if named else ""
            skipped, flagged = (said.get(mark, "").lower() in ("1", "true") for mark in ("skipped", "flagged"))
            yield Brought(f"line {rows.line_num} of {path}", said.get(ID, ""), name, said[label], skipped, flagged)
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as CSV: {error}.") from None


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path} has over {LARGEST_FILE / 1e6:.0f} MB; that is no file of labels.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8.") from None
