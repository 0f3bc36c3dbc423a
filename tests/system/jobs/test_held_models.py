"""Solo models that are too good wait for the operator; those that an earlier job knows are not paid."""

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from helpers.auditions import (
    NarrowGate,
    Setting,
    from_elsewhere,  # noqa: F401
    good_model,
)
from helpers.commands import truthfl, within
from helpers.shared import built_folder, shared_folder
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl import InputError
from truthfl.federation.operator.job_status import StatusReader
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.operator.served_report import summary_sentences, write_served_report
from truthfl.federation.protocol import auditions
from truthfl.federation.protocol.known_models import likeness, require_new_test_set, uncomparable_warnings
from truthfl.home import participant_folder
from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.checking import check, check_receipt
from truthfl.ledger.entry import Conflict
from truthfl.ledger.held_models import hold_faults
from truthfl.ledger.job_view import job_view
from truthfl.ledger.receipts import receipt_fault

HONEST = ["truthful"] * 4
SECONDS = 120.0


@pytest.fixture(scope="module")
def plans():
    return NarrowGate()


@pytest.fixture
def earlier(tmp_path, tmp_path_factory, plans):
    """The setting of a job of honest people, which is over, and the view of it."""
    built = built_folder(
        shared_folder(tmp_path_factory), "honest-job", lambda folder: Setting(folder, plans, HONEST).go(simulated=True)
    )
    setting = Setting(shutil.copytree(built, tmp_path / "earlier"), plans, HONEST)
    return setting, view_of(setting)


def view_of(setting, which=-1):
    entries = setting.entries()
    names = list(dict.fromkeys(entry.job for entry in entries))
    return job_view(names[which], [entry for entry in entries if entry.job == names[which]])


def held_now(setting, job):
    """Wait until Cleo's model is held, as the operator sees it in the status; return it. `job`: a future."""
    while not job.done():
        time.sleep(0.1)
        if not (setting.folder / "operator.pub").exists():  # the server makes its key after its ledger
            continue
        with open_for_reading(setting.folder / "ledger.db") as book:
            for name in book.jobs():
                if book.entries(name, "hold"):
                    return StatusReader(book, name).read()
    raise AssertionError(f"the job was over and no model was held: {job.result().holds}")


def decided(setting, word):
    """The finished job after the operator's word, and what the command printed."""
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(setting.go)
        status = held_now(setting, job)
        said = truthfl(word, "Cleo", "--out", setting.folder, "--why", "we know it")
        return job.result(), status, said


def test_the_operator_refuses_a_model_that_is_too_good(tmp_path, plans, from_elsewhere):
    setting = Setting(tmp_path, plans, HONEST, audition_seconds=SECONDS)
    from_elsewhere(good_model(setting.scene))
    found, status, said = decided(setting, "refuse")
    assert said.returncode == 0, said.stderr
    assert "the solo model of Cleo is not paid" in said.stdout
    cleo = next(one for one in status.participants if one.name == "Cleo")
    assert (status.stage, cleo.state) == ("deciding", "held")
    assert "is too good; accept or refuse it" in cleo.reason
    result = found.auditions["Cleo"].document
    assert (result["solo_loss"], result["passed"]) == (None, False)
    assert result["reason"] == "The operator refused it: we know it."
    assert found.settlements["Cleo"].document["pay"] == 0
    assert found.holds["Cleo"].document["solo_loss"] < 0.3
    assert check(setting.entries()) is None
    receipt = participant_folder.receipts(setting.people[1002].folder)[-1]
    assert receipt_fault(receipt) is None
    assert [one["document"]["kind"] for one in receipt["document"]["commands"].values()] == ["refuse"]
    news = participant_folder.last_news(setting.people[1002].folder)
    assert "The operator refused it: we know it." in news.sentence
    late = truthfl("refuse", "Ada", "--out", setting.folder)
    assert late.returncode == 2
    assert "is trained and tested; nothing can be done to it" in late.stderr


def test_the_operator_accepts_a_model_that_is_too_good(tmp_path, plans, from_elsewhere):
    setting = Setting(tmp_path, plans, HONEST, audition_seconds=SECONDS)
    from_elsewhere(good_model(setting.scene))
    found, _, said = decided(setting, "accept")
    assert said.returncode == 0, said.stderr
    assert found.auditions["Cleo"].document["passed"]
    terms = next(one for one in found.agreement.offers if one.client.name == "Cleo").contract.terms()
    assert found.settlements["Cleo"].document["label_pay"] == pytest.approx(float(terms["label_cap"][0]))
    assert check(setting.entries()) is None
    assert receipt_fault(participant_folder.receipts(setting.people[1002].folder)[-1]) is None


