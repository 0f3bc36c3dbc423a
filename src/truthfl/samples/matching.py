"""Matching of an imported label to a sample: by id if there is one, otherwise by path or by the text that is shown.

Paths are compared from the end, since the file may come from another folder. Label Studio puts eight hexadecimal digits
and a hyphen before the names of uploaded files; they are ignored.
"""

from __future__ import annotations

import re
from collections import defaultdict
from urllib.parse import parse_qs, unquote, urlsplit

from truthfl.errors import InputError
from truthfl.samples.sample import Source, content_id

UPLOAD_PREFIX = re.compile(r"^[0-9a-f]{8}-")


class Matcher:
    """Finds samples of one source by id, by a picture's path, or by the text that is shown of others."""

    def __init__(self, source: Source) -> None:
        self.ids = frozenset(source.ids)
        self.by_name = {sample.name: sample.id for sample in source.samples}
        self.prefix = None if source.kind == "picture" else f"{source.kind} ".encode()  # of a content id
        self.by_last_part: defaultdict[str, list[str]] = defaultdict(list)
        for sample in source.samples:
            self.by_last_part[sample.name.rsplit("/", 1)[-1]].append(sample.id)

    def find(self, sample_id: str, name: str) -> str | None:
        """The id of the sample, None if there is none; `name` is a picture's path or address, or what is shown."""
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
