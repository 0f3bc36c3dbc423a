"""Absurd sizes and names in a job file, and one key of two people: a sentence, exit code 2, and nothing on disk."""

import sys

import numpy as np
import pytest

from helpers.commands import truthfl
from helpers.small_jobs import SMALL_JOB
from truthfl.cli.app import main
from truthfl.errors import InputError
from truthfl.job import DataJob, read_job
from truthfl.job.sections import TEST_DRAWS, TimeLimits

SIZES, NAMES = "dataset_size = [120, 120, 150, 90]", '["Ada", "Ben", "Cleo", "Dora"]'
MANY = str([f"c{i}" for i in range(10_001)])
OF_ALL = "dataset_size of all clients together is"
CASES = {
    "samples": (SIZES, "dataset_size = 1e10", f"[clients] {OF_ALL} 40,000,000,000; it must be at most 10,000,000"),
    "endless samples": (SIZES, "dataset_size = inf", "dataset_size is inf for every client"),
    "test draws": ("test_samples = 2000", "test_samples = 100_000_000_000", "[server] test_samples is 100,000,000,000"),
    "test draws, a fraction": ("test_samples = 2000", "test_samples = 1e11", "[server] test_samples is 100000000000.0"),
    "rounds": ("rounds = 30", "rounds = 1_000_000_000_000", "[training] rounds is 1,000,000,000,000; it must be at"),
    "rounds, a fraction": ("rounds = 30", "rounds = 1e12", "[training] rounds is 1000000000000.0; it must be a whole"),
    "local steps": ("rounds = 30", "rounds = 30\nlocal_steps = 1_000_000", "rounds times local_steps is 30,000,000"),
    "pilot": ("pilot_samples = 600", "pilot_samples = 100_000_000_000", "[data] pilot_samples is 100,000,000,000"),
    "test set": ("test_samples = 400", "test_samples = 100_000_000_000", "[data] test_samples is 100,000,000,000"),
    "filters": ('"softmax"', '"cnn"\nfilters = 1_000_000_000', "[model] filters is 1,000,000,000; it must be at most"),
    "noise": ("[contract]", "[privacy]\nclip = 1.0\nnoise = 1e30\n[contract]", "[privacy] noise is 1e+30"),
    "clip": ("[contract]", "[privacy]\nclip = 1e30\n[contract]", "[privacy] clip is 1e+30"),
    "seed": ("pilot_samples = 600", f"pilot_samples = 600\nseed = {10**30}", "[data] seed is a number of "),
    "label cost": ("labeling_cost = [120, 120, 150, 90]", "label_cost = 1e30", "labeling_cost of Ada is 1.2e+32"),
    "many names": (f"{NAMES}\n{SIZES}", f"{MANY}\ndataset_size = 9", "the number of [clients] is 10,001; it must be"),
    "no name": ('"Ada"', '""', "[clients] a name is ''; it must be a text of 1 to 200 letters"),
    "spaces for a name": ('"Ada"', '"   "', "[clients] a name is '   '; it must be"),
    "another space for a name": ('"Ada"', '"\\u00a0"', "[clients] a name is '\\xa0'; it must be"),
    "a control character": ('"Ada"', '"A\\u0007da"', "[clients] a name is 'A\\x07da'; it must be"),
    "two lines": ('"Ada"', '"Ada\\nBen"', "[clients] a name is 'Ada\\nBen'; it must be"),
    "a long name": ('"Ada"', f'"{"x" * 201}"', "[clients] a name is 'xxx"),
    "one name twice": ('"Ben"', '"Ada"', "[clients] name 'Ada' is given to more than one client"),
    "one name twice, but for a space": ('"Ben"', '"Ada "', "[clients] the names 'Ada' and 'Ada ' look the same"),
    "one name twice, in other letters": ('"Ada", "Ben"', '"\\u00e9", "e\\u0301"', "look the same; names must be"),
    **{
        f"{field} {value}": ("loss_value", f"{field} = {value}\nloss_value", f"[server] {field} is ")
        for field in vars(TimeLimits())
        for value in ("inf", "nan", "-1", "0", "1e12", "true")
    },
}  # fmt: skip


