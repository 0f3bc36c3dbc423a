"""A participant's folder is decoded once, and again when it changes; every process after that maps the pixels."""

import json
import os
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

from helpers.participants import an_offer, draw_pictures
from truthfl.federation.participant.node_settings import Settings, participant_of
from truthfl.ledger.signing import new_key, write_key
from truthfl.samples import pictures
from truthfl.samples import pixels as decoded_pictures
from truthfl.samples.folder import in_kept_order
from truthfl.samples.label_store import LabelStore
from truthfl.samples.pixels import CACHE, load_cached, load_pictures
from truthfl.samples.sources import open_samples

COUNTING = """
import hashlib, json, sys
from truthfl.federation.participant.node_settings import Settings, participant_of
from truthfl.samples import pictures
from truthfl.federation.protocol.promise import PADDED
from types import SimpleNamespace
calls, decode = [], pictures.decode
pictures.decode = lambda *given: calls.append(1) or decode(*given)
offer = SimpleNamespace(job=SimpleNamespace(image_shape=(28, 28, 1), picture_fit=PADDED))
made = participant_of(Settings(**json.loads(sys.argv[1])))
print(len(calls), made.samples, hashlib.sha256(made.samples_for(offer).tobytes()).hexdigest())
"""


@pytest.fixture
def settings(tmp_path):
    write_key(new_key(), tmp_path / "key")
    draw_pictures(tmp_path / "data", 5)
    return Settings("Ada", str(tmp_path / "data"), str(tmp_path / "home"), str(tmp_path / "key"))


@pytest.fixture
def decoded(monkeypatch):
    """The names of the pictures that were decoded."""
    names, decode = [], pictures.decode
    monkeypatch.setattr(pictures, "decode", lambda raw, name: names.append(name) or decode(raw, name))
    return names


def in_a_new_process(settings):
    command = [sys.executable, "-c", COUNTING, json.dumps(vars(settings))]
    calls, samples, digest = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return int(calls), int(samples), digest


def samples_of(data, home):
    """The pictures of a folder, which are of one size, as a job without a shape takes them."""
    decoded = load_cached(in_kept_order(open_samples(data), home), home)
    return decoded.source, decoded.as_they_are


def as_decoded_anew(tmp_path):
    return load_pictures(in_kept_order(open_samples(tmp_path / "data"), tmp_path / "home"))


def require_same(tmp_path):
    source, images = samples_of(tmp_path / "data", tmp_path / "home")
    expected, pixels = as_decoded_anew(tmp_path)
    assert (source.samples, source.problems, source.place) == (expected.samples, expected.problems, expected.place)
    assert images.dtype == pixels.dtype
    assert images.shape == pixels.shape
    assert (images == pixels).all()
    return images


def test_a_second_process_decodes_nothing(settings):
    first = in_a_new_process(settings)
    second = in_a_new_process(settings)
    assert first[:2] == (5, 5)
    assert second == (0, *first[1:])


def test_what_changed_is_seen(tmp_path, decoded):
    data = draw_pictures(tmp_path / "data", 5)
    (data / "broken.png").write_bytes((data / "00000.png").read_bytes()[:60])
    images = require_same(tmp_path)
    assert len(images) == 5
    for change in (
        lambda: Image.new("L", (28, 28), 9).save(data / "00002.png"),
        lambda: Image.new("L", (28, 28), 7).save(data / "added.png"),
        lambda: (data / "00001.png").unlink(),
        lambda: (data / "00003.png").rename(data / "renamed.png"),
        lambda: (data / "broken.png").unlink(),
        lambda: (tmp_path / "home" / "order.json").unlink(),
    ):
        change()
        decoded.clear()
        samples_of(data, tmp_path / "home")
        assert decoded
        decoded.clear()
        samples_of(data, tmp_path / "home")
        assert decoded == []
        require_same(tmp_path)


def test_another_picture_of_the_same_size_and_time_is_seen(tmp_path, decoded):
    path = draw_pictures(tmp_path / "data", 2) / "00000.png"
    Image.new("L", (28, 28), 7).save(path, compress_level=0)
    require_same(tmp_path)
    before = path.stat()
    Image.new("L", (28, 28), 8).save(path, compress_level=0)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    decoded.clear()
    samples_of(tmp_path / "data", tmp_path / "home")
    assert decoded
    require_same(tmp_path)


@pytest.mark.parametrize("what", ["cut", "pixel", "header", "digest", "empty", "junk", "folder", "longer"])
def test_a_damaged_file_is_ignored_and_made_again(tmp_path, decoded, what):
    draw_pictures(tmp_path / "data", 3)
    require_same(tmp_path)
    path = tmp_path / "home" / CACHE
    whole = path.read_bytes()
    damaged = {
        "cut": whole[:-1],
        "pixel": whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:],
        "header": whole.replace(b'"kept": [0, 1, 2]', b'"kept": [0, 2, 1]'),
        "digest": b"g" + whole[1:],
        "empty": b"",
        "junk": b"\xff\n\xff\n\xff",
        "folder": b"",
        "longer": whole + b"x",
    }[what]
    assert damaged != whole
    path.write_bytes(damaged)
    if what == "folder":
        path.unlink()
        path.mkdir()
    decoded.clear()
    require_same(tmp_path)
    assert len(decoded) == 6  # once by each of the two that are compared
    if what != "folder":
        assert path.read_bytes() == whole


def test_a_disk_that_takes_nothing_makes_it_slower_and_not_wrong(tmp_path, monkeypatch):
    draw_pictures(tmp_path / "data", 2)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "cache").write_text("in the way")
    assert len(require_same(tmp_path)) == 2
    monkeypatch.setattr(decoded_pictures, "CACHE", "other/pictures.bin")
    require_same(tmp_path)
    assert (tmp_path / "home" / "other" / "pictures.bin").stat().st_mode & 0o777 == 0o600


def test_labels_are_read_anew(settings, tmp_path):
    participant_of.cache_clear()
    ada = participant_of(settings)
    source, _ = samples_of(tmp_path / "data", tmp_path / "home")
    offer = an_offer(new_key(), new_key(), samples=5, classes=("cat", "dog"))
    assert ada.labels(offer) is None
    with closing(LabelStore(tmp_path / "home" / "labels.db")) as store:
        for label, number in (("cat", 0), ("dog", 1)):
            store.add_imported(dict.fromkeys(source.ids, label), replacing=source.ids)
            assert ada.labels(offer).tolist() == [number] * 5


def test_arrays_in_one_file_are_not_kept_twice(tmp_path):
    np.savez(tmp_path / "data.npz", images=np.zeros((2, 4, 4), np.uint8))
    write_key(new_key(), tmp_path / "key")
    ada = participant_of(Settings("Ada", *(str(tmp_path / name) for name in ("data.npz", "home", "key"))))
    assert ada.image_shape == (4, 4, 1)
    assert not (tmp_path / "home" / CACHE).exists()
