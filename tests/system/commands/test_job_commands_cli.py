"""Commands to a job at the operator's terminal: what they write, say and refuse."""

import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from helpers.databases import opening
from truthfl.cli.app import main
from truthfl.federation.operator.approval import PlanSummary, ask_by_file, show_plan
from truthfl.federation.operator.live_status import APPROVING, LABELING, LiveWriter, ServingInfo, write_serving
from truthfl.federation.protocol.job_control import commanded_answer
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import digest
from truthfl.ledger.commands import time_text
from truthfl.ledger.job_state import OfferNumbers
from truthfl.ledger.signing import new_key, public_line, write_key


class Desk:
    """An operator's folder with a job that was begun, and the words of the terminal."""

    def __init__(self, folder, capsys, monkeypatch):
        self.folder, self.capsys, self.monkeypatch = folder / "served", capsys, monkeypatch
        key = self.key = new_key()
        write_key(key, self.folder / "operator")
        with open_ledger(self.folder / "ledger.db", key) as book:
            document = opening(key, job={"clients": {"name": ["Ada", "Ben"]}})
            book.append("job-1", "job", "job", document)

    def says(self, *words):
        """The exit code, and what a command prints."""
        self.monkeypatch.setattr(sys, "argv", ["truthfl", *words, "--out", str(self.folder)])
        with pytest.raises(SystemExit) as left:
            main()
        told = self.capsys.readouterr()
        return left.value.code, (told.out + told.err).strip()

    def commands(self):
        with open_ledger(self.folder / "ledger.db") as book:
            return [entry.document["document"] for entry in book.entries("job-1", "command")]

    def append(self, kind, key, document, job="job-1"):
        with open_ledger(self.folder / "ledger.db", self.key) as book:
            book.append(job, kind, key, document)

    def refuses(self, sentence, *words):
        before = self.commands()
        assert self.says(*words) == (2, f"truthfl: {sentence}")
        assert self.commands() == before


LATER = " It takes effect when the server goes on."


@pytest.fixture
def desk(tmp_path, capsys, monkeypatch):
    return Desk(tmp_path, capsys, monkeypatch)


def test_by_means_minutes_and_nobodys_name(desk):
    for words in (["pause"], ["resume"], ["end"], ["remove", "Ben"]):
        code, said = desk.says(*words, "--by", "30")
        assert (code, "--by" in said, desk.commands()) == (2, True, [])


def test_an_invitation_that_cannot_be_kept_is_not_signed(desk):
    serving = ServingInfo(
        "job-1",
        str(desk.folder / "ledger.db"),
        str(desk.folder / "operator"),
        "127.0.0.1",
        1,
        "",
        "people",
        "ecdsa-sha2",
    )
    write_serving(desk.folder, serving)
    code, said = desk.says("invite", "Ada", "--file", "/proc/Ada.invitation")
    assert (code, "cannot be written" in said, desk.commands()) == (3, True, [])
    target = desk.folder / "Zoe.invitation"
    code, said = desk.says("invite", "Zoe", "--file", str(target))
    assert (code, "is not among the job's clients" in said, target.exists()) == (2, True, False)
    target.write_text("kept")
    code, said = desk.says("invite", "Ada", "--file", str(target))
    assert (code, "exists already" in said, target.read_text(), desk.commands()) == (2, True, "kept", [])


def test_a_pause_and_its_end(desk):
    sentence = "Job job-1: paused; truthfl resume lets it go on."
    assert desk.says("pause", "--why", "noon", "--as", "Olga") == (0, sentence + LATER)
    (pause,) = desk.commands()
    assert (pause["kind"], pause["job"], pause["by"], pause["why"]) == ("pause", "job-1", "Olga", "noon")
    desk.refuses("job job-1 is paused already; truthfl resume lets it go on.", "pause")
    assert desk.says("resume") == (0, f"Job job-1: resumed.{LATER}")
    desk.refuses("job job-1 is not paused; there is nothing to resume.", "resume")
    assert desk.commands()[1]["by"]


def test_a_removal(desk):
    assert desk.says("remove", "Ben", "--why", "left") == (0, f"Job job-1: nothing more is asked of Ben.{LATER}")
    assert desk.commands()[0]["client"] == "Ben"
    desk.refuses("Ben was removed already.", "remove", "Ben")
    desk.refuses("'Zoe' is not in job job-1; it has Ada, Ben.", "remove", "Zoe")


