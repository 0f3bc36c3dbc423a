"""Whoever reads an .npz or an idx file reads it within the same limits and says the same about a bad one."""

import gzip
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

import truthfl
from helpers.commands import told
from truthfl.federation.participant.node_settings import labeled_pictures
from truthfl.learning.data import datasets as array_files
from truthfl.learning.data.datasets import (
    array_of_npy,
    images_from_npz,
    mnist_from_folder,
    names_in_npz,
    npy_bytes,
    npz_bytes,
    read_idx,
    read_npz,
)
from truthfl.samples.sources import open_samples

SOURCE = Path(truthfl.__file__).parent
READERS = (images_from_npz, labeled_pictures, open_samples)
IMAGES, LABELS = np.arange(24, dtype=np.uint8).reshape(2, 3, 4), np.array([0, 1])


@pytest.mark.parametrize("read", READERS)
def test_bad_npz_files_are_told_alike(tmp_path, monkeypatch, read):
    path = tmp_path / "a.npz"
    path.write_bytes(b"junk")
    assert told(read, path) == f"{path} is not an .npz file; save one with numpy.savez(path, images=..., labels=...)."
    np.savez(path, images=np.array([object()]), labels=LABELS)
    assert told(read, path).endswith("it must be an .npz file of plain arrays.")
    np.savez(path, images=IMAGES, labels=LABELS)
    whole = path.read_bytes()
    path.write_bytes(whole[:150] + b"?" * 20 + whole[170:])
    assert told(read, path).endswith("it must be an .npz file of plain arrays.")
    path.write_bytes(whole)
    read(path)
    monkeypatch.setattr(array_files, "MAX_UNPACKED_BYTES", 100)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("unpacked"))
    assert told(read, path) == f"{path} would unpack to over 0 GB; split it into several files."


@pytest.mark.parametrize("failure", [RuntimeError("it is encrypted"), MemoryError("too large")])
@pytest.mark.parametrize("read", READERS)
def test_what_unpacking_may_raise_is_a_sentence(tmp_path, monkeypatch, read, failure):
    np.savez(tmp_path / "a.npz", images=IMAGES, labels=LABELS)

    def fail(*_, **__):
        raise failure

    monkeypatch.setattr(np, "load", fail)
    assert f"a.npz cannot be read ({failure});" in told(read, tmp_path / "a.npz")


def test_what_is_asked_for_is_read_and_nothing_else(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, images=IMAGES, more=np.array([object()], dtype=object))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes.txt", "x")
    assert names_in_npz(path) == {"images", "more"}
    assert list(read_npz(path, ["images"], ["classes"])) == ["images"]
    assert told(read_npz, path, ["images", "labels"]) == (
        f"{path} has no array 'labels'; it must hold 'images' and 'labels'."
    )
    assert labeled_pictures(path) is None
    assert labeled_pictures(tmp_path) is None


def idx(array):
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


@pytest.mark.parametrize("packed", [False, True])
def test_an_idx_file_of_any_dimensions(tmp_path, monkeypatch, packed):
    path = tmp_path / ("x-idx.gz" if packed else "x-idx")
    for array in (IMAGES, LABELS.astype(np.uint8)):
        path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))
        found = read_idx(path, array.ndim)
        assert found.tolist() == array.tolist()
        assert type(found) is np.ndarray
        assert not found.flags.writeable
        assert "does not begin like an idx file of bytes in 2 dimensions" in told(read_idx, path, 2)
    if packed:
        monkeypatch.setattr(array_files, "MAX_UNPACKED_BYTES", 5)
        assert "would unpack to over" in told(read_idx, path, 1)


def test_the_files_of_mnist_have_the_same_limit(tmp_path, monkeypatch):
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(IMAGES)))
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(LABELS.astype(np.uint8))))
    mnist_from_folder(tmp_path)
    monkeypatch.setattr(array_files, "MAX_UNPACKED_BYTES", 20)
    assert "would unpack to over" in told(mnist_from_folder, tmp_path)


def test_arrays_as_bytes(tmp_path):
    (tmp_path / "a.npy").write_bytes(npy_bytes(IMAGES))
    assert np.load(tmp_path / "a.npy").tolist() == IMAGES.tolist()
    for compressed in (False, True):
        (tmp_path / "a.npz").write_bytes(npz_bytes({"images": IMAGES}, compressed=compressed))
        assert read_npz(tmp_path / "a.npz", ["images"])["images"].tolist() == IMAGES.tolist()


def test_bytes_that_are_no_array_are_an_error():
    content = npy_bytes(np.float32([1, 2]))
    assert array_of_npy(content).tolist() == [1, 2]
    for bad in (content[:-1], b"", npz_bytes({"a": np.float32([1, 2])})):
        with pytest.raises((ValueError, EOFError)):
            array_of_npy(bad)


def test_nobody_else_unpacks_such_files():
    unpacks = re.compile(r"zipfile\.(ZipFile|is_zipfile)|gzip\.|>u4|np\.load\(")
    found = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if unpacks.search(path.read_text())}
    kept_results = "studies/work.py"
    assert found == {"learning/data/datasets.py", kept_results}


def test_a_file_that_is_sorted_by_class_is_used_in_a_random_order(tmp_path):
    """An offer that asks for some of the samples would else get a few classes; other files keep their order."""
    images = np.arange(40, dtype=np.uint8).repeat(4).reshape(40, 2, 2)
    np.savez(tmp_path / "sorted.npz", images=images, labels=np.arange(40) // 10)
    found = labeled_pictures(tmp_path / "sorted.npz")
    assert len(set(found.labels[:12].tolist())) == 4
    np.testing.assert_array_equal(found.images[:, 0, 0, 0] // 10, found.labels)
    np.savez(tmp_path / "mixed.npz", images=images, labels=np.arange(40) % 4)
    np.testing.assert_array_equal(labeled_pictures(tmp_path / "mixed.npz").labels, np.arange(40) % 4)
