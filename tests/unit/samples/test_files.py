"""Files are written whole or not at all, wherever one is written."""

import ast
import errno
import os
import stat
from pathlib import Path
from threading import Barrier, Thread

import numpy as np
import pytest

import truthfl
from helpers.participants import an_offer
from truthfl.certificates import make_certificates
from truthfl.errors import InputError, ServiceError
from truthfl.federation.masking import participant as masked_reports
from truthfl.federation.operator.kept_jobs import kept_draws
from truthfl.federation.protocol.final_model import publish_model
from truthfl.federation.protocol.recorder import Checkpoint, read_checkpoint, write_checkpoint
from truthfl.files import make_folder, make_private_folder, without_waiting_for_disk, write_file
from truthfl.home import participant_folder
from truthfl.home.record import RoundRecord, note_commitment, open_rounds
from truthfl.learning.data.samples import LabeledImages
from truthfl.ledger.signing import AgreementKey, new_key, read_key, write_key
from truthfl.samples.folder import in_kept_order
from truthfl.samples.sources import open_samples
from truthfl.studies.work import Store, WorkItem

SOURCE = Path(truthfl.__file__).parent


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def drafts(folder):
    return [str(path) for path in folder.rglob("*") if "draft" in path.name or path.name.startswith(".")]


def test_a_file_is_made_with_its_folder_and_replaced(tmp_path):
    path = tmp_path / "a" / "b"
    assert write_file(path, "één\n")
    assert path.read_bytes() == "één\n".encode()
    assert write_file(path, b"two", sync=False)
    assert path.read_bytes() == b"two"
    assert not write_file(path, b"three", keep_existing=True)
    assert path.read_bytes() == b"two"
    assert drafts(tmp_path) == []


