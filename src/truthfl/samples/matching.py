"""Which sample a line of somebody's file means. Looks at `sample`.

By its id, where one is given, and by nothing else. Otherwise by the picture's path: files get other folders in front of
them and, when they are uploaded to Label Studio, eight letters and a hyphen; a text is known by itself.
"""

from __future__ import annotations

import re
from collections import defaultdict
from urllib.parse import parse_qs, unquote, urlsplit

from truthfl.errors import InputError
from truthfl.samples.sample import Source, content_id

UPLOADED = re.compile(r"^[0-9a-f]{8}-")


class Matcher:
    """Finds samples of one source."""

    def __init__(self, source: Source) -> None:
        self.ids = frozenset(source.ids)
        self.by_name = {sample.name: sample.id for sample in source.samples}
        self.texts = source.kind == "text"
        self.by_last_part: defaultdict[str, list[str]] = defaultdict(list)
        for sample in source.samples:
            self.by_last_part[sample.name.rsplit("/", 1)[-1]].append(sample.id)

    def find(self, sample_id: str, name: str) -> str | None:
        """The id of the sample that is meant; None if there is none."""
        if sample_id:
            return sample_id if sample_id in self.ids else None
        if self.texts:
            known = content_id(b"text ", name.strip().encode("utf-8", "replace"))
            return known if known in self.ids else None
        if name in self.by_name:
            return self.by_name[name]
        return self._by_path(_path_in(name))

    def _by_path(self, path: str) -> str | None:
        parts = path.strip("/").split("/")
        for start in range(len(parts)):
            for last in (parts[-1], UPLOADED.sub("", parts[-1])):
                tail = "/".join([*parts[start:-1], last])
                if tail in self.by_name:
                    return self.by_name[tail]
        alike = self.by_last_part.get(parts[-1]) or self.by_last_part.get(UPLOADED.sub("", parts[-1])) or []
        if len(alike) > 1:
            raise InputError(f"{path} may be any of {len(alike)} pictures of that name; give their paths or ids.")
        return alike[0] if alike else None


def _path_in(name: str) -> str:
    """The path in a picture's address: as it is, behind a host, or in Label Studio's `?d=`."""
    parts = urlsplit(name) if "://" in name or name.startswith("/data/") else None
    if parts is None:
        return name.replace("\\", "/")
    local = parse_qs(parts.query).get("d")
    if local:
        return local[0]
    path = unquote(parts.path)
    return path.rsplit("/", 1)[-1] if path.startswith("/data/upload/") else path  # Label Studio's own folders
