"""Pictures as people have them: all formats, their first frame, and what cannot be read with its reason."""

import struct
import sys
import time
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from helpers.commands import told
from truthfl.samples import pictures, shown_pictures
from truthfl.samples import sample as formats
from truthfl.samples.pixels import load_cached
from truthfl.samples.shown_pictures import CACHE, REENCODED, SCREEN, THUMB, WHOLE, ShownPictures
from truthfl.samples.sources import open_samples

FILES = ("a.bmp", "b.gif", "c.jpg", "d.png", "e.tif", "f.webp")


def halves(width=60, height=40):
    """Red on the left, blue on the right."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2, 0] = pixels[:, width // 2 :, 2] = 250
    return Image.fromarray(pixels)


def opened(media):
    return Image.open(BytesIO(media.content))


def test_each_format_has_the_same_pixels(tmp_path):
    for name in FILES:
        halves().save(tmp_path / name, quality=95)
    source = open_samples(tmp_path)
    assert [sample.name for sample in source.samples] == list(FILES)
    for position in range(len(source)):
        difference = abs(source.pixels(position).astype(int) - np.asarray(halves()))
        exact = source.samples[position].name not in ("c.jpg", "f.webp")
        assert difference[:, :20].max() <= (0 if exact else 5)
        assert difference[:, 40:].max() <= (0 if exact else 5)


def test_of_several_pictures_in_a_file_the_first_counts(tmp_path):
    red, blue = Image.new("RGB", (9, 9), (250, 0, 0)), Image.new("RGB", (9, 9), (0, 0, 250))
    for name in ("a.gif", "b.tiff", "c.webp"):
        more = {"lossless": True} if name == "c.webp" else {}
        red.save(tmp_path / name, save_all=True, append_images=[blue], **more)
    source = open_samples(tmp_path)
    shown = ShownPictures(source, tmp_path / "home")
    for position in range(3):
        assert source.pixels(position)[4, 4].tolist() == [250, 0, 0]
        sent = opened(shown.get(position, SCREEN))
        assert (sent.format, getattr(sent, "n_frames", 1)) == ("PNG", 1)  # nothing moves on the page
        assert sent.convert("RGB").getpixel((4, 4)) == (250, 0, 0)


def test_browsers_get_what_they_can_show(tmp_path):
    for name in FILES:
        halves(400, 300).save(tmp_path / name)
    source = open_samples(tmp_path)
    shown = ShownPictures(source, tmp_path / "home")
    kinds = [shown.get(position, SCREEN).media_type for position in range(6)]
    assert kinds == ["image/bmp", "image/gif", "image/jpeg", "image/png", "image/png", "image/webp"]
    assert {shown.get(position, REENCODED).media_type for position in range(6)} == {"image/png"}


@pytest.mark.skipif(not formats.reads_heic(), reason="pillow-heif is not installed")
def test_heic(tmp_path):
    import pillow_heif

    pillow_heif.from_pillow(halves(64, 64)).save(tmp_path / "photo.heic", quality=95)
    source = open_samples(tmp_path)
    assert abs(source.pixels(0)[32, 8].astype(int) - [250, 0, 0]).max() < 30
    assert ShownPictures(source, tmp_path / "home").get(0, SCREEN).media_type == "image/png"


def test_what_is_not_read_is_listed_with_the_reason(tmp_path, monkeypatch):
    halves().save(tmp_path / "a.png")
    (tmp_path / "photo.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    (tmp_path / "photo.jpg").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    (tmp_path / "drawing.SVG").write_text("<svg/>")
    (tmp_path / "layers.psd").write_bytes(b"8BPS")
    (tmp_path / "notes.txt").write_text("no picture")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setattr(formats, "find_spec", lambda _: None)
    problems = {problem.name: problem.reason for problem in open_samples(tmp_path).problems}
    assert list(problems) == ["drawing.SVG", "layers.psd", "photo.heic", "photo.jpg"]
    assert "pip install 'truthfl[heif]'" in problems["photo.heic"]
    assert "pip install 'truthfl[heif]'" in problems["photo.jpg"]
    assert problems["layers.psd"] == f"layers.psd is of a format that is not read; save it as {formats.NAMES}."


@pytest.mark.parametrize("name", ["cut.webp", "cut.gif", "cut.bmp", "cut.tiff"])
def test_a_cut_off_file_is_a_sentence(tmp_path, name):
    noise = np.random.default_rng(0).integers(0, 256, (60, 60, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 3])
    assert f"{name} is broken: " in told(open_samples(tmp_path).media, 0)


def test_photos_of_any_size_are_read_in_any_order(tmp_path):
    """A photo of 24 million pixels takes too much memory in full; it is decoded as small as it is needed."""
    files = {name: tmp_path / f"{name}.jpg" for name in ("large", "progressive", "larger", "small")}
    halves(6000, 4000).save(files["large"], quality=80)
    halves(6000, 4000).save(files["progressive"], quality=80, progressive=True)
    halves(8000, 6000).save(files["larger"], quality=80)
    halves(60, 40).save(files["small"], quality=80)
    for number, order in enumerate((tuple(files), tuple(files)[::-1], ("large",))):
        data = tmp_path / f"data-{number}"
        data.mkdir()
        for place, name in enumerate(order):
            (data / f"{place}.jpg").write_bytes(files[name].read_bytes())
        loaded = load_cached(open_samples(data), tmp_path / f"home-{number}")
        assert len(loaded.source) == len(order)
        assert loaded.source.problems == ()
        fitted = loaded.of_shape((40, 60, 3), fit=True)
        assert abs(fitted[:, 20, 5].astype(int) - [250, 0, 0]).max() < 8
    shown = ShownPictures(open_samples(tmp_path / "data-0"), tmp_path / "home")
    for position in range(3):
        assert max(opened(shown.get(position, SCREEN)).size) >= 2000


@pytest.mark.parametrize("fill", [b"", b"\xff" * 70_000, b"no marker"])
def test_a_jpeg_that_is_decoded_for_hours_is_refused_at_once(tmp_path, fill):
    file = BytesIO()
    Image.new("L", (3000, 3000), 99).save(file, "JPEG", progressive=True)
    whole = file.getvalue()
    assert pictures._require_few_scans(file, "x.jpg") == 6
    last = whole[whole.rindex(b"\xff\xda") : -2]  # a scan of some hundred bytes goes through all pixels
    (tmp_path / "a.jpg").write_bytes(whole[:-2] + 40 * last + whole[-2:])
    (tmp_path / "bomb.jpg").write_bytes(whole[:-2] + fill + 5000 * last + whole[-2:])
    began = time.monotonic()
    source = open_samples(tmp_path)
    loaded = load_cached(source, tmp_path / "home")
    assert time.monotonic() - began < 10
    assert [sample.name for sample in loaded.source.samples] == ["a.jpg"]
    (problem,) = loaded.source.problems
    assert problem.reason == (
        "bomb.jpg has more than 50 scans, each of which takes time for all pixels; save it again as JPEG."
    )
    assert "more than 50 scans" in told(ShownPictures(source, tmp_path / "home").get, 1, THUMB)


def test_tiff_of_ten_to_sixteen_bits_of_gray_is_not_black(tmp_path):
    rows = np.linspace(0, 1, 64)[:, None] * np.ones((64, 64))
    for bits in (10, 12, 14, 16):
        Image.fromarray((rows * (2**bits - 1)).astype(np.uint16)).save(tmp_path / f"{bits}.tif")
    Image.fromarray(rows.astype(np.float32)).save(tmp_path / "f1.tif")
    Image.fromarray((255 * rows).astype(np.float32)).save(tmp_path / "f255.tif")
    Image.fromarray((4095 * rows).astype(np.int32)).save(tmp_path / "i12.tif")
    (tmp_path / "packed.tif").write_bytes(packed_tiff((rows * 4095).astype(int)))
    source = open_samples(tmp_path)
    for position in range(len(source)):
        assert abs(source.pixels(position)[..., 0] - 255 * rows).max() <= 2, source.samples[position].name
        small = np.asarray(opened(ShownPictures(source, tmp_path / "home").get(position, THUMB)), float)
        assert abs(small - 255 * rows).max() <= 8, source.samples[position].name


def packed_tiff(levels):
    """A TIFF file of twelve bits per sample, packed."""
    flat = levels.ravel()
    data = np.stack([flat[::2] >> 4, (flat[::2] & 15) << 4 | flat[1::2] >> 8, flat[1::2] & 255], 1).astype(np.uint8)
    height, width = levels.shape
    tags = {256: width, 257: height, 258: 12, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: data.size}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    body = data.tobytes()
    head = struct.pack("<2sHI", b"II", 42, 8 + len(body))
    return head + body + struct.pack("<H", len(tags)) + entries + bytes(4)


def test_shown_pictures_are_made_once_private_and_bounded(tmp_path, monkeypatch):
    data, home = tmp_path / "data", tmp_path / "home"
    data.mkdir()
    noise = np.random.default_rng(3).integers(0, 256, (8, 300, 300, 3), dtype=np.uint8)
    for number in range(8):
        Image.fromarray(noise[number]).save(data / f"{number}.png")
    source = open_samples(data)
    first = ShownPictures(source, home).get(0, THUMB)
    (file,) = (home / CACHE).iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    with monkeypatch.context() as patch:
        patch.setattr(shown_pictures, "decoded", lambda *_: pytest.fail("decoded again"))
        assert ShownPictures(source, home).get(0, THUMB) == first
    file.write_bytes(b"")  # damaged
    assert ShownPictures(source, home).get(0, THUMB) == first
    monkeypatch.setattr(shown_pictures, "MAX_CACHE_BYTES", 4 * len(first.content))
    shown = ShownPictures(source, home)
    for position in range(8):
        shown.get(position, THUMB)
        assert sum(one.stat().st_size for one in (home / CACHE).iterdir()) <= 4 * len(first.content)


def test_a_disk_that_takes_nothing_makes_it_slower_and_not_wrong(tmp_path):
    halves(3000, 200).save(tmp_path / "wide.png")
    (tmp_path / "home").write_text("in the way")
    assert opened(ShownPictures(open_samples(tmp_path), tmp_path / "home").get(0, SCREEN)).size == (2400, 160)


def test_large_pictures_are_sent_smaller_and_whole_when_asked_for(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by a quarter
    halves(3000, 1000).save(tmp_path / "turned.jpg", exif=exif)
    shown = ShownPictures(open_samples(tmp_path), tmp_path / "home")
    sizes = [opened(shown.get(0, form)).size for form in (THUMB, SCREEN)]
    assert sizes == [(53, 160), (800, 2400)]
    assert opened(shown.get(0, THUMB)).getpixel((26, 20))[0] > 200  # red is above
    assert shown.get(0, WHOLE).content == (tmp_path / "turned.jpg").read_bytes()
