"""Invitations: one file or line, good once, for one key, until it expires, on the server that made it."""

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.databases import opening
from truthfl.errors import InputError
from truthfl.federation.deployed.admission import KnownKeys, enrolment_warning
from truthfl.federation.deployed.invitations import LINE_START, Invitation, meeting_place, read_invitation
from truthfl.ledger.book import open_ledger
from truthfl.ledger.checking import check
from truthfl.ledger.command_rows import admit, code_digest, give_command, keys_by_admission, new_code
from truthfl.ledger.commands import INVITE, new_command, time_text
from truthfl.ledger.documents import signed
from truthfl.ledger.signing import new_key, public_line, read_key, write_key

JOB = "j-1"
OPERATOR = public_line(new_key())
ADA = Invitation(
    "fl.example.org:8443", "Ada", "code", "2030-01-01T00:00:00+00:00", OPERATOR, "-----BEGIN CERTIFICATE-----\n"
)


@pytest.fixture
def job(tmp_path):
    """A ledger with a job, and the operator's key."""
    key = new_key()
    with open_ledger(tmp_path / "ledger.db", key) as book:
        book.append(JOB, "job", "job", opening(key))
        yield book, key


def invite(job, name, *, days=1.0, to=JOB):
    book, key = job
    code, expires = new_code(), time_text(datetime.now(UTC) + timedelta(days=days))
    give_command(
        book,
        to,
        key,
        lambda: new_command(INVITE, to, "me", name=name, code_digest=code_digest(code), expires=expires),
    )
    return code


def asks(name, code, key):
    return {"name": name, "code": code, "public_key": public_line(key)}


def test_a_code_admits_one_key_once(job):
    book, _ = job
    code, own, other = invite(job, "Ada"), new_key(), new_key()
    assert admit(book, JOB, asks("Ada", code, own)) == ("Ada", public_line(own))
    assert admit(book, JOB, asks("Ada", code, own)) == ("Ada", public_line(own))  # Ada joins again
    with pytest.raises(InputError, match="was used already"):
        admit(book, JOB, asks("Ada", code, other))
    assert len(book.entries(JOB, "admission")) == 1


def test_what_admits_nobody(job):
    book, _ = job
    code, old = invite(job, "Ada"), invite(job, "Ben", days=-0.001)
    for request, said in (
        (asks("Ada", "guess", new_key()), "not of this server's job"),
        (asks("Ben", code, new_key()), "not of this server's job"),  # it is Ada's
        (asks("Ben", old, new_key()), "was good until"),
        ({"name": "Ada", "code": code}, "no public key"),
        ({"name": ["Ada"], "code": {}, "public_key": public_line(new_key())}, "not of this server's job"),
    ):
        with pytest.raises(InputError, match=said):
            admit(book, JOB, request)
    forged = new_command(INVITE, JOB, "Mallory", name="Ada", code_digest=code_digest("mine"), expires=ADA.expires)
    book.append(JOB, "command", "3", signed(new_key(), replace(forged, number=3).document()))
    with pytest.raises(InputError, match="not of this server's job"):
        admit(book, JOB, asks("Ada", "mine", new_key()))
    assert book.entries(JOB, "admission") == []


def test_an_admission_without_invitation_is_found_by_the_check(job):
    book, _ = job
    document = {"client": "Ada", "public_key": public_line(new_key()), "invitation": code_digest("x"), "code": "x"}
    book.append(JOB, "admission", code_digest("x"), document)
    assert "the operator did not invite them before it" in str(check(book.entries()))


def test_who_is_known_by_file_or_admission_also_while_the_server_runs(job, tmp_path):
    book, _ = job
    known = KnownKeys(book, JOB, tmp_path / "people", ("Ada", "Ben", "../Eve"))
    ada, ben = new_key(), new_key()
    assert known.lines() == {}
    write_key(ben, tmp_path / "people" / "Ben")
    assert known.look_up(public_line(ben)) == "Ben"
    assert known.look_up(public_line(ada)) is None
    assert known.admit(asks("Ada", invite(job, "Ada"), ada)) == "Ada is admitted."
    assert known.lines() == {"Ben": public_line(ben), "Ada": public_line(ada)}
    with pytest.raises(InputError, match="not of this server's job"):
        known.admit(asks("Zoe", invite(job, "Zoe"), new_key()))
    known.admit(asks("../Eve", invite(job, "../Eve"), new_key()))
    assert {path.name for path in (tmp_path / "people").iterdir()} == {".gitignore", "Ben", "Ben.pub"}


