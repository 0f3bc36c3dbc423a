"""The password of a PostgreSQL address is in no output, and in no file that others can read."""

import stat
import sys

import pytest
from sqlalchemy import make_url

from helpers.commands import told
from helpers.small_jobs import small_job_file
from truthfl.cli.app import main
from truthfl.errors import ServiceError
from truthfl.federation.operator.kept_jobs import keep_ledger_address, kept_ledger_address
from truthfl.ledger.book import open_ledger
from truthfl.ledger.sql.database import shown_address, shown_arguments

PASSWORD = "hunter-2/%3D@="


@pytest.fixture
def address(postgresql_database):
    """With a password, which the server for tests does not ask for."""
    return make_url(postgresql_database).set(password=PASSWORD).render_as_string(hide_password=False)


def spellings(address):
    """The password as it is, and as an address spells it."""
    return [PASSWORD, address.split("://")[1].split(":", 1)[1].split("@")[0]]


def files_with(folder, words):
    """The files that have one of these words in them, with their permissions."""
    found = [
        path for path in folder.rglob("*") if path.is_file() and any(w.encode() in path.read_bytes() for w in words)
    ]
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in found}


def test_a_run_tells_no_password(address, tmp_path, monkeypatch, capsys):
    job = small_job_file(tmp_path, "rounds = 30", "rounds = 2\nstep_size = 0.5")
    arguments = ["run", str(job), "--out", str(tmp_path / "out"), "--ledger", address]
    monkeypatch.setattr(sys, "argv", ["truthfl", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 0, said.err
    assert "Ledger: postgresql://" in said.out
    assert not any(word in said.out + said.err for word in spellings(address))
    assert files_with(tmp_path, spellings(address)) == {}


def test_a_server_keeps_the_password_where_only_its_owner_can_read_it(tmp_path):
    keep_ledger_address(tmp_path, f"postgresql://u:{PASSWORD}@h/d")
    assert files_with(tmp_path, [PASSWORD]) == {"ledger.address": 0o600}
    assert kept_ledger_address(tmp_path) == f"postgresql://u:{PASSWORD}@h/d"
    assert "ledger.address cannot be read" in told(kept_ledger_address, tmp_path / "other")


def test_addresses_as_they_are_shown():
    address = "postgresql://u:secret@h:5432/d?password=secret&sslpassword=secret"
    assert shown_address(address) == "postgresql://h:5432/d"
    assert shown_arguments(["run", "a=b.toml", f"--ledger={address}", "--ledger", address, "postgres.db"]) == [
        "run",
        "a=b.toml",
        "--ledger=postgresql://h:5432/d",
        "--ledger",
        "postgresql://h:5432/d",
        "postgres.db",
    ]
    assert shown_arguments(["postgres:u:secret@h"]) == ["postgresql://"]
    cannot = "the ledger's address cannot be read; it must look like postgresql://user@host/database."
    assert told(open_ledger, "postgresql:/u:secret@h/d") == cannot
    assert "secret" not in told(open_ledger, "postgresql://u:secret@no.such.host.invalid/d", kind=ServiceError)