def changed(old, new):
    assert old in SMALL_JOB
    without_lists = SMALL_JOB.replace("labeling_cost = [120, 120, 150, 90]", "labeling_cost = 9").replace(
        'behaviour = ["truthful", "free rider", "truthful", "small batch"]', ""
    )
    return (without_lists if "c10000" in new else SMALL_JOB).replace(old, new)


@pytest.mark.parametrize("case", CASES)
def test_absurd_values_are_refused_in_a_sentence_when_the_job_is_read(tmp_path, case):
    old, new, sentence = CASES[case]
    path = tmp_path / "job.toml"
    path.write_text(changed(old, new))
    with pytest.raises(InputError) as refused:
        read_job(path)
    assert sentence in str(refused.value)
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("command", ["run", "plan", "serve", "verify"])
@pytest.mark.parametrize("case", ["samples", "test draws", "rounds", "no name"])
def test_the_commands_say_so_before_they_write(tmp_path, command, case):
    path = tmp_path / "job.toml"
    path.write_text(changed(*CASES[case][:2]))
    out = [] if command == "plan" else ["--out", tmp_path / "out"]
    done = truthfl(command, path, *out)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"truthfl: {path}: ")
    assert CASES[case][2] in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["job.toml"]


def test_the_largest_number_is_taken(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(changed("test_samples = 2000", f"test_samples = {TEST_DRAWS.largest}"))
    assert read_job(path).server.test_samples == TEST_DRAWS.largest
    path.write_text(changed("test_samples = 2000", f"test_samples = {TEST_DRAWS.largest + 1}"))
    with pytest.raises(InputError, match="10,000,001; it must be at most 10,000,000"):
        read_job(path)


def test_many_names_of_which_one_is_there_twice_are_checked_fast(tmp_path):
    path = tmp_path / "job.toml"
    names = str([*(f"c{i}" for i in range(100_000)), "c99999"])
    path.write_text(changed(f"{NAMES}\n{SIZES}", f"{names}\ndataset_size = 9"))
    with pytest.raises(InputError, match="name 'c99999' is given to more than one client"):
        read_job(path)  # the test's time limit is the measure: comparing each with each takes minutes


def test_one_key_of_two_participants_is_refused(tmp_path):
    (tmp_path / "job.toml").write_text(SMALL_JOB)
    people = tmp_path / "people"
    for name in ("Ada", "Ben", "Cleo"):
        assert truthfl("keys", "participant", name, "--out", people).returncode == 0
    key, comment = (people / "Ada.pub").read_text().rsplit(" ", 1)
    (people / "Cleo.pub").write_text(f"{key}   someone else\n")
    assert comment
    done = truthfl("serve", tmp_path / "job.toml", "--participants", people, "--out", tmp_path / "out", "--yes")
    assert done.returncode == 2
    assert done.stderr == (
        f"truthfl: {people / 'Ada.pub'} and {people / 'Cleo.pub'} are the same key; each participant needs "
        "their own key.\n"
    )
    assert not (tmp_path / "out").exists()


def test_too_little_memory_is_a_sentence(tmp_path, monkeypatch, capsys):
    """As NumPy raises it where an array does not fit."""

    def too_large(_):
        return np.zeros(2**45)

    path = tmp_path / "job.toml"
    path.write_text(changed("test_samples = 2000", f"test_samples = {TEST_DRAWS.largest}"))
    monkeypatch.setattr(DataJob, "server_side", too_large)
    monkeypatch.setattr(sys, "argv", ["truthfl", "plan", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    assert capsys.readouterr().err.splitlines()[-1].startswith("truthfl: there is not enough memory")