def test_an_end(desk):
    code, sentence = desk.says("end", "--why", "no money")
    assert (code, sentence) == (0, f"Job job-1: it ends; unless all offers are accepted by now, nobody is paid.{LATER}")
    code, sentence = desk.says("end")
    assert code == 2
    assert sentence.startswith("truthfl: job job-1 was told to end at ")
    assert len(desk.commands()) == 1


@pytest.mark.parametrize("words", [["pause"], ["resume"], ["end"], ["remove", "Ben"], ["extend", "label", "--by", "5"]])
def test_nothing_can_be_done_to_a_job_that_is_over(desk, words):
    desk.append("test", "test", {"loss": 1.0})
    desk.refuses("job job-1 is trained and tested; nothing can be done to it.", *words)
    desk.append("ended", "ended", {"rounds": 0, "asked": {}})
    desk.refuses("job job-1 was ended; nothing can be done to it.", *words)


def clock(seconds):
    return datetime.now(UTC) + timedelta(seconds=seconds)


def test_an_extension(desk):
    until = clock(3600)
    words = ["extend", "label", "--until", f"{until:%Y-%m-%dT%H:%M}", "--as", "Olga"]
    code, sentence = desk.says(*words)
    assert code == 0
    assert f"{until:%H:%M} UTC to label." in sentence
    (given,) = desk.commands()
    assert (given["kind"], given["stage"], given["by"]) == ("extend", "labeling", "Olga")
    assert given["until"][:16] == f"{until:%Y-%m-%dT%H:%M}"
    code, sentence = desk.says(*words)
    assert code == 2
    assert sentence.endswith("already; name a later time.")
    code, sentence = desk.says("extend", "label", "--until", f"{clock(-3600):%Y-%m-%dT%H:%M}")
    assert code == 2
    assert "is past; it is" in sentence
    desk.refuses("the stage is 'nap'; it must be enrol, answer, label, audition.", "extend", "nap", "--by", "5")
    desk.refuses("say either by how many minutes, with --by, or until when, with --until.", "extend", "label")
    desk.refuses(
        "--until is 'soon'; it must be a time in UTC, as 14:05 or 2026-05-01T14:05.",
        "extend", "label", "--until", "soon",
    )  # fmt: skip
    desk.refuses("--by is -3; it must be a number of minutes above 0, and less than a year.",
                 "extend", "label", "--by", "-3")  # fmt: skip
    desk.refuses(
        "the deadline to answer is not known, since the server is not there now; say --until TIME.",
        "extend", "answer", "--by", "5",
    )  # fmt: skip
    desk.append("plan", "1", {})
    desk.refuses("the time to enrol is over in job job-1; it cannot be extended.", "extend", "enrol", "--by", "5")


def test_an_extension_of_a_running_servers_deadline(desk):
    deadline = clock(600)
    live = LiveWriter(desk.folder, "job-1")
    live.begin(LABELING, time_text(deadline))
    live._write()
    assert desk.says("extend", "label", "--by", "10")[0] == 0
    assert desk.commands()[0]["until"] == time_text(deadline + timedelta(minutes=10))
    assert desk.says("pause") == (0, "Job job-1: paused; truthfl resume lets it go on.")  # at once: the server runs
    desk.refuses("the time to answer is over in job job-1; it cannot be extended.", "extend", "answer", "--by", "5")


def test_a_wrong_key_folder_or_job(desk, tmp_path):
    write_key(new_key(), tmp_path / "other")
    desk.refuses("this key is not the key of the operator of job job-1; name theirs with --key.",
                 "pause", "--key", str(tmp_path / "other"))  # fmt: skip
    desk.refuses(f"{tmp_path / 'none'} cannot be read: No such file or directory.",
                 "pause", "--key", str(tmp_path / "none"))  # fmt: skip
    desk.append("job", "job", {"operator_key": ""}, job="job-2")
    desk.refuses(f"{desk.folder / 'ledger.db'} has 2 jobs: job-1, job-2; name one with --job.", "pause")
    desk.refuses(f"job is 'job-3'; {desk.folder / 'ledger.db'} has job-1, job-2.", "pause", "--job", "job-3")
    desk.refuses(
        "this key is not the key of the operator of job job-2; name theirs with --key.", "pause", "--job", "job-2"
    )
    desk.refuses("this command cannot be given: its why is no text of up to 300 letters without control characters.",
                 "pause", "--job", "job-1", "--why", "x" * 301)  # fmt: skip
    assert desk.says("pause", "--job", "job-1")[0] == 0
    desk.folder = tmp_path / "nowhere"
    assert desk.says("pause") == (
        2, f"truthfl: {desk.folder} is no folder; name the one that truthfl serve writes to, with --out.",
    )  # fmt: skip
    desk.folder.mkdir()
    code, sentence = desk.says("pause")
    assert code == 2
    assert not (desk.folder / "ledger.db").exists()
    assert sentence.count("\n") == 0


