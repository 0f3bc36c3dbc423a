"""`ArrayCall`: a function called with objects that hold arrays, as a task that is known by its content.

Large arrays are left out of the pickled objects and named by their digest, so that each travels once.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import TruthflError
from truthfl.studies.work import Result, WorkError, source_digest

LARGE = 1 << 14  # bytes of an array that travels on its own
MOST_KEPT = 4  # objects that calls have in common, unpickled

Arrays = Mapping[str, NDArray[Any]]
"""Arrays by digest."""


@dataclass(frozen=True, eq=False)
class ArrayCall:
    """function(common, own), the function by name, "module:function", in this package; both arguments pickled."""

    work: str
    common: bytes
    own: bytes
    arrays: Arrays

    @cached_property
    def address(self) -> str:
        """The hash of the package's source, function and arguments, in which arrays are named by their digests."""
        parts = [source_digest().encode(), self.work.encode(), self.common, self.own]
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:32]

    def do(self) -> Result:
        """Call the function in this process."""
        module, function = self.work.split(":")
        try:
            common = _unpickled_once(self.common, self.arrays)
            result: Result = getattr(import_module(f"truthfl.{module}"), function)(
                common, unpickled(self.own, self.arrays)
            )
        except TruthflError:
            raise
        except Exception as error:
            raise WorkError(f"{self.work} failed ({type(error).__name__}: {error}).") from error
        return result


def pickled(value: object) -> tuple[bytes, dict[str, NDArray[Any]]]:
    """The object without its large arrays, and these."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return file.getvalue(), pickler.arrays


def unpickled(content: bytes, arrays: Arrays) -> Any:
    """The object with its arrays, which may be more than it needs."""
    return _Unpickler(io.BytesIO(content), arrays).load()


_KEPT: dict[bytes, Any] = {}


def _unpickled_once(content: bytes, arrays: Arrays) -> Any:
    """The object, made once for several calls that have it in common."""
    if content not in _KEPT:
        while len(_KEPT) >= MOST_KEPT:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[content] = unpickled(content, arrays)
    return _KEPT[content]


def digest_of(array: NDArray[Any]) -> str:
    """The hash of an array's type, shape and contents; that of an array which nobody can change is kept."""
    known = _KNOWN.get(id(array))
    if known is not None and known[0]() is array:
        return known[1]
    head = f"{array.dtype.str} {array.shape}".encode()
    digest = hashlib.sha256(head + hashlib.sha256(np.ascontiguousarray(array).data).digest()).hexdigest()[:32]
    if not array.flags.writeable:
        number = id(array)
        _KNOWN[number] = weakref.ref(array, lambda _: _KNOWN.pop(number, None)), digest
    return digest


_KNOWN: dict[int, tuple[weakref.ref[NDArray[Any]], str]] = {}  # by id


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.arrays: dict[str, NDArray[Any]] = {}

    def persistent_id(self, obj: Any) -> str | None:
        if type(obj) is not np.ndarray or obj.nbytes < LARGE or obj.dtype.hasobject:
            return None
        digest = digest_of(obj)
        self.arrays[digest] = obj
        return digest


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrays: Arrays) -> None:
        super().__init__(file)
        self.arrays = arrays

    def persistent_load(self, pid: Any) -> NDArray[Any]:
        return self.arrays[pid]