@pytest.mark.parametrize("step", ["replace", "fsync", "open"])
def test_a_write_that_fails_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch, step):
    path = tmp_path / "a"
    write_file(path, "old")
    monkeypatch.setattr(os, step, full_disk)
    with pytest.raises(ServiceError, match="a cannot be written: No space left on device"):
        write_file(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert drafts(tmp_path) == []


@pytest.mark.parametrize("links", [True, False])
def test_of_several_writers_exactly_one_wins(tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(os, "link", full_disk)
    barrier, won = Barrier(8), []

    def write(number):
        barrier.wait()
        if write_file(tmp_path / "a", str(number), keep_existing=True):
            won.append(number)

    threads = [Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert (tmp_path / "a").read_text() == str(won[0])
    assert drafts(tmp_path) == []


def test_a_private_file_is_private_from_its_first_byte_on(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(os, "fsync", lambda handle: seen.append(os.fstat(handle).st_mode))
    before = os.umask(0)
    try:
        write_file(tmp_path / "a", "secret", private=True)
        write_key(new_key(), tmp_path / "key")
        make_certificates(tmp_path / "keys")
        kept_draws(tmp_path)
    finally:
        os.umask(before)
    files = [stat.S_IMODE(mode) for mode in seen if stat.S_ISREG(mode)]
    assert files[:2] == [0o600, 0o600]
    for name in ("a", "key", "keys/server.key", "secrets.json"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_device_and_a_link_are_written_to_and_not_replaced(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "there")
    write_file(link, "one")
    write_file(link, "two")
    assert link.is_symlink()
    assert (tmp_path / "there").read_text() == "two"
    write_file(Path("/dev/null"), "gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(ServiceError, match="/dev/full cannot be written: No space left on device"):
        write_file(Path("/dev/full"), "much")
    with pytest.raises(ServiceError, match="Is a directory"):
        write_file(tmp_path, "x")
    with pytest.raises(ServiceError, match="Not a directory"):
        write_file(tmp_path / "there" / "x" / "y", "x")


def test_a_key_is_never_replaced_and_never_half_written(tmp_path, monkeypatch):
    path = tmp_path / "key"
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(ServiceError, match="key cannot be written: No space left on device"):
        write_key(new_key(), path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    write_key(new_key(), path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="key exists already, and a key is not replaced"):
        write_key(new_key(), path)
    assert path.read_bytes() == before
    read_key(path)


def _order(folder, number):
    pictures = folder / "pictures.npz"
    np.savez(pictures, images=np.full((number, 2, 2), number, np.uint8))
    in_kept_order(open_samples(pictures), folder / "home")


WRITERS = {
    "checkpoint": lambda folder, n: write_checkpoint(folder / "c", Checkpoint(n, w := np.zeros(n, np.float32), w, ())),
    "model": lambda folder, n: publish_model(
        folder, "job", np.zeros(n, np.float32), LabeledImages(np.zeros((n, 2, 2), np.uint8), [0] * n, ("a", "b"))
    ),
    "news": lambda folder, n: participant_folder.put_news(folder, f"{n}", over=False),
    "result": lambda folder, n: Store(folder).put(WorkItem("m:f", {}), {"a": np.zeros(n)}),
    "order": _order,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_leaves_the_old_file_when_the_disk_is_full(tmp_path, monkeypatch, name):
    WRITERS[name](tmp_path, 1)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".npz"}
    assert before or name in ("model", "result")
    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(ServiceError, match="cannot be written: No space left on device"):
        WRITERS[name](tmp_path, 2)
    assert {path: path.read_bytes() for path in before} == before
    assert drafts(tmp_path) == []
    if name == "checkpoint":
        assert read_checkpoint(tmp_path / "c").rounds == 1


def test_nothing_else_writes_files_whole():
    """A call that writes a file past `write_file` is found here."""
    calls = {"write_text", "write_bytes", "save", "savez", "savez_compressed", "tofile", "replace", "rename", "link"}
    named = {"files.py", "learning/data/datasets.py"}
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in calls:
                on = ast.unparse(node.func.value)
                writes = node.func.attr.startswith(("write_", "to")) or on in ("os", "np") or "draft" in on
                if writes and str(path.relative_to(SOURCE)) not in named:
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert found == []


@pytest.fixture
def synced(monkeypatch):
    """The paths of files and folders for which somebody waited until they were on the disk."""
    paths, fsync = [], os.fsync

    def noted(handle):
        paths.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    return paths


@pytest.mark.parametrize("make", [make_private_folder, make_folder])
def test_a_new_folder_is_on_the_disk_with_its_name(tmp_path, synced, make):
    make(tmp_path / "new" / "home")
    assert {tmp_path, tmp_path / "new"} <= set(synced)
    synced.clear()
    make(tmp_path / "new" / "home")
    assert synced == []


def test_what_a_participant_signed_and_got_is_on_the_disk_with_its_name(tmp_path, synced, monkeypatch):
    """Of papers, keys, mask terms and rounds: the content, the name in its folder, and the folder in the one above."""
    monkeypatch.setattr(masked_reports, "mask_terms_from", lambda *_: None)  # these need no peers
    home, key = tmp_path / "home", new_key()
    home.mkdir()
    offer = an_offer(key, new_key())
    participant_folder.put_offer(home, offer)
    participant_folder.put_answer(home, offer, key, accepted=True)
    participant_folder.put_final(home, offer, {"document": {}, "signature": ""})
    participant_folder.put_receipt(home, {"document": {}}, offer.job.name)
    note_commitment(home, offer.hash, "ab" * 32)
    masked_reports.MaskingClient(offer, AgreementKey.generate(), home).keep_terms({})
    with open_rounds(home, offer.hash) as rounds:
        rounds.append(RoundRecord(0, "ab" * 32, "cd" * 32))
    names = ("offers", "agreements", "answers", "finals", "receipts", "auditions", "masks", "rounds")
    for name in names:
        folder = home / name
        contents = [path for path in synced if path.parent == folder]
        assert contents, f"nothing in {name} was waited for"
        assert folder in synced[synced.index(contents[0]) :] or name == "rounds", f"no name in {name} was waited for"
        assert folder in synced
    assert synced.count(home) == len(names)  # once for each new folder


def test_a_simulation_does_not_wait_for_the_disk(tmp_path, synced):
    with without_waiting_for_disk():
        participant_folder.put_offer(tmp_path / "home", an_offer(new_key(), new_key()))
        with open_rounds(tmp_path / "home", "ab" * 32) as rounds:
            rounds.append(RoundRecord(0, "ab" * 32, "cd" * 32))
    assert synced == []