def test_ledger_job_and_key_are_those_that_the_server_was_started_with(desk, tmp_path):
    desk.append("job", "job", {"operator_key": ""}, job="job-2")
    (desk.folder / "operator").rename(tmp_path / "key")
    elsewhere = (desk.folder / "ledger.db").rename(tmp_path / "elsewhere.db")
    info = ServingInfo("job-1", str(elsewhere), str(tmp_path / "key"), "127.0.0.1", 8443)
    write_serving(desk.folder, info)
    assert desk.says("pause")[0] == 0
    with open_ledger(elsewhere) as book:
        assert [entry.key for entry in book.entries("job-1", "command")] == ["1"]
    (tmp_path / "key").unlink()
    assert desk.says("resume") == (
        2, f"truthfl: there is no key of the operator's at {tmp_path / 'key'}; name it with --key.",
    )  # fmt: skip
    assert asdict(info)["port"] == 8443


def test_the_ledger_shows_what_was_commanded(desk):
    desk.says("pause", "--why", "noon", "--as", "Olga")
    desk.says("end", "--as", "Olga")
    desk.append("ended", "ended", {"rounds": 0, "asked": {}})
    address = str(desk.folder / "ledger.db")
    desk.monkeypatch.setattr(sys, "argv", ["truthfl", "ledger", "show", address])
    with pytest.raises(SystemExit):
        main()
    shown = desk.capsys.readouterr().out
    assert "job job-1: ended by the operator before there was a contract" in shown
    assert "command of Olga: pause: noon" in shown
    assert "command of Olga: end" in shown


def waiting_plan(desk):
    """A server that waits with a plan for the operator's word."""
    offer = OfferNumbers("Ada", 20, 5, 10.0, 20.0, 30.0)
    plan = PlanSummary(
        "job-1", 1, "audition", "EUR", 100, True, (offer,), {}, None, None, 3.0, 1.0, ("Beware: of the dog.",)
    )
    show_plan(desk.folder, plan)
    live = LiveWriter(desk.folder, "job-1")
    live.begin(APPROVING)
    live._write()
    return plan


@pytest.mark.parametrize("answer", ["--yes", "--decline"])
def test_a_plan_is_approved_from_another_terminal(desk, answer):
    plan = waiting_plan(desk)
    code, said = desk.says("approve", answer)
    assert code == 0
    assert "Beware: of the dog." in said
    (given,) = desk.commands()
    assert (given["kind"], given["plan"]) == ("approve" if answer == "--yes" else "disapprove", digest(plan.document()))
    with open_ledger(desk.folder / "ledger.db") as book:
        (began,) = book.entries("job-1", "job")
        key = began.document["operator_key"]
        in_ledger = partial(commanded_answer, book, "job-1", key)
        assert ask_by_file(desk.folder, plan, in_ledger) is (answer == "--yes")
        other = public_line(new_key())
        assert commanded_answer(book, "job-1", other, digest(plan.document())) is None
        assert commanded_answer(book, "job-1", key, digest({})) is None


def test_what_is_not_approved(desk):
    code, said = desk.says("approve", "--yes")
    assert (code, "waits for approval now" in said) == (2, True)
    waiting_plan(desk)
    code, said = desk.says("approve")
    assert (code, "say --yes or --decline" in said) == (2, True)
    live = LiveWriter(desk.folder, "job-1")
    live.begin(LABELING)
    live._write()
    code, said = desk.says("approve", "--yes")
    assert (code, "waits for approval now" in said, desk.commands()) == (2, True, [])


def test_a_solo_model_is_decided_on_only_while_it_waits(desk):
    desk.refuses("no solo model of 'Ada' waits for a decision; nobody's does now.", "accept", "Ada")
    document = {"client": "Ben", "offer": "ab", "model": "cd", "solo_loss": 0.1, "level_shift": 0.0, "known": None}
    desk.append("hold", "Ben", document)
    desk.refuses("no solo model of 'Ada' waits for a decision; those of Ben do.", "refuse", "Ada")
    code, said = desk.says("refuse", "Ben", "--why", "it is a public model")
    assert (code, said) == (0, f"Job job-1: the solo model of Ben is not paid.{LATER}")
    assert desk.commands()[-1]["kind"] == "refuse"
    desk.refuses("no solo model of 'Ben' waits for a decision; nobody's does now.", "accept", "Ben")
