"""What there is to label: folders, arrays, texts; limits; broken things; nothing outside the folder."""

import gzip
import json
import os
import sys
import time
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from helpers.commands import told
from helpers.participants import draw_pictures
from helpers.texts import png_that_says
from truthfl.learning.data import datasets as array_files
from truthfl.learning.tasks.texts import Texts
from truthfl.samples import folder, pictures
from truthfl.samples.folder import in_kept_order
from truthfl.samples.label_exchange import export_text
from truthfl.samples.pictures import decode
from truthfl.samples.pixels import load_pictures, pixels_of
from truthfl.samples.sample import UnreadableError
from truthfl.samples.shown_pictures import THUMB, ShownPictures
from truthfl.samples.sources import open_samples


def test_a_folder_in_order_and_only_pictures(tmp_path):
    draw_pictures(tmp_path / "b", 2)
    draw_pictures(tmp_path / "a", 1)
    (tmp_path / "a" / "notes.txt").write_text("no picture")
    (tmp_path / ".hidden.png").write_bytes(b"x")
    Image.new("RGB", (9, 7), "red").save(tmp_path / "c.JPG")
    source = open_samples(tmp_path)
    assert [sample.name for sample in source.samples] == ["a/00000.png", "b/00000.png", "b/00001.png", "c.JPG"]
    assert source.problems == ()
    assert source.media(3).media_type == "image/jpeg"
    assert source.media(0).content == (tmp_path / "a" / "00000.png").read_bytes()


def test_nothing_is_decoded_when_a_folder_is_opened(tmp_path, monkeypatch):
    draw_pictures(tmp_path, 5)
    monkeypatch.setattr(pictures, "open_undecoded", lambda *_: pytest.fail("decoded"))
    assert len(open_samples(tmp_path)) == 5


def test_a_picture_keeps_its_id_when_files_are_added_renamed_and_moved(tmp_path):
    draw_pictures(tmp_path / "one", 4)
    before = open_samples(tmp_path / "one")
    (tmp_path / "one" / "00002.png").rename(tmp_path / "one" / "zebra.png")
    Image.new("L", (5, 5), 77).save(tmp_path / "one" / "00000a.png")
    (tmp_path / "one").rename(tmp_path / "two")
    after = open_samples(tmp_path / "two")
    assert len(after) == 5
    assert set(before.ids) < set(after.ids)
    assert before.ids[2] == after.ids[-1]
    assert after.ids.index(before.ids[1]) == 2


def test_long_pictures_that_differ_in_one_pixel(tmp_path):
    """A fingerprint has the size and both ends of a long file; a PNG ends with checksums of its middle."""
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    for number in range(3):
        noise[100, 100] = number
        Image.fromarray(noise).save(tmp_path / f"{number}.png")
    assert len({one.split("-")[0] for one in open_samples(tmp_path).ids}) == 3


def test_two_files_alike_are_two_samples(tmp_path):
    draw_pictures(tmp_path, 1)
    (tmp_path / "again.png").write_bytes((tmp_path / "00000.png").read_bytes())
    first, second = open_samples(tmp_path).ids
    assert second == f"{first}-2"


def test_links_lead_nowhere_outside(tmp_path):
    draw_pictures(tmp_path / "secret", 1)
    inside = draw_pictures(tmp_path / "data", 1)
    (inside / "out.png").symlink_to(tmp_path / "secret" / "00000.png")
    (inside / "folder").symlink_to(tmp_path / "secret")
    (inside / "within.png").symlink_to(inside / "00000.png")
    source = open_samples(inside)
    assert [sample.name for sample in source.samples] == ["00000.png", "within.png"]
    (inside / "00000.png").unlink()
    (inside / "00000.png").symlink_to(tmp_path / "secret" / "00000.png")
    for position in (0, 1):
        assert "out of the folder" in told(source.media, position)


