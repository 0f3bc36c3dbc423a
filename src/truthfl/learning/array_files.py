"""Readers for .npz, .npy and idx files; arrays as bytes for writing.

The files may come from untrusted sources: pickled objects are refused, and sizes are checked before unpacking.
"""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError

MAX_UNPACKED_BYTES = 4_000_000_000
IDX_UNSIGNED_BYTE = 0x08
_READ_ERRORS = (OSError, EOFError, ValueError, RuntimeError, MemoryError, zlib.error, zipfile.BadZipFile)


def names_in_npz(path: Path) -> frozenset[str]:
    """The names of the arrays in an .npz file, without reading the arrays."""
    return frozenset(_sizes(path))


def read_npz(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """The required arrays of an .npz file, and those of the optional ones that it contains; others are not read."""
    sizes = _sizes(path)
    for name in required:
        if name not in sizes:
            wanted = " and ".join(map(repr, required))
            raise InputError(f"{path} has no array {name!r}; it must hold {wanted}.")
    names = [name for name in (*required, *optional) if name in sizes]
    _require_within(path, sum(sizes[name] for name in names))
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: np.asarray(archive[name]) for name in names}
    except _READ_ERRORS as error:
        raise InputError(
            f"{path} cannot be read ({short_reason(error)}); it must be an .npz file of plain arrays."
        ) from None


def read_npy(path: Path) -> NDArray[Any]:
    """The array of an .npy file."""
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path} is not there.") from None
    except _READ_ERRORS as error:
        raise InputError(f"{path} cannot be read ({short_reason(error)}); it must be an .npy file.") from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path} is no .npy file.")
    return array


def npy_bytes(array: NDArray[Any]) -> bytes:
    """The content of an .npy file with this array."""
    packed = BytesIO()
    np.save(packed, array, allow_pickle=False)
    return packed.getvalue()


def array_of_npy(content: bytes) -> NDArray[Any]:
    """The array in the bytes of an .npy file, which may be anyone's: NumPy raises any error if they are none."""
    array = np.load(BytesIO(content), allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError("this is an archive, no array")
    return array


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of an idx file of unsigned bytes, plain (memory-mapped) or gzipped.

    Format: two zero bytes, the type, the number of dimensions, each dimension as a big-endian uint32, the data.
    """
    try:
        data = unpacked_bytes(path)
    except _READ_ERRORS as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read ({short_reason(error)}); fetch it again.") from None
    header = 4 + 4 * dimensions
    if len(data) < header or bytes(data[:4]) != bytes((0, 0, IDX_UNSIGNED_BYTE, dimensions)):
        raise InputError(f"{path} does not begin like an idx file of bytes in {dimensions} dimensions; fetch it again.")
    shape = tuple(int(size) for size in np.frombuffer(bytes(data[4:header]), ">u4"))
    announced = int(np.prod(shape, dtype=object))
    if len(data) - header != announced:
        raise InputError(
            f"{path} has {len(data) - header} bytes of data and announces {announced}; it is cut off or damaged: "
            "fetch it again."
        )
    return data[header:].reshape(shape)


def npz_bytes(arrays: Mapping[str, NDArray[Any]], *, compressed: bool = False) -> bytes:
    """The content of an .npz file with these arrays."""
    packed = BytesIO()
    (np.savez_compressed if compressed else np.savez)(packed, **arrays)  # type: ignore[arg-type]
    return packed.getvalue()


def short_reason(error: BaseException) -> str:
    """The first line of an error, without its full stop."""
    text = str(error).strip().splitlines()
    return text[0].rstrip(".") if text else type(error).__name__


def _sizes(path: Path) -> dict[str, int]:
    """The names of the arrays in an .npz file with the unpacked size of each in bytes."""
    if not path.is_file():
        raise InputError(f"{path} does not exist; name an .npz file.")
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path} is not an .npz file; save one with numpy.savez(path, images=..., labels=...).")
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except _READ_ERRORS as error:
        raise InputError(
            f"{path} cannot be read ({short_reason(error)}); it must be an .npz file of plain arrays."
        ) from None
    return {
        member.filename.removesuffix(".npy"): member.file_size for member in members if member.filename.endswith(".npy")
    }


def unpacked_bytes(path: Path) -> NDArray[np.uint8]:
    """The bytes of a file, memory-mapped, or unpacked if its name ends in .gz."""
    if path.suffix == ".gz":
        with gzip.open(path) as file:
            content = file.read(MAX_UNPACKED_BYTES + 1)
        _require_within(path, len(content))
        return np.frombuffer(content, np.uint8)
    if path.stat().st_size == 0:
        return np.empty(0, np.uint8)
    return np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))


def _require_within(path: Path, size: int) -> None:
    if size > MAX_UNPACKED_BYTES:
        raise InputError(f"{path} would unpack to over {MAX_UNPACKED_BYTES / 1e9:.0f} GB; split it into several files.")