def test_nobody_decides_and_the_others_are_paid_as_without_it(tmp_path, plans, from_elsewhere):
    """Once the time is up the model is paid as offered; it moves nobody's level. In a simulation nobody waits."""
    shifts = []
    for simulated in (False, True):
        folder = tmp_path / str(simulated)
        folder.mkdir()
        setting = Setting(folder, plans, HONEST, audition_seconds=SECONDS if simulated else 2.0)
        from_elsewhere(good_model(setting.scene))
        with within(SECONDS):
            found = setting.go(simulated=simulated)
        assert found.auditions["Cleo"].document["passed"]
        assert found.settlements["Cleo"].document["pay"] > 0
        assert check(setting.entries()) is None
        shifts.append({name: entry.document["level_shift"] for name, entry in found.auditions.items()})
    assert shifts[0] == shifts[1]


def test_what_nobody_decided_on_is_not_paid_out_unseen(tmp_path, plans, from_elsewhere):
    """The others' payments are exported and sent; that one is when the operator accepts, which a receipt survives."""
    setting = Setting(tmp_path, plans, HONEST, audition_seconds=2.0)
    from_elsewhere(good_model(setting.scene))
    job, folder = setting.go().name, setting.folder
    ledger = folder / "ledger.db"
    words = "Nobody decided on the solo model of Cleo in job"

    def exported():
        done = truthfl("ledger", "export", ledger, "--format", "json")
        assert done.returncode == 0, done.stderr
        return {row["client"] for row in json.loads(done.stdout)}, words in done.stderr

    assert exported() == ({"Ada", "Ben", "Dora"}, True)
    assert any(sentence.startswith(words) for sentence in summary_sentences(view_of(setting)))
    report = write_served_report(view_of(setting), folder, "truthfl serve", "1").read_text(encoding="utf-8")
    assert words in report
    refused = truthfl("settle", ledger, "--mark", "sent", "--client", "Ada", "--client", "Cleo")
    assert (refused.returncode, words in refused.stderr) == (2, True)
    assert not states(setting) & {"sent"}
    done = truthfl("settle", ledger, "--mark", "sent")
    assert (done.returncode, words in done.stderr) == (0, True)
    assert states(setting, "Cleo") == {"due"}
    assert states(setting, "Ada") == {"due", "sent"}
    late = truthfl("refuse", "Cleo", "--out", folder)
    assert (late.returncode, "the time to refuse the solo model of Cleo is over" in late.stderr) == (2, True)
    accepted = truthfl("accept", "Cleo", "--out", folder, "--why", "we looked at it")
    assert accepted.returncode == 0, accepted.stderr
    assert exported() == ({"Ada", "Ben", "Cleo", "Dora"}, False)
    assert truthfl("settle", ledger, "--mark", "sent").returncode == 0
    assert states(setting, "Cleo") == {"due", "sent"}
    assert check(setting.entries()) is None
    receipt = participant_folder.receipts(setting.people[1002].folder)[-1]
    assert receipt_fault(receipt) is None
    assert check_receipt(receipt, setting.entries()) is None
    assert truthfl("accept", "Cleo", "--out", folder, "--job", job).returncode == 2


def states(setting, client=""):
    """All states that payments of this client, or of all, have had."""
    rows = (entry for entry in setting.entries() if entry.kind == "payment" and entry.key.startswith(client))
    return {entry.document["state"] for entry in rows}


def test_a_server_that_is_stopped_while_it_waits_asks_nobody_again(tmp_path, plans, from_elsewhere, monkeypatch):
    setting = Setting(tmp_path, plans, HONEST, audition_seconds=2.0)
    from_elsewhere(good_model(setting.scene))

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(auditions, "wait_for_decisions", stop)
        with pytest.raises(KeyboardInterrupt):
            setting.go()
    assert list(view_of(setting).holds) == ["Cleo"]
    monkeypatch.setattr(auditions, "_collect_openings", stop)
    found = setting.go()
    assert found.settlements["Cleo"].document["pay"] > 0
    assert check(setting.entries()) is None


def test_an_honest_model_cannot_be_refused(earlier):
    """Neither by a row that says that it is too good, nor by leaving out its loss."""
    setting, found = earlier
    result = found.auditions["Cleo"].document
    fields = ("client", "offer", "model", "solo_loss", "level_shift")
    forged = {name: result[name] for name in fields} | {"known": None}
    with open_ledger(setting.folder / "ledger.db", kept_key(setting.folder / "operator")) as book:
        book.append(found.name, "hold", "Cleo", forged)
        assert check(book.entries()) is not None
    faults = [fault.message for fault in hold_faults(view_of(setting))]
    assert "whether the operator was to look at the model is not what the offer says" in faults[0]


