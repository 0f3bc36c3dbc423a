"""A job goes on as it was begun, whatever its file says today; another one begins only when that is asked for."""

from pathlib import Path

import pytest

from helpers.databases import KEY
from helpers.small_jobs import small_job_file
from truthfl.errors import InputError, ServiceError
from truthfl.federation.operator import kept_jobs
from truthfl.federation.operator.kept_jobs import JobSource, choose_job, kept_job, kept_job_names, lock_folder
from truthfl.ledger.book import open_ledger


@pytest.fixture
def text(tmp_path):
    return small_job_file(tmp_path).read_text(encoding="utf-8")


def source(text, *, seed=None, contract=""):
    return JobSource(text, Path(), "job.toml", contract, seed)


def begun(folder, text, **how):
    """A job that is kept, and whose first row is in the ledger."""
    with open_ledger(folder / "ledger.db", KEY) as book:
        kept = choose_job(folder, book, source(text, **how))
        book.append(kept.name, "job", "job", {"job": kept.job.document()})
    return kept


def chosen(folder, text, *, new=False, **how):
    with open_ledger(folder / "ledger.db", KEY) as book:
        return choose_job(folder, book, source(text, **how), new=new)


def test_the_same_command_goes_on_with_the_same_draws(tmp_path, text):
    first = begun(tmp_path, text)
    again = chosen(tmp_path, text)
    assert (again.name, again.draws, again.differences, again.is_new) == (first.name, first.draws, (), False)
    assert first.is_new
    assert kept_job(tmp_path, first.name).draws == first.draws
    assert (tmp_path / "jobs" / first.name / "secrets.json").stat().st_mode & 0o077 == 0


def test_a_changed_file_changes_nothing_and_is_told(tmp_path, text):
    first = begun(tmp_path, text)
    again = chosen(tmp_path, text.replace("rounds = 30", "rounds = 31"), seed=5)
    assert (again.name, again.draws, again.job.training.rounds) == (first.name, first.draws, 30)
    assert again.differences[0] == "training.rounds was 30 and is 31"
    assert again.differences[-1] == f"seed was {first.draws.seed} and is 5"
    broken = chosen(tmp_path, "no TOML")
    assert broken.name == first.name
    assert broken.differences[0].startswith("it cannot be used: job.toml is not valid TOML")


def test_another_job_begins_only_if_told_and_keeps_the_secrets_of_the_first(tmp_path, text):
    first = begun(tmp_path, text)
    before = (tmp_path / "jobs" / first.name / "secrets.json").read_text()
    second = chosen(tmp_path, text, new=True)
    assert second.is_new
    assert second.name != first.name
    assert second.draws.secret != first.draws.secret
    assert (tmp_path / "jobs" / first.name / "secrets.json").read_text() == before
    assert kept_job_names(tmp_path) == [first.name, second.name]
    assert chosen(tmp_path, text).name == second.name


def test_with_the_same_seed_another_job_has_another_name(tmp_path, text):
    first, second = begun(tmp_path, text, seed=3), chosen(tmp_path, text, seed=3, new=True)
    assert first.draws == second.draws
    assert (first.name[-2:], second.name[-2:]) == ("-1", "-2")


def test_after_completion_the_same_is_shown_and_another_is_refused(tmp_path, text, monkeypatch):
    first = begun(tmp_path, text)
    monkeypatch.setattr(kept_jobs, "is_complete", lambda *_: True)
    again = chosen(tmp_path, text)
    assert (again.name, again.complete) == (first.name, True)
    with pytest.raises(InputError, match=r"is complete, and job.toml describes another one \(training"):
        chosen(tmp_path, text.replace("rounds = 30", "rounds = 31"))


def test_files_that_are_not_the_signed_ones_stop_the_job(tmp_path, text):
    first = begun(tmp_path, text)
    kept = tmp_path / "jobs" / first.name / "job.toml"
    kept.write_text(text.replace("rounds = 30", "rounds = 29"), encoding="utf-8")
    with pytest.raises(InputError, match=r"was begun with other files than there are now: training\.rounds was 30 and"):
        chosen(tmp_path, text)
    kept.unlink()
    with pytest.raises(InputError, match=r"job\.toml cannot be read; without it"):
        chosen(tmp_path, text)
    (tmp_path / "jobs" / first.name / "origin.json").write_text("{")
    with pytest.raises(InputError, match=r"origin\.json cannot be read"):
        chosen(tmp_path, text)


def test_one_server_per_folder(tmp_path):
    with (
        lock_folder(tmp_path),
        pytest.raises(ServiceError, match=r"another server, process [0-9]+, runs on "),
        lock_folder(tmp_path),
    ):
        pass
    with lock_folder(tmp_path):  # and it is free again
        pass


@pytest.mark.parametrize("made", ["checkpoints/{}", "models/{}-solo.npy", "models/{}.npy"])
def test_a_job_whose_ledger_is_gone_does_not_begin_anew(tmp_path, text, made):
    """People would be asked and paid again under the name of a job that has rounds."""
    first = begun(tmp_path, text)
    path = tmp_path / made.format(first.name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x")
    assert chosen(tmp_path, text).name == first.name
    for file in tmp_path.glob("ledger.db*"):
        file.unlink()
    with pytest.raises(InputError) as error:
        chosen(tmp_path, text)
    assert str(error.value) == (
        f"{tmp_path}/ledger.db has no rows of job {first.name}, of which there is {path}: the ledger is gone, or "
        "another. Put it back, from a backup if need be, or begin another job with --new."
    )
    assert chosen(tmp_path, text, new=True).is_new


@pytest.mark.parametrize("content", ["[1, null]", "null", "", "\udc80", "[" * 5000])
def test_an_origin_that_is_none_is_told_in_a_sentence(tmp_path, text, content):
    first = begun(tmp_path, text)
    path = tmp_path / "jobs" / first.name / "origin.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=r"origin.json cannot be read; without it its job cannot go on\.$"):
        chosen(tmp_path, text)


def test_a_lock_that_is_a_folder_is_told_in_a_sentence(tmp_path):
    (tmp_path / "serve.lock").mkdir()
    with (
        pytest.raises(InputError, match=r"serve.lock is a folder, where a file must be; remove it\."),
        lock_folder(tmp_path),
    ):
        pass
    (tmp_path / "serve.lock").rmdir()
    (tmp_path / "serve.lock").write_bytes(b"\xff\xfe" * 30)
    with lock_folder(tmp_path), pytest.raises(ServiceError, match="another server"), lock_folder(tmp_path):
        pass
