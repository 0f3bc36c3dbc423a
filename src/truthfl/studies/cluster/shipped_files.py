"""The files that a task's settings name: sent with it, since a cluster's nodes have other disks."""

from __future__ import annotations

import copy
import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import ServiceError
from truthfl.files import make_private_folder, write_file
from truthfl.learning.task_choice import TaskChoice
from truthfl.studies.cluster.array_call import Arrays, digest_of

PLACES = (("data", "source"), ("task", "use"), ("aggregation", "use"))  # of settings that may name a file


@dataclass(frozen=True)
class ShippedFiles:
    """The files of one setting.

    setting    its place in a task's settings
    path       where they are on this machine: the file, or the folder that has them
    is_folder  whether a folder is named
    files      name and digest of each
    """

    setting: tuple[str, str]
    path: str
    is_folder: bool
    files: tuple[tuple[str, str], ...]


def shipped_files(settings: Mapping[str, Any]) -> tuple[tuple[ShippedFiles, ...], dict[str, NDArray[Any]]]:
    """The files that these settings name, and their contents by digest; none if they name built-in data alone."""
    shipped: list[ShippedFiles] = []
    contents: dict[str, NDArray[Any]] = {}
    for setting in PLACES:
        named = _path_in(settings, setting)
        path = Path(named)
        if not named or not path.exists():
            continue
        files = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
        read = [(each.name, *_content(each, each.stat().st_mtime_ns)) for each in files]
        contents |= {digest: content for _, digest, content in read}
        own = tuple((name, digest) for name, digest, _ in read)
        shipped.append(ShippedFiles(setting, named, path.is_dir(), own))
    return tuple(shipped), contents


def with_local_files(
    settings: Mapping[str, Any], shipped: tuple[ShippedFiles, ...], contents: Arrays
) -> tuple[dict[str, Any], dict[str, str]]:
    """On a node: the settings with the files as they are here, and the names that they have there by those here."""
    changed, names = copy.deepcopy(dict(settings)), dict[str, str]()
    for each in shipped:
        content = hashlib.sha256(repr(each.files).encode()).hexdigest()[:16]
        folder = _folder() / content
        for name, digest in each.files:
            size = contents[digest].nbytes
            if not (folder / name).is_file() or (folder / name).stat().st_size != size:
                write_file(folder / name, contents[digest].tobytes(), private=True, sync=False)
        here = str(folder if each.is_folder else folder / each.files[0][0])
        section, field = each.setting
        changed[section][field] = changed[section][field].replace(each.path, here, 1)
        names[here] = each.path
    return changed, names


def _path_in(settings: Mapping[str, Any], setting: tuple[str, str]) -> str:
    """The path at this place, without the name of a class; "" if there is none, or the name of what comes along."""
    section = settings.get(setting[0])
    value = str(section.get(setting[1], "")) if isinstance(section, Mapping) else ""
    if setting[0] == "data":
        return "" if value in TaskChoice.of_document(settings.get("task")).load().sources else value
    place = value.rpartition(":")[0]
    return place if place.endswith(".py") else ""


@lru_cache(maxsize=64)
def _content(path: Path, _changed: int) -> tuple[str, NDArray[Any]]:
    content = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    return digest_of(content), content


def _folder() -> Path:
    """Where this user keeps files on a node; other users cannot put any there."""
    folder = Path(tempfile.gettempdir()) / f"truthfl-{os.getuid()}"
    make_private_folder(folder)
    if folder.stat().st_uid != os.getuid():
        raise ServiceError(f"{folder} on a node of the cluster belongs to another user; set TMPDIR there.")
    return folder