def test_bad_pictures_are_reported_and_passed_over(tmp_path):
    draw_pictures(tmp_path, 3)
    (tmp_path / "a.png").write_bytes(b"GIF89a")
    (tmp_path / "b.jpg").write_bytes(b"")
    (tmp_path / "c.png").write_bytes((tmp_path / "00000.png").read_bytes()[:60])
    source = open_samples(tmp_path)
    assert [problem.name for problem in source.problems] == ["a.png", "b.jpg"]
    assert all(problem.reason.endswith(".") for problem in source.problems)
    with pytest.raises(UnreadableError, match=r"c\.png is broken"):
        source.media(3)
    kept, images = load_pictures(source)
    assert images.shape == (3, 28, 28, 1)
    assert kept.ids == source.ids[:3]
    assert [problem.name for problem in kept.problems] == ["a.png", "b.jpg", "c.png"]


def test_a_picture_that_announces_too_much_is_not_decoded(tmp_path, monkeypatch):
    (tmp_path / "bomb.png").write_bytes(png_that_says(60_000, 60_000))
    source = open_samples(tmp_path)
    monkeypatch.setattr(Image.Image, "load", lambda *_: pytest.fail("decoded"))
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda *_: pytest.fail("decoded"))
    assert told(source.media, 0) == "bomb.png is of 60,000×60,000 pixels; at most 50 million are decoded."


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    draw_pictures(tmp_path, 2)
    source = open_samples(tmp_path)
    monkeypatch.setattr("truthfl.samples.folder.MAX_BYTES", 500)
    with (tmp_path / "00001.png").open("ab") as file:
        file.write(b"\0" * 1000)
    assert told(source.media, 1) == "00001.png has 0 MB; at most 0 MB are read."
    assert [problem.name for problem in open_samples(tmp_path).problems] == ["00001.png"]


def test_a_folder_without_pictures(tmp_path):
    assert "nothing to label" in told(open_samples, tmp_path)
    assert "does not exist" in told(open_samples, tmp_path / "nowhere")
    (tmp_path / "x.tiff").write_bytes(b"")
    assert "no known kind" in told(open_samples, tmp_path / "x.tiff")


def test_an_npz_file(tmp_path):
    images = np.random.default_rng(1).integers(0, 256, (5, 6, 7, 3), dtype=np.uint8)
    np.savez_compressed(tmp_path / "some.npz", images=images, labels=np.arange(5))
    source = open_samples(tmp_path / "some.npz")
    assert source.samples[4].name == "row 4"
    assert (load_pictures(source)[1] == images).all()
    assert (np.asarray(Image.open(BytesIO(source.media(2).content))) == images[2]).all()
    np.savez(tmp_path / "more.npz", images=np.concatenate([images[:1], images[3:], images[1:2]]))
    assert open_samples(tmp_path / "more.npz").ids[1] == source.ids[3]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"pictures": np.zeros((2, 2))}, "no array 'images'"),
        ({"images": np.zeros((2, 3, 3))}, "must be uint8"),
        ({"images": np.zeros((2, 3), np.uint8)}, "have shape (2, 3)"),
        ({"images": np.zeros((2, 3, 3, 2), np.uint8)}, "have shape (2, 3, 3, 2)"),
        ({"images": np.zeros((0, 3, 3), np.uint8)}, "nothing to label"),
        ({"images": np.array([object()])}, "plain arrays"),
    ],
)
def test_bad_npz_files(tmp_path, content, sentence):
    np.savez(tmp_path / "bad.npz", **content)
    assert sentence in told(open_samples, tmp_path / "bad.npz")


def test_an_npz_file_that_would_unpack_to_too_much(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "bomb.npz", images=np.zeros((100, 100, 100), np.uint8))
    monkeypatch.setattr(array_files, "MAX_UNPACKED_BYTES", 10_000)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("unpacked"))
    assert "would unpack to over" in told(open_samples, tmp_path / "bomb.npz")
    (tmp_path / "junk.npz").write_bytes(b"junk")
    assert "is not an .npz file" in told(open_samples, tmp_path / "junk.npz")


