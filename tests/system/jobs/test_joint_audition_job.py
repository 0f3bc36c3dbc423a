"""A job whose computing is expensive: planned as such, run, paid by the joint loss, and checked with the command."""

import json

import pytest

from helpers.auditions import audition_job_file
from helpers.commands import told, truthfl
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl.contracts.audition.joint import JointAudition
from truthfl.contracts.audition.planning import MOST_FIXED_SHARE
from truthfl.federation.protocol.final_model import published_files
from truthfl.home import participant_folder
from truthfl.job import read_job
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.receipts import receipt_fault
from truthfl.ledger.signing import read_key
from truthfl.page.documents import offer_view, receipt_view

EXPENSIVE = ("sample_cost = 0.001", "sample_cost = 0.1")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a job that the command has run."""
    folder = tmp_path_factory.mktemp("expensive")
    path = audition_job_file(folder, EXPENSIVE)
    result = truthfl("run", path, "--seed", "3", "--out", folder / "out")
    assert result.returncode == 0, result.stderr
    return folder, result.stdout


def test_it_is_planned_run_settled_and_checked(finished):
    folder, shown = finished
    assert "computing is paid by the loss that is expected of these" in " ".join(shown.split())
    with open_for_reading(folder / "out" / "ledger.db") as book:
        rows = {kind: book.entries(kind=kind) for kind in ("offer", "test", "settlement", "round")}
    terms = rows["offer"][0].document["document"]["job"]
    assert (terms["contract"], terms["formula"]) == (JointAudition.kind, JointAudition.formula)
    assert len(terms["loss_by_rounds"]) == len(rows["round"]) + 1 == 13
    loss = rows["test"][0].document["loss"]
    settled = {entry.key: entry.document for entry in rows["settlement"]}
    assert len(settled) == 4
    for entry in rows["offer"]:
        client = entry.document["document"]["client"]
        pay, one = client["pay"], settled[client["name"]]
        expected = pay["joint_constant"] + pay["joint_curve"] / one["present_labels"]
        amount = pay["computing_base"] + pay["joint_slope"] * (expected - loss)
        assert one["computing_pay"] == pytest.approx(min(max(amount, 0.0), pay["joint_cap"]))
        assert pay["joint_slope"] > 0
        assert one["pay"] == round(one["label_pay"] + one["computing_pay"])
    job = rows["test"][0].job
    model, test = published_files(folder / "out", job)
    ledger = folder / "out" / "ledger.db"
    checked = truthfl("ledger", "check", ledger, "--job", job, "--model", model, "--test", test)
    assert checked.returncode == 0, checked.stderr
    calibration = json.loads(model.with_name(f"{job}-calibration.json").read_text())
    assert calibration == rows["test"][0].document["calibration"]


def test_participants_see_how_they_are_paid(finished):
    home = finished[0] / "out" / "participants" / "Ada"
    (receipt,) = participant_folder.receipts(home)
    assert receipt_fault(receipt) is None
    shown = offer_view(home, read_key(home / "key"), None, None)
    assert "explanation.audition_joint" in [one["key"] for one in shown["explanation"]]
    assert receipt_view(home)["paid"] == receipt["document"]["settlement"]["pay"]


def test_what_is_expensive_is_said_in_the_plan(finished):
    job = read_job(finished[0] / "audition.toml")
    plan = job.plan(job.server_side())
    report = plan.details.report(plan, None, pictures=True)
    assert isinstance(plan.contract, JointAudition)
    assert "Computing is expensive here, so it is paid by the joint model's loss." in report.sentences()
    shown = report.as_json()["clients"]
    assert (shown["faking_saves"] == 0).all()
    assert not shown["not_computing_gains"].any()
    cost = 0.1 * 12 * plan.contract.batch_size
    label_cost = plan.contract.labels
    assert (cost > MOST_FIXED_SHARE * label_cost).all()
    assert (plan.contract.computing_base >= cost - 1e-9).all()


def test_it_is_chosen_by_the_plan_and_not_by_name(tmp_path):
    job = read_job(audition_job_file(tmp_path, ('"audition"', '"audition-joint"')))
    assert told(job.plan, job.server_side()) == (
        "the contract is 'audition-joint'; it must be \"audition\", whose plan pays computing by the joint loss where "
        "computing is expensive."
    )
