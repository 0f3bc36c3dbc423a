"""Export and import of labels as Label Studio JSON or CSV.

Paths are compared from the end, since the file may come from another folder. Label Studio puts eight hexadecimal digits
and a hyphen before the names of uploaded files; the import ignores them.

A Label Studio file is a list of tasks, each with its data and its annotations; a class is a result of type "choices"
(https://labelstud.io/guide/task_format). Exported tasks also have the sample's id, so an import still matches after
files were renamed. With several classes per sample, the choices list them all, and a .csv file joins them as
`class_sets` does. In a .csv file, names that a spreadsheet would execute as formulas get a leading apostrophe.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from truthfl.errors import InputError
from truthfl.files import write_file
from truthfl.learning.data.class_sets import joined, names_in
from truthfl.samples.label_store import UNTOUCHED, LabelConflictError, LabelState, LabelStore
from truthfl.samples.sample import Source, content_id
from truthfl.texts import csv_text, text_of_cell

UPLOAD_PREFIX = re.compile(r"^[0-9a-f]{8}-")


class Matcher:
    """Finds samples of one source by id, by a picture's path, or by the text shown for other samples."""

    def __init__(self, source: Source) -> None:
        self.ids = frozenset(source.ids)
        self.by_name = {sample.name: sample.id for sample in source.samples}
        self.prefix = None if source.kind == "picture" else f"{source.kind} ".encode()  # of a content id
        self.by_last_part: defaultdict[str, list[str]] = defaultdict(list)
        for sample in source.samples:
            self.by_last_part[sample.name.rsplit("/", 1)[-1]].append(sample.id)

    def find(self, sample_id: str, name: str) -> str | None:
        """The sample's id, None if there is none; `name` is a picture's path or address, or the text shown for it."""
        if sample_id:
            return sample_id if sample_id in self.ids else None
        if self.prefix is not None:
            content = content_id(self.prefix, name.strip().encode("utf-8", "replace"))
            return content if content in self.ids else None
        if name in self.by_name:
            return self.by_name[name]
        return self._by_path(_path_in(name))

    def _by_path(self, path: str) -> str | None:
        parts = path.strip("/").split("/")
        for start in range(len(parts)):
            for last in (parts[-1], UPLOAD_PREFIX.sub("", parts[-1])):
                tail = "/".join([*parts[start:-1], last])
                if tail in self.by_name:
                    return self.by_name[tail]
        ids = self.by_last_part.get(parts[-1]) or self.by_last_part.get(UPLOAD_PREFIX.sub("", parts[-1])) or []
        if len(ids) > 1:
            raise InputError(f"{path} may be any of {len(ids)} pictures of that name; give their paths or ids.")
        return ids[0] if ids else None


def _path_in(name: str) -> str:
    """The path in a picture's address: the address itself, the path of a URL, or Label Studio's query `?d=`."""
    parts = urlsplit(name) if "://" in name or name.startswith("/data/") else None
    if parts is None:
        return name.replace("\\", "/")
    local = parse_qs(parts.query).get("d")
    if local:
        return local[0]
    path = unquote(parts.path)
    return path.rsplit("/", 1)[-1] if path.startswith("/data/upload/") else path  # Label Studio's own folders


FIELD = {"picture": "image", "text": "text", "row": "text"}
ID = "truthfl_id"
COLUMNS = ("name", ID, "label", "skipped", "flagged")
MAX_BYTES = 256_000_000


@dataclass(frozen=True)
class ImportedLabel:
    """One label read from a file.

    where     line or task and path, for messages
    id, name  of its sample; either may be empty
    classes   names of its classes; may be none
    """

    where: str
    id: str
    name: str
    classes: tuple[str, ...]
    skipped: bool
    flagged: bool


def export_labels(path: Path, source: Source, store: LabelStore, *, several: bool = False) -> int:
    """Write all samples with their labels to a .json or .csv file; return the number of labels."""
    states = store.states()
    write_file(path, export_text(_format(path), source, states, several=several))
    return sum(states.get(sample.id, UNTOUCHED).label is not None for sample in source.samples)


def export_text(file_format: str, source: Source, states: Mapping[str, LabelState], *, several: bool = False) -> str:
    """Every sample with its label, skip and flag; `file_format` is "json" or "csv".

    several  whether a sample may have several classes
    """
    return _as_json(source, states, several) if file_format == "json" else _as_csv(source, states)


@dataclass(frozen=True)
class ReadLabels:
    """A file's content: labels by sample id, and the ids of skipped and of flagged samples."""

    labels: Mapping[str, str]
    skipped: Sequence[str]
    flagged: Sequence[str]


def import_labels(
    path: Path,
    source: Source,
    store: LabelStore,
    classes: Sequence[str],
    may_replace: Callable[[int], bool] = lambda _: False,
    *,
    several: bool = False,
) -> int:
    """Import labels from a .json or .csv file as one step, all or none; return the number of new or changed labels.

    may_replace   called with the number of present labels that differ from the file's, if any; returns whether to
                  replace them
    """
    read = read_labels(path, source, classes, several=several)
    differing = store.differing(read.labels)
    if differing and not may_replace(len(differing)):
        one = len(differing) == 1
        raise InputError(
            f"{len(differing):,} of the labels in {path} {'differs' if one else 'differ'} from the "
            f"{'one' if one else 'ones'} that you have; nothing was imported. --replace takes the file's."
        )
    try:
        return store.add_imported(read.labels, read.skipped, read.flagged, replacing=differing)
    except LabelConflictError:
        raise InputError("labels were changed in the meantime; nothing was imported: import again.") from None