@pytest.mark.parametrize("packed", [False, True])
def test_an_idx_file(tmp_path, packed, monkeypatch):
    images = np.random.default_rng(2).integers(0, 256, (4, 5, 6), dtype=np.uint8)
    content = bytes((0, 0, 8, 3)) + np.array(images.shape, ">u4").tobytes() + images.tobytes()
    path = tmp_path / ("t-images-idx3-ubyte" + (".gz" if packed else ""))
    path.write_bytes(gzip.compress(content) if packed else content)
    assert (load_pictures(open_samples(path))[1][..., 0] == images).all()
    path.write_bytes(gzip.compress(content[:-1]) if packed else content[:-1])
    assert "cut off" in told(open_samples, path)
    path.write_bytes(gzip.compress(b"\0\0\x08\x01" + content) if packed else b"\0\0\x08\x01" + content)
    assert "does not begin like" in told(open_samples, path)
    if packed:
        monkeypatch.setattr(array_files, "MAX_UNPACKED_BYTES", 100)
        assert "would unpack" in told(open_samples, path)


def test_texts(tmp_path):
    csv = tmp_path / "texts.csv"
    csv.write_text('id,text\n1,"one, two\nthree"\n2,\n3,four\n4,four\n')
    source = open_samples(csv)
    assert source.kind == "text"
    assert [source.media(i).content.decode() for i in range(3)] == ["one, two\nthree", "four", "four"]
    assert [problem.reason for problem in source.problems] == ["line 4 holds no text."]
    lines = tmp_path / "texts.jsonl"
    written = ["four", {"text": "one, two\nthree"}, {"other": 1}, [1], {"text": "x" * 20_001}]
    lines.write_text("\n".join(map(json.dumps, written)) + "\n\n{broken\n")
    again = open_samples(lines)
    assert set(again.ids) == {source.ids[0], source.ids[1]}
    assert len(again.problems) == 4
    assert "trained on pictures" in told(load_pictures, again)
    csv.write_text(f"text\nshort\n{'x' * 200_000}\n")
    assert len(open_samples(csv)) == 1
    csv.write_bytes(b"text\n\xff\xfe\n")
    assert "UTF-8" in told(open_samples, csv)


def test_rows_of_a_table(tmp_path):
    csv = tmp_path / "rows.csv"
    csv.write_text("age,city,label\n31,Paris,yes\n45,Bergen,no\n31,Paris,no\n")
    source = open_samples(csv)
    assert source.kind == "row"
    assert source.media(1).content.decode() == "age: 45\ncity: Bergen"
    assert [sample.name for sample in source.samples] == ["line 2", "line 3", "line 4"]
    assert source.ids[2] == f"{source.ids[0]}-2"  # neither an id nor what is shown has the label
    csv.write_text("age,city\n31,Paris\n45,Bergen\n31,Paris\n")
    assert open_samples(csv).ids == source.ids
    np.savez(tmp_path / "rows.npz", rows=np.array([["45", "Bergen"]]), columns=np.array(["age", "city"]))
    assert open_samples(tmp_path / "rows.npz").ids == source.ids[1:2]
    csv.write_text("age;city\n31;Paris\n")
    assert "separated by commas" in told(open_samples, csv)
    assert "no picture" in told(source.pixels, 0)


def test_a_task_that_is_named_reads_the_file(tmp_path):
    csv = tmp_path / "mixed.csv"
    csv.write_text("body,stars\nVery good.,5\nVery bad.,1\n")
    assert open_samples(csv).kind == "row"
    texts = open_samples(csv, Texts(text="body", label="stars"))
    assert texts.kind == "text"
    assert [texts.media(i).content.decode() for i in range(2)] == ["Very good.", "Very bad."]
    csv.write_text("text\nVery good.\n")
    assert open_samples(csv).ids == texts.ids[:1]