def test_the_joint_model_of_an_earlier_job_is_not_paid(earlier, from_elsewhere):
    """Also scaled; while honest people who take part again, with the same labels, are paid as before."""
    setting, first = earlier
    joint = np.load(setting.folder / "models" / f"{first.name}.npy")
    setting.seed = 6
    again = setting.go(simulated=True)
    assert not again.holds
    assert all(entry.document["passed"] for entry in again.auditions.values())
    setting.seed = 7
    from_elsewhere(0.3 * joint)
    last = setting.go(simulated=True)
    known = last.holds["Cleo"].document["known"]
    assert known["job"] in (first.name, again.name)
    assert known["likeness"] > 0.99
    assert list(last.holds) == ["Cleo"]
    assert last.settlements["Cleo"].document["pay"] == 0
    assert known["job"] in last.auditions["Cleo"].document["reason"]
    assert check(setting.entries()) is None
    assert receipt_fault(participant_folder.receipts(setting.people[1002].folder)[-1]) is None


def test_the_operator_is_warned_if_a_joint_model_cannot_be_compared(earlier):
    setting, first = earlier
    file = setting.folder / "models" / f"{first.name}.npy"
    by_loss = replace(setting.job, contract=replace(setting.job.contract, kind="lceme"))
    with open_for_reading(setting.folder / "ledger.db") as book:

        def warnings(job=setting.job):
            return uncomparable_warnings(book, setting.folder, job)

        assert warnings() == []
        np.save(file, np.load(file) + 1)
        assert len(warnings()) == 1
        file.unlink()
        (sentence,) = warnings()
        assert sentence.startswith(
            f"Beware: {file} cannot be read, or is not as the ledger says: a participant who sends that joint"
        )
        assert warnings(by_loss) == []


@pytest.mark.parametrize("whose", [0, 2])
@pytest.mark.parametrize("times", [1.0, 0.3])
def test_a_solo_model_of_an_earlier_job_is_not_paid(earlier, from_elsewhere, whose, times):
    """Neither another's nor Cleo's own."""
    setting, first = earlier
    solo = np.load(setting.folder / "models" / f"{first.name}-solo.npy")
    setting.seed = 6
    from_elsewhere(np.float32(times) * solo[whose])
    last = setting.go(simulated=True)
    known = last.holds["Cleo"].document["known"]
    assert (known["job"], known["solo"], round(known["likeness"], 3)) == (first.name, True, 1.0)
    assert list(last.holds) == ["Cleo"]
    assert last.settlements["Cleo"].document["pay"] == 0
    assert f"nearly a solo model of the earlier job {first.name}" in last.auditions["Cleo"].document["reason"]
    assert check(setting.entries()) is None
    assert receipt_fault(participant_folder.receipts(setting.people[1002].folder)[-1]) is None


def test_the_same_labels_under_the_same_seed_are_no_copy(earlier):
    """They make the very same model."""
    setting, first = earlier
    job = setting.job
    setting.job = replace(job, server=replace(job.server, label_seconds=job.server.label_seconds + 1))
    last = setting.go(simulated=True)
    models = [{name: row.document["model"] for name, row in one.auditions.items()} for one in (first, last)]
    assert first.name != last.name
    assert models[0] == models[1]
    assert not last.holds


def test_likeness_is_that_of_what_is_left():
    rng = np.random.default_rng(0)
    common, own, other = rng.normal(size=(3, 5000))
    assert likeness(common + own, common + other, [common]) == pytest.approx(0.0, abs=0.05)
    assert likeness(common + own, 2 * common + 3 * own, [common]) == pytest.approx(1.0)
    assert likeness(common, common + own, [common]) == 0.0


def test_a_published_test_set_is_not_used_again(earlier):
    setting, first = earlier
    with open_ledger(setting.folder / "ledger.db", kept_key(setting.folder / "operator")) as book:
        with pytest.raises(InputError, match=f"400 of the 400 test samples were published with job {first.name}"):
            require_new_test_set(book, setting.folder, setting.job)
        other = replace(setting.job, data=replace(setting.job.data, seed=9))
        with pytest.raises(InputError, match="of the 400 test samples were published"):
            require_new_test_set(book, setting.folder, other)
        (setting.folder / "models" / f"{first.name}-test.npz").unlink()
        require_new_test_set(book, setting.folder, other)
        require_new_test_set(book, setting.folder, other)
    setting.seed = 6
    with pytest.raises(InputError, match="give this job test samples that are new"):
        setting.go()
    assert [entry.job for entry in setting.entries() if entry.kind == "job"] == [first.name]
    with (
        pytest.raises(Conflict),
        open_ledger(setting.folder / "ledger.db", kept_key(setting.folder / "operator")) as book,
    ):
        book.append(first.name, "job", "job", {})