def read_labels(path: Path, source: Source, classes: Sequence[str], *, several: bool = False) -> ReadLabels:
    """The labels in a .json or .csv file for the samples of this source."""
    matcher, known = Matcher(source), set(classes)
    labels: dict[str, str] = {}
    skipped, flagged = [], []
    for item in _from_json(path) if _format(path) == "json" else _from_csv(path, several):
        sample = matcher.find(item.id, item.name)
        if sample is None:
            raise InputError(f"{item.where} is for {item.name or item.id!r}, which {source.place} does not have.")
        if item.flagged:
            flagged.append(sample)
        if not item.classes:
            skipped += [sample] * item.skipped
            continue
        unknown = next((name for name in item.classes if name not in known), None)
        if unknown is not None:
            raise InputError(f"{item.where} has the label {unknown!r}; it must be one of {', '.join(classes)}.")
        if len(item.classes) > 1 and not several:
            raise InputError(f"{item.where} has {len(item.classes)} classes; a sample has one.")
        label = joined(item.classes)
        if labels.setdefault(sample, label) != label:
            raise InputError(f"{item.where} labels {item.name or item.id} a second time, and differently.")
    return ReadLabels(labels, skipped, flagged)


def _format(path: Path) -> str:
    suffix = path.suffix.lower().lstrip(".")
    if suffix not in ("json", "csv"):
        raise InputError(f"{path} ends in neither .json (Label Studio's) nor .csv; labels are written as one of these.")
    return suffix


def _as_json(source: Source, states: Mapping[str, LabelState], several: bool) -> str:
    field = FIELD[source.kind]
    tasks = []
    for number, sample in enumerate(source.samples, 1):
        state = states.get(sample.id, UNTOUCHED)
        content = sample.name if source.kind == "picture" else source.media(number - 1).content.decode()
        task: dict[str, Any] = {"id": number, "data": {field: content, ID: sample.id}, "annotations": []}
        if state.label is not None or state.skipped is not None:
            choice = {
                "from_name": "label",
                "to_name": field,
                "type": "choices",
                "value": {"choices": list(names_in(state.label or "", several=several))},
            }
            result = [] if state.label is None else [choice]
            task["annotations"] = [{"result": result, "was_cancelled": state.label is None}]
        if state.flagged:
            task["meta"] = {"flagged": True}
        tasks.append(task)
    return json.dumps(tasks, ensure_ascii=False, indent=1) + "\n"


def _as_csv(source: Source, states: Mapping[str, LabelState]) -> str:
    rows: list[tuple[str, ...]] = [COLUMNS]
    for sample in source.samples:
        state = states.get(sample.id, UNTOUCHED)
        marks = ("1" if mark else "" for mark in (state.skipped is not None, state.flagged))
        rows.append((sample.name, sample.id, state.label or "", *marks))
    return csv_text(rows)


def _from_json(path: Path) -> Iterator[ImportedLabel]:
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
        chosen, skipped = _choices(task, where)
        yield ImportedLabel(where, str(data.get(ID, "")), name, chosen, skipped, flagged)


def _choices(task: Mapping[str, Any], where: str) -> tuple[tuple[str, ...], bool]:
    """The classes in the task's last annotation that was not cancelled, and whether any was cancelled."""
    annotations = task.get("annotations") or []
    try:
        valid = [annotation for annotation in annotations if not annotation.get("was_cancelled")]
        results = [result for result in (valid[-1]["result"] if valid else []) if result["type"] == "choices"]
        names = [str(name) for result in results for name in result["value"]["choices"]]
    except (AttributeError, KeyError, TypeError):
        raise InputError(f"{where} has annotations of another form than Label Studio's.") from None
    return tuple(names), len(valid) < len(annotations)


def _from_csv(path: Path, several: bool) -> Iterator[ImportedLabel]:
    rows = csv.DictReader(io.StringIO(_text(path), newline=""))
    try:
        columns = [name.strip() for name in rows.fieldnames or ()]
        name_column = next((name for name in ("name", "image", "text") if name in columns), None)
        label_column = next((name for name in ("label", "choice") if name in columns), None)
        if label_column is None or (name_column is None and ID not in columns):
            raise InputError(f"line 1 of {path} must be a header with label, and {ID}, name, image or text.")
        rows.fieldnames = columns
        for row in rows:
            strings = {key: value or "" for key, value in row.items() if isinstance(value, str | None)}
            cells = {key: text_of_cell(value.strip()) for key, value in strings.items()}
            where, name = f"line {rows.line_num} of {path}", cells.get(name_column, "") if name_column else ""
            skipped, flagged = (cells.get(mark, "").lower() in ("1", "true") for mark in ("skipped", "flagged"))
            names = tuple(one.strip() for one in names_in(cells[label_column], several=several))
            chosen = () if names == ("",) else names
            yield ImportedLabel(where, cells.get(ID, ""), name, chosen, skipped, flagged)
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as CSV: {error}.") from None


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} has over {MAX_BYTES / 1e6:.0f} MB; that is no file of labels.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8.") from None