def test_pictures_of_different_sizes_cannot_be_trained_on(tmp_path):
    draw_pictures(tmp_path, 2)
    Image.new("L", (30, 28)).save(tmp_path / "wide.png")
    text = told(load_pictures, open_samples(tmp_path))
    assert "wide.png has 30×28 pixels and 00000.png 28×28" in text


def test_colours_grays_and_transparency_become_what_the_page_shows(tmp_path):
    Image.new("L", (4, 4), 100).save(tmp_path / "a-gray.png")
    assert load_pictures(open_samples(tmp_path))[1].shape == (1, 4, 4, 1)
    Image.new("RGBA", (4, 4), (10, 20, 30, 0)).save(tmp_path / "b-clear.png")
    Image.fromarray(np.full((4, 4), 25700, np.uint16)).save(tmp_path / "c-deep.png")
    Image.new("P", (4, 4)).save(tmp_path / "d-palette.png")
    Image.new("1", (4, 4), 1).save(tmp_path / "e-bits.png")
    images = load_pictures(open_samples(tmp_path))[1]
    assert images[:, 0, 0].tolist() == [[100] * 3, [255] * 3, [100] * 3, [0] * 3, [255] * 3]


def test_a_photo_is_turned_upright(tmp_path):
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by a quarter
    Image.fromarray(pixels).save(tmp_path / "photo.jpg", exif=exif, quality=100)
    upright = load_pictures(open_samples(tmp_path))[1][0]
    assert upright[2, 8, 0] > 200 > 50 > upright[13, 8, 0]