def test_an_invitation_admits_where_the_folder_of_keys_cannot_be_written_to(job):
    book, _ = job
    ada, known = new_key(), KnownKeys(book, JOB, Path("/proc"), ("Ada",))
    assert known.admit(asks("Ada", invite(job, "Ada"), ada)) == "Ada is admitted."
    assert known.look_up(public_line(ada)) == "Ada"


def test_somebody_who_was_admitted_is_known_in_the_operators_next_job_unless_somebody_is_invited_there(job):
    book, key = job
    ada, stranger = new_key(), new_key()
    admit(book, JOB, asks("Ada", invite(job, "Ada"), ada))
    for name, operator in (("next", key), ("another's", new_key())):
        book.append(name, "job", "job", {"job": {}, "operator_key": public_line(operator)})
    assert keys_by_admission(book, "next", ("Ada", "Ben")) == {"Ada": public_line(ada)}
    assert keys_by_admission(book, "next", ("Ben",)) == {}
    assert keys_by_admission(book, "another's", ("Ada",)) == {}
    code = invite(job, "Ada", to="next")
    assert keys_by_admission(book, "next", ("Ada",)) == {}
    admit(book, "next", asks("Ada", code, stranger))
    assert keys_by_admission(book, "next", ("Ada",)) == {"Ada": public_line(stranger)}


def test_as_file_and_as_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text(ADA.text(), encoding="utf-8")
    (tmp_path / "line").write_text(ADA.line() + "\n", encoding="utf-8")
    assert read_invitation(str(tmp_path / "file")) == ADA
    assert read_invitation(str(tmp_path / "line")) == ADA
    assert read_invitation(ADA.line()) == ADA
    monkeypatch.setattr("sys.stdin", io.StringIO(ADA.line() + "\n"))
    assert read_invitation("-") == ADA
    assert "code" not in repr(ADA).replace("code=", "")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is no invitation"),
        ("{}", "is no invitation"),
        ("[" * 5000, "is no invitation"),
        (ADA.text()[:-20], "is no invitation"),
        (ADA.line()[:-9], "is no invitation"),
        (LINE_START + "AAAA", "is no invitation"),
        (ADA.text().replace('"Ada"', '"A\\u0007da"'), "without control characters"),
        (ADA.text().replace('"Ada"', "7"), "is no invitation"),
        (ADA.text().replace(OPERATOR, "ssh-rsa AAAA"), "the operator's key in the invitation is no public key"),
        (ADA.text().replace(f'  "operator": "{OPERATOR}",\n', ""), "is no invitation"),
    ],
)
def test_what_is_no_invitation(tmp_path, content, said):
    (tmp_path / "file").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_invitation(str(tmp_path / "file"))


@given(st.text(max_size=300))
def test_any_line_is_read_or_refused_in_a_sentence(text):
    with pytest.raises(InputError):
        read_invitation(LINE_START + text)


def test_joining_by_invitation_makes_the_key_once(tmp_path):
    (tmp_path / "file").write_text(ADA.text(), encoding="utf-8")
    first = meeting_place(str(tmp_path / "file"), None, None, None, None, None, tmp_path / "home")
    key = public_line(read_key(first.key))
    again = meeting_place(str(tmp_path / "file"), None, None, None, None, None, tmp_path / "home")
    assert (again.host, again.port, again.name) == ("fl.example.org", 8443, "Ada")
    assert public_line(read_key(again.key)) == key
    assert again.root.read_text() == ADA.root
    assert again.operator == OPERATOR
    assert (tmp_path / "home").stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match="--name is given beside an invitation"):
        meeting_place(str(tmp_path / "file"), None, "Ben", None, None, None, tmp_path / "home")
    with pytest.raises(InputError, match="--server is missing"):
        meeting_place(None, None, "Ben", None, None, None, tmp_path / "home")


def test_the_operator_is_warned_of_invitations_that_outlive_enrolment():
    assert enrolment_warning([], 300.0) is None
    assert enrolment_warning(["Ada"], 604_800.0) is None
    said = enrolment_warning([f"P{number}" for number in range(12)], 300.0)
    assert "P9 and 2 more can be invited" in said
    assert "good for 7 days unless you say otherwise, but the job admits people for 300 seconds" in said
