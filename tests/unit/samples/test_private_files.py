"""Files of operators and participants are for their owner alone."""

import os
import stat
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from helpers.commands import truthfl
from helpers.participants import another_user_can_open, can_be_another_user, draw_pictures
from truthfl.errors import ServiceError
from truthfl.files import create_private_file, make_private_folder, new_private_folder
from truthfl.ledger.book import open_ledger
from truthfl.samples.label_store import LabelStore


@pytest.mark.skipif(not can_be_another_user(), reason="only root can act as another user")
def test_another_user_opens_nothing():
    with TemporaryDirectory() as place:  # unlike tmp_path, in folders that all may enter
        folder = Path(place)
        folder.chmod(0o755)
        (folder / "told").write_text("all")
        make_private_folder(folder / "link")
        open_ledger(str(folder / "ledger.db")).close()
        create_private_file(folder / "link" / "secret")
        opened = {name: another_user_can_open(folder / name) for name in ("told", "ledger.db", "link/secret")}
    assert opened == {"told": True, "ledger.db": False, "link/secret": False}


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_private_is_so_whatever_the_umask(tmp_path, monkeypatch):
    before = os.umask(0)
    try:
        make_private_folder(tmp_path / "new" / "folder")
        open_ledger(str(tmp_path / "ledger.db")).close()
        with open_ledger(str(tmp_path / "open.db")):
            modes = {path.name: _mode(path) for path in tmp_path.glob("open.db*")}
        LabelStore(tmp_path / "labels.db").close()
        (tmp_path / "wide").mkdir(mode=0o755)
        make_private_folder(tmp_path / "wide")
        create_private_file(tmp_path / "file")
        create_private_file(tmp_path / "file")
        (tmp_path / "shared" / "deeper").mkdir(mode=0o755, parents=True)
        monkeypatch.chdir(tmp_path / "shared" / "deeper")
        make_private_folder(tmp_path / "shared")
    finally:
        os.umask(before)
    assert len(modes) > 1
    assert set(modes.values()) == {0o600}
    assert {_mode(tmp_path / name) for name in ("ledger.db", "labels.db", "file")} == {0o600}
    assert {_mode(tmp_path / name) for name in ("new/folder", "wide")} == {0o700}
    assert _mode(tmp_path / "shared") != 0o700
    with pytest.raises(ServiceError, match="cannot be made private: File exists"):
        make_private_folder(tmp_path / "file")
    with pytest.raises(ServiceError, match="cannot be written: No such file"):
        create_private_file(tmp_path / "nowhere" / "file")


def test_git_leaves_out_what_is_private(tmp_path, monkeypatch):
    """Keys, homes and an operator's folder in a repository: `git add .` takes none of their files."""
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "--quiet", "."], check=True)
    done = [
        truthfl("keys", "participant", "Ada", cwd=tmp_path),
        truthfl("keys", "server", "--out", "certificates", cwd=tmp_path),
        truthfl("label", "--data", draw_pictures(tmp_path / "photos", 1), "--export", "all.csv", cwd=tmp_path),
    ]
    assert [one.returncode for one in done] == [0, 0, 0], [one.stderr for one in done]
    make_private_folder(tmp_path / "truthfl-serve")
    create_private_file(tmp_path / "truthfl-serve" / "secrets.json")
    with new_private_folder(tmp_path / "restored") as folder:
        create_private_file(folder / "ledger.db")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / ".gitignore").write_text("mine\n")
    make_private_folder(tmp_path / "kept")
    make_private_folder(tmp_path)  # the current folder stays as it is
    subprocess.run(["git", "add", "."], check=True)
    added = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout.split()
    assert added == ["all.csv", "kept/.gitignore", "photos/00000.png"]
    for name in ("keys/Ada", "certificates/server.key", "truthfl-home/labels.db", "truthfl-serve/secrets.json"):
        assert (tmp_path / name).is_file()
    assert (tmp_path / "kept" / ".gitignore").read_text() == "mine\n"


def test_the_repository_leaves_out_what_commands_write_by_default():
    named = Path(__file__).parents[3].joinpath(".gitignore").read_text().split()
    assert {"truthfl-serve/", "truthfl-home/", "truthfl-run/", "/keys/"} <= set(named)