def test_thumbnails_are_small(tmp_path):
    noise = np.random.default_rng(3).integers(0, 256, (600, 800, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "large.png")
    source = open_samples(tmp_path)
    shown, small = source.media(0), ShownPictures(source, tmp_path / "home").get(0, THUMB)
    assert Image.open(BytesIO(small.content)).size == (160, 120)
    assert len(small.content) < len(shown.content) / 20


def test_thumbnails_look_like_the_pictures(tmp_path):
    """Of sixteen bits, and see-through: nothing turns white or black."""
    noise = np.random.default_rng(3).integers(0, 256, (400, 400), dtype=np.uint16)
    Image.fromarray((100 * 257 + noise).astype(np.uint16)).save(tmp_path / "a-deep.png")
    clear = np.zeros((400, 400, 4), np.uint8)
    clear[..., :3] = noise[..., None]  # hidden by alpha 0
    Image.fromarray(clear).save(tmp_path / "b-clear.png")
    source = open_samples(tmp_path)
    for position, level in ((0, 100), (1, 255)):
        shown = source.media(position)
        assert len(shown.content) > 20_000
        small = np.asarray(Image.open(BytesIO(ShownPictures(source, tmp_path).get(position, THUMB).content)))
        assert abs(small.astype(float) - level).max() <= 3
        assert abs(source.pixels(position).astype(float) - level).max() <= 1


def test_a_file_that_was_replaced_is_not_taken_for_the_one_that_was_there(tmp_path):
    draw_pictures(tmp_path, 2)
    source = open_samples(tmp_path)
    (tmp_path / "00000.png").write_bytes((tmp_path / "00001.png").read_bytes())
    with pytest.raises(UnreadableError, match="another picture than when the folder was opened"):
        source.media(0)
    assert source.media(1).media_type == "image/png"


@pytest.mark.parametrize("size", [40_000, 3_000_000])
def test_pictures_that_differ_in_one_byte_are_two(tmp_path, size):
    """Wherever the byte is: labels of one never become those of the other, also when one is deleted."""
    content = bytearray(b"\xff\xd8\xff" + bytes(size))
    for number, place in enumerate(np.linspace(100, size, 40, dtype=int)):
        content[place] = 1
        (tmp_path / f"{number:02}.jpg").write_bytes(content)
        content[place] = 0
    ids = open_samples(tmp_path).ids
    assert len({one.split("-")[0] for one in ids}) == 40
    (tmp_path / "00.jpg").unlink()
    assert open_samples(tmp_path).ids == ids[1:]


def test_a_large_picture_is_hashed_once(tmp_path, monkeypatch):
    data, home, path = tmp_path / "data", tmp_path / "home", tmp_path / "data" / "a.jpg"
    data.mkdir()
    path.write_bytes(b"\xff\xd8\xff" + bytes(3_000_000))
    hashed, hash_of = [], folder._hash_of
    monkeypatch.setattr(folder, "_hash_of", lambda *given: hashed.append(1) or hash_of(*given))
    open_samples(data, home=home)
    open_samples(data, home=home).file(0).close()
    assert len(hashed) == 3  # within the two seconds in which it may change and keep its times
    monkeypatch.setattr(folder, "SETTLED_NS", 0)
    time.sleep(0.02)  # longer than a tick of the file system's clock
    first = open_samples(data, home=home)
    hashed.clear()
    first.file(0).close()
    again = open_samples(data, home=home)
    again.file(0).close()
    assert again.ids == first.ids
    assert hashed == []
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(1_500_000)
        file.write(b"other")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as programs do that write into a photo
    assert "another picture" in told(again.media, 0)
    assert open_samples(data, home=home).ids != first.ids
    (home / folder.KNOWN_FILES).write_text("[1")
    assert len(open_samples(data, home=home)) == 1


def test_a_link_in_a_circle_is_passed_over(tmp_path):
    draw_pictures(tmp_path, 1)
    (tmp_path / "x.png").symlink_to("x.png")
    assert len(open_samples(tmp_path)) == 1


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's own
def test_damaged_exif_does_not_hide_a_picture():
    exif = Image.Exif()
    exif[0x0112], exif[0x010E], exif[0x9286] = 6, "hello", b"x" * 20
    file = BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(file, "JPEG", exif=exif)
    raw = bytearray(file.getvalue())
    raw[raw.index(b"Exif") + 17] = 84  # the type of a tag's value, which Pillow stumbles over when it turns the picture
    assert pixels_of(decode(bytes(raw), "x.jpg")).shape == (8, 8, 3)


def test_samples_that_were_there_first_stay_first(tmp_path):
    """A file that is added during a job pushes no other out of what was asked for."""
    data, home = draw_pictures(tmp_path / "data", 3), tmp_path / "home"
    before = in_kept_order(open_samples(data), home).ids
    (data / "0000.png").write_bytes((data / "00000.png").read_bytes() + b"more")
    (data / "00001.png").rename(data / "z.png")
    after = in_kept_order(open_samples(data), home)
    assert after.ids[:3] == before
    assert [sample.name for sample in after.samples] == ["00000.png", "z.png", "00002.png", "0000.png"]
    (home / "order.json").write_text("{")
    assert "order.json cannot be read" in told(in_kept_order, open_samples(data), home)


@pytest.mark.skipif(sys.platform != "linux", reason="the system has no names that are not text")
def test_a_name_that_is_not_text_can_be_shown_and_exported(tmp_path):
    draw_pictures(tmp_path, 1)
    (tmp_path / "00000.png").rename(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png"))
    with open(os.fsencode(tmp_path) + b"/bad\xe9.png", "wb") as file:
        file.write(b"no")
    source = open_samples(tmp_path)
    assert [sample.name for sample in source.samples] == ["caf\ufffd.png"]
    assert source.problems[0].reason.startswith("bad\ufffd.png is no PNG")
    assert source.media(0).media_type == "image/png"
    assert "caf\ufffd.png" in export_text("json", source, {})


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs files that cannot be read")
def test_a_file_that_may_not_be_read(tmp_path):
    draw_pictures(tmp_path, 2)
    (tmp_path / "00001.png").chmod(0)
    source = open_samples(tmp_path)
    assert len(source) == 1
    assert "Permission denied" in source.problems[0].reason
