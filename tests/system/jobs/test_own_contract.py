"""A custom contract, written here and nowhere else: planned, verified, offered, paid, received and checked."""

import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from helpers.auditions import audition_job_file, joint_measurement
from helpers.auditions import inputs as audition_inputs
from helpers.auditions import measurement as audition_measurement
from helpers.commands import told
from helpers.commands import truthfl as command
from helpers.small_jobs import small_job_file
from truthfl import (
    Audition,
    Clients,
    Contract,
    Contribution,
    Evidence,
    InputError,
    LossModel,
    Observation,
    PlanInputs,
    Prices,
    SoloResult,
    Training,
    contract_kinds,
    find_contract,
    register,
    unregister,
    work_cost,
)
from truthfl.adversary.pilot_lies import search_on_pilot
from truthfl.cli.plan import shown_plan
from truthfl.contracts.audition.joint import JointAudition
from truthfl.contracts.audition.plan import AuditionInputs, plan_as, plan_audition
from truthfl.contracts.contract import ALWAYS_COLLECTED, delivered_share, require_collected, require_sound
from truthfl.contracts.setting import Strategies
from truthfl.federation.simulated.in_process import run_job
from truthfl.home import participant_folder
from truthfl.job import read_job
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.checking import check
from truthfl.ledger.receipts import receipt_fault
from truthfl.ledger.signing import read_key
from truthfl.page.documents import offer_view, receipt_view
from truthfl.studies.verify.job_verification import verify_job

QUICK = PilotDesign(seeds=2, honest_seeds=4, batch_sizes=(4, 8, 16, 32))
BONUS_SHARE = 0.5


@pytest.fixture
def bonus():
    """Cost, and a bonus that falls with the loss, never below zero."""

    @dataclass(frozen=True, eq=False)
    class CostAndBonus(Contract):
        kind: ClassVar[str] = "cost and bonus"
        formula: ClassVar[str] = "pay = (cost + max(0, bonus * (1 - test_loss / reference))) * delivered / asked"

        batch_size: np.ndarray
        cost: np.ndarray
        bonus: np.ndarray
        reference: np.ndarray

        @classmethod
        def plan(cls, inputs):
            batches = inputs.best_batch_sizes()
            cost = work_cost(inputs.clients, inputs.training, Strategies.truthful(batches))
            loss = np.full(len(batches), 2 * inputs.loss_model.truthful_loss(batches))
            return cls(batches, cost, BONUS_SHARE * cost, loss)

        def pay(self, seen):
            amount = self.cost + np.maximum(0.0, self.bonus * (1.0 - np.asarray(seen.test_loss) / self.reference))
            return amount if seen.delivered is None else amount * seen.delivered / seen.asked

    register(CostAndBonus)
    yield CostAndBonus
    unregister("cost and bonus")


def own_job(folder: Path):
    return read_job(small_job_file(folder, 'kind = "lceme"', 'kind = "cost and bonus"'))


def test_a_custom_contract_goes_all_the_way(bonus, tmp_path):
    job = own_job(tmp_path)
    planned = job.plan(job.server_side(), QUICK)
    assert isinstance(planned.contract, bonus)
    assert planned.contract.pay_range(0.0, 10.0)[0] == pytest.approx(planned.contract.cost)
    assert planned.contract.pay_range(0.0, 10.0)[1] == pytest.approx((1 + BONUS_SHARE) * planned.contract.cost)

    outcome = run_job(job, tmp_path / "run", design=QUICK)
    terms = outcome.agreement.terms
    assert (terms.contract, terms.formula) == ("cost and bonus", bonus.formula)
    loss = outcome.test_loss
    for offer, pay, refused in zip(outcome.agreement.offers, outcome.pay, outcome.refused, strict=True):
        own = offer.client.pay
        right = own["cost"] + max(0.0, own["bonus"] * (1 - loss / own["reference"]))
        assert pay == (0 if refused else round(right))
    with open_for_reading(tmp_path / "run" / "ledger.db") as book:
        assert check(book.entries()) is None

    ada = tmp_path / "run" / "participants" / "Ada"
    assert receipt_fault(participant_folder.receipts(ada)[0]) is None
    shown = offer_view(ada, read_key(ada / "key"), None, None)
    assert shown["explanation"] == [f"{bonus.formula.capitalize()}."]
    assert shown["spread"]["worst"] == pytest.approx(outcome.agreement.offers[0].client.pay["cost"], rel=0.05)
    assert f"{receipt_view(ada)['paid']:.0f}" == f"{outcome.pay[0]:.0f}"

    unregister("cost and bonus")  # somebody who has not installed it is told so
    assert "must be one of: audition, audition-joint, lceme, flat" in receipt_fault(participant_folder.receipts(ada)[0])


def test_a_custom_contract_is_verified_in_real_training(bonus, tmp_path):
    job = own_job(tmp_path)
    own, *others = verify_job(job, tmp_path, quick=True, runs=200, workers=1).verdicts
    assert own.rule == "cost and bonus"
    assert 1.0 < own.pay_over_cost < 1 + BONUS_SHARE
    assert own.lying_pays  # it pays mostly for nothing, and this is found out
    assert "flat" in {other.rule for other in others}
    assert bonus.kind in contract_kinds()


def test_a_contract_that_plans_nothing_cannot_be_verified(bonus, tmp_path, monkeypatch):
    job = own_job(tmp_path)
    monkeypatch.delattr(bonus, "plan")
    with pytest.raises(InputError, match=re.escape("the contract 'cost and bonus' has no plan; it can be studied")):
        verify_job(job, tmp_path, quick=True, workers=1)


@pytest.fixture
def thanks():
    """The pay of an audition, for half of the labels, and something for everybody who passes."""

    @dataclass(frozen=True, eq=False)
    class AuditionAndThanks(Audition):
        kind: ClassVar[str] = "audition and thanks"
        formula: ClassVar[str] = "as of an audition, and thanks for a pass"

        thanks: np.ndarray

        @classmethod
        def choose(cls, inputs):
            usual = Audition.choose(inputs)
            terms = {field.name: getattr(usual, field.name) for field in fields(usual)}
            labels = np.floor(usual.labels / 2)
            terms |= {"labels": labels}
            return cls(**terms, thanks=np.full(len(labels), 77.0))

        def label_pay(self, seen, passed=None):
            passed = self.passes(seen) if passed is None else passed
            return super().label_pay(seen, passed) + np.where(passed, self.thanks, 0.0)

        def pay_range(self, lowest_loss, highest_loss):
            low, high = super().pay_range(lowest_loss, highest_loss)
            return low, high + self.thanks

    register(AuditionAndThanks)
    yield AuditionAndThanks
    unregister("audition and thanks")


def test_a_custom_contract_pays_by_solo_models(thanks, tmp_path):
    """It is planned, offered, paid, received and checked, and never replaced by the built-in audition."""
    more = ('"audition"', '"audition and thanks"'), ("loss_value = 20000.0", "loss_value = 20000.0\nmost_pay = 10.0")
    job = read_job(audition_job_file(tmp_path, *more))
    plan = job.plan(job.server_side(), QUICK)
    own = plan.contract
    assert isinstance(own, thanks)
    assert own.name == "audition and thanks"
    assert own.labels.tolist() == plan.clients.dataset_size.tolist() == plan.side.pilot.partition.sizes.tolist()
    shown = plan.details.report(plan, None, pictures=True)
    assert shown.parts["label_pay"] == pytest.approx(own.label_base + 77)
    assert shown.largest_gain is None  # of the built-in contract alone there is a formula

    outcome = run_job(job, tmp_path / "run", design=QUICK)
    terms = outcome.agreement.terms
    assert (terms.contract, terms.formula) == ("audition and thanks", thanks.formula)
    assert [offer.client.samples for offer in outcome.agreement.offers] == own.labels.tolist()
    with open_for_reading(tmp_path / "run" / "ledger.db") as book:
        assert check(book.entries()) is None
        settled = {entry.key: entry.document for entry in book.entries(kind="settlement")}
    assert len(settled) == 4
    for offer in outcome.agreement.offers:
        found = settled[offer.client.name]
        assert found["label_pay"] >= 77.0
        assert found["pay"] == round(found["label_pay"] + found["computing_pay"])
    ada = tmp_path / "run" / "participants" / "Ada"
    assert receipt_fault(participant_folder.receipts(ada)[0]) is None
    assert f"{receipt_view(ada)['paid']:.0f}" == f"{outcome.pay[0]:.0f}"


def test_a_contract_by_solo_models_whose_terms_do_not_say_what_is_expected_is_refused(tmp_path):
    @dataclass(frozen=True, eq=False)
    class Other(Contract):
        kind: ClassVar[str] = "my own"
        needs: ClassVar[frozenset[Evidence]] = Audition.needs

        batch_size: np.ndarray
        solo_level: np.ndarray

        def pay(self, seen):
            return -np.asarray(seen.solo.loss)

    job = read_job(audition_job_file(tmp_path, ('kind = "audition"', 'kind = "lceme"')))
    sentence = "the contract 'my own' pays by solo models, and its terms lack solo_spread, gate: what is expected of"
    register(Other)
    try:
        named = job.with_contract("my own")
        with pytest.raises(InputError, match=re.escape(sentence)):
            named.plan(named.server_side(), QUICK)
        with pytest.raises(InputError, match=re.escape(sentence)):
            run_job(named, tmp_path / "run", design=QUICK)
    finally:
        unregister("my own")


@pytest.fixture
def careful():
    """Cost, and a bonus by how good the model is that each trains alone; nothing is derived from the audition."""

    @dataclass(frozen=True, eq=False)
    class CostAndCare(Contract):
        kind: ClassVar[str] = "cost and care"
        needs: ClassVar[frozenset[Evidence]] = ALWAYS_COLLECTED | {Evidence.SOLO_LOSS}
        recipe: ClassVar[dict] = {"steps": 40, "batch_size": 16, "step_size": 0.5, "penalty": 0.001, "shifts": 0}
        formula: ClassVar[str] = "cost * delivered / asked + max(0, cost + slope * (solo_level - solo_loss))"
        part_words: ClassVar[dict] = {"fixed_pay": "the work", "care_pay": "care"}

        batch_size: np.ndarray
        cost: np.ndarray
        slope: np.ndarray
        solo_level: np.ndarray
        solo_spread: np.ndarray
        gate: np.ndarray

        @classmethod
        def plan(cls, inputs):
            batches = inputs.best_batch_sizes()
            cost = work_cost(inputs.clients, inputs.training, Strategies.truthful(batches)) + inputs.solo.cost
            stage = inputs.solo.stage
            return cls(batches, cost, cost / stage.gate, stage.level, stage.spread, stage.gate)

        def parts(self, seen):
            level = self.expected_solo_loss(seen)
            better = level - (level if seen.solo is None else np.asarray(seen.solo.loss))
            care = np.nan_to_num(np.maximum(0.0, self.cost + self.slope * better))
            fixed = delivered_share(self.cost * np.ones_like(np.asarray(seen.test_loss) * self.cost), seen)
            return {"fixed_pay": fixed, "care_pay": care * np.ones_like(fixed)}

        def pay(self, seen):
            return sum(self.parts(seen).values())

        def most_parts(self):
            return {"fixed_pay": self.cost, "care_pay": self.cost + self.slope * self.solo_level}

    register(CostAndCare)
    yield CostAndCare
    unregister("cost and care")


CARE = ('"audition"', '"cost and care"'), ("sample_cost = 0.001", "sample_cost = 0.01")


def test_a_contract_by_solo_models_needs_no_audition(careful, tmp_path):
    """From one class: measured, planned, offered, trained alone, tested, paid in parts, received and checked."""
    job = read_job(audition_job_file(tmp_path, *CARE))
    plan = job.plan(job.server_side(), QUICK)
    assert isinstance(plan.contract, careful)
    assert plan.recipe.document() == careful.recipe
    assert (plan.contract.stage.gate > 3 * plan.contract.stage.spread).all()
    told = shown_plan(job, plan, search_on_pilot(plan.side, plan)).as_json()
    assert (told["contract"], told["lies"][0]["solo_rise"] is not None) == ("cost and care", True)

    outcome = run_job(job, tmp_path / "run", design=QUICK)
    terms = outcome.agreement.terms
    assert (terms.contract, terms.recipe) == ("cost and care", careful.recipe)
    assert terms.dropping_out.startswith("A participant who sends no audition in time")
    with open_for_reading(tmp_path / "run" / "ledger.db") as book:
        assert check(book.entries()) is None
        settled = {entry.key: entry.document for entry in book.entries(kind="settlement")}
    for offer, pay in zip(outcome.agreement.offers, outcome.pay, strict=True):
        found, own = settled[offer.client.name], offer.client.pay
        level = own["solo_level"] + own["solo_spread"] * found["level_shift"]
        assert found["passed"] == (found["solo_loss"] <= level + own["gate"])
        care = max(0.0, own["cost"] + own["slope"] * (level - found["solo_loss"]))
        assert found["care_pay"] == pytest.approx(care)
        assert pay == found["pay"] == round(found["fixed_pay"] + found["care_pay"])
    ada = tmp_path / "run" / "participants" / "Ada"
    assert receipt_fault(participant_folder.receipts(ada)[0]) is None
    shown = offer_view(ada, read_key(ada / "key"), None, None)
    assert [part["words"] for part in shown["audition"]["parts"]] == ["the work", "care"]
    assert shown["terms"]["formula"] == shown["terms"]["dropping_out"] == []
    assert [part["name"] for part in receipt_view(ada)["audition"]["parts"]] == ["fixed_pay", "care_pay"]


def test_a_contract_by_solo_models_is_verified(careful, tmp_path):
    job = read_job(audition_job_file(tmp_path, *CARE))
    own, *_ = verify_job(job, tmp_path, quick=True, runs=200, workers=1).verdicts
    assert own.rule == careful.kind
    assert own.pay_over_cost > 1.0


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({}, "the contract 'with more' has additional terms, more; its plan must set them."),
        ({"labels": 0.5}, "contract 'with more' plans labels that are not one whole number for each of 4 clients"),
        ({"labels": 1e6}, "contract 'with more' plans labels that are not one whole number for each of 4 clients"),
    ],
)
def test_a_broken_plan_of_labels_is_one_sentence(terms, sentence):
    @dataclass(frozen=True, eq=False)
    class WithMore(Audition):
        kind: ClassVar[str] = "with more"
        more: np.ndarray

        @classmethod
        def choose(cls, inputs):
            if not terms:
                return super().choose(inputs)
            usual = Audition.choose(inputs)
            whole = {field.name: getattr(usual, field.name) for field in fields(usual)}
            return cls(**whole | {name: np.full(4, value) for name, value in terms.items()}, more=np.ones(4))

    with pytest.raises(InputError, match=re.escape(sentence)):
        plan_as(WithMore, audition_inputs(4))


def test_the_command_line_takes_it_too(bonus, tmp_path):
    """What a job file says of a contract that is not there is one sentence."""
    own_job(tmp_path)
    unregister(bonus.kind)
    with pytest.raises(
        InputError,
        match=re.escape(
            "[contract] there is no contract of kind 'cost and bonus'; it must be one of: audition, audition-joint"
        ),
    ):
        read_job(tmp_path / "job.toml")


IN_A_FILE = """
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from truthfl import Contract, Strategies, work_cost


@dataclass(frozen=True, eq=False)
class CostAndHalf(Contract):
    kind: ClassVar[str] = "cost and half"
    formula: ClassVar[str] = "pay = 1.5 * cost * delivered / asked"

    batch_size: np.ndarray
    cost: np.ndarray

    @classmethod
    def plan(cls, inputs):
        batches = inputs.best_batch_sizes()
        return cls(batches, work_cost(inputs.clients, inputs.training, Strategies.truthful(batches)))

    def pay(self, seen):
        amount = 1.5 * self.cost * np.ones_like(np.asarray(seen.test_loss) * self.cost)
        return amount if seen.delivered is None else amount * seen.delivered / seen.asked
"""


def test_a_contract_in_a_file_goes_through_the_commands(tmp_path):
    """Named in [contract] use, it is planned, verified, run and checked; who does not name it is told what to say."""
    path = small_job_file(tmp_path, 'kind = "lceme"', 'use = "pay.py:CostAndHalf"')
    path.write_text(path.read_text().replace("rounds = 30", "rounds = 4\nstep_size = 0.5"))
    (tmp_path / "pay.py").write_text(IN_A_FILE)
    own = ("--contract", tmp_path / "pay.py:CostAndHalf")

    def out(*words):
        done = command(*words, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    assert json.loads(out("plan", path, "--json"))["contract"] == "cost and half"
    lies = json.loads(
        out("verify", path, "--quick", "--runs", "200", "--workers", "2", "--out", tmp_path / "lies", "--json")
    )
    assert (lies[0]["rule"], lies[0]["lying_pays"]) == ("cost and half", True)
    assert "Ledger: " in out("run", path, "--out", tmp_path / "run")
    ledger = tmp_path / "run" / "ledger.db"
    with open_for_reading(ledger) as book:
        (job,) = book.entries(kind="job")
        offers = book.entries(kind="offer")
    assert {entry.document["document"]["job"]["contract"] for entry in offers} == {"cost and half"}
    assert job.document["job"]["contract"].keys() == {"kind", "use", "source"}
    assert job.document["job"]["contract"]["use"] == "pay.py:CostAndHalf"
    assert "signatures and pay hold" in out("ledger", "check", ledger, *own)
    receipt = tmp_path / "run" / "participants" / "Ada" / "receipts"
    assert "the receipt holds" in out("ledger", "check", ledger, *own, "--receipt", next(receipt.iterdir()))
    for words in (("status", "--out", tmp_path / "run"), ("ledger", "show", ledger), ("settle", ledger)):
        assert job.job in out(*words, *own)

    for words in (("ledger", "check", ledger), ("status", "--out", tmp_path / "run")):
        missing = command(*words)
        assert (missing.returncode, missing.stdout) == (2, "")
        assert missing.stderr.endswith("custom contract 'cost and half': say --contract pay.py:CostAndHalf.\n")
    settled = command("settle", ledger)
    assert settled.returncode == 2
    assert "there is no contract of kind 'cost and half'" in settled.stderr
    assert "--contract FILE.py:Class" in settled.stderr
    (tmp_path / "pay.py").write_text(IN_A_FILE.replace("1.5", "1.4"))
    other = command("ledger", "check", ledger, *own)
    assert (other.returncode, other.stdout) == (2, "")
    assert "of which this is another text" in other.stderr
    assert command("run", path, "--out", tmp_path / "again", "--contract", "lceme").returncode == 0


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ('use = "none.py:Pay"', "none.py does not exist; it must be the file that defines Pay."),
        ('use = "pay.py:Other"', "[contract] pay.py has no class Other; it has CostAndHalf."),
        ('use = "pay.py:Contract"', "[contract] Contract lacks pay."),
        ('use = "pay.py:ClassVar"', "pay.py has no class ClassVar"),
        ('use = "pay.py:Strategies"', "Strategies is no Contract; it must derive from truthfl.Contract."),
        ('use = "pay"', '[contract] use is \'pay\'; it must be "FILE.py:Class" or "module:Class".'),
        ("use = 3", '[contract] use is 3; it must be "FILE.py:Class" or "module:Class".'),
        ('use = "pay.py:CostAndHalf"\nkind = "lceme"', "[contract] kind and use are both given"),
        ('use = "pay.py:Taken"', "a contract 'lceme' is registered already; choose another kind."),
    ],
)
def test_what_names_no_contract_is_one_sentence(tmp_path, section, sentence):
    taken = "\n\nclass Taken(CostAndHalf):\n    kind = 'lceme'\n" if "Taken" in section else ""
    (tmp_path / "pay.py").write_text(IN_A_FILE + taken)
    assert sentence in told(read_job, small_job_file(tmp_path, 'kind = "lceme"', section))


CLIENTS = Clients(weight=[0.5, 0.5], gradient_variance=1, sample_cost=0.01, labeling_cost=1, dataset_size=100)
MODEL = LossModel(constant=0.1, sampling=[1.0, 1.0], labeling=[2.0, 0.1], reporting=[1.0, 1.0])


def broken(pay=lambda _: np.ones(2), batches=(10.0, 10.0), terms=(1.0, 1.0)):
    @dataclass(frozen=True, eq=False)
    class Broken(Contract):
        kind: ClassVar[str] = "broken"
        batch_size: np.ndarray
        amount: np.ndarray

        def pay(self, seen):
            return pay(seen)

    return Broken(np.array(batches), np.array(terms))


@pytest.mark.parametrize(
    ("contract", "sentence"),
    [
        (
            broken(lambda _: np.array([1.0, np.nan])),
            "the pay of client 1 is nan; it must be finite.",
        ),
        (broken(lambda _: np.ones(3)), "the contract 'broken' pays an array of shape (3,); it must be (2,)."),
        (
            broken(batches=(10.0, 0.5)),
            "a batch size of 0.5 for client 1; it must be a whole number from 1 to 100.",
        ),
        (broken(batches=(10.0, np.nan)), "plans a batch size of nan for client 1"),
        (broken(batches=(10.0, 101.0)), "plans a batch size of 101 for client 1"),
        (broken(batches=(10.0,)), "the contract 'broken' plans batch sizes of shape (1,); it must be (2,)."),
        (broken(terms=(1.0, np.inf)), "the term 'amount' of client 1 is inf; it must be finite."),
        (broken(terms=(1.0, 2.0, 3.0)), "has terms that are not one number per client."),
    ],
)
def test_a_broken_contract_is_one_sentence(contract, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        require_sound(contract, CLIENTS, 1.0)


def test_a_contract_without_a_plan_and_one_that_needs_more_than_a_job_collects():
    with pytest.raises(InputError, match="the contract 'broken' has no plan; it can be studied, but not offered"):
        type(broken()).plan(None)
    with pytest.raises(InputError, match="pays by shapley contributions, which a job does not collect"):
        require_collected(find_contract("shapley share"))
    require_collected(find_contract("lceme"))
    assert Evidence.SHAPLEY in find_contract("shapley share").needs


def test_a_job_that_cannot_collect_the_evidence_is_not_opened(tmp_path):
    path = small_job_file(tmp_path, 'kind = "lceme"', 'kind = "leave-one-out"')
    with pytest.raises(InputError, match="leave-one-out contributions, which a job does not collect"):
        run_job(read_job(path), tmp_path / "run", design=QUICK)
    with open_for_reading(tmp_path / "run" / "ledger.db") as book:
        assert book.entries() == []


def test_two_contracts_cannot_share_a_kind():
    with pytest.raises(InputError, match="registered already"):
        register(type("Other", (Contract,), {"kind": "lceme", "pay": lambda *_: None}))


@pytest.mark.parametrize("kind", contract_kinds())
def test_every_registered_contract_keeps_the_interface(kind):
    """Planned, taken apart into one client's terms and put together again, it pays them the same."""
    if kind.startswith("audition"):
        joint = joint_measurement(len(CLIENTS)) if kind == JointAudition.kind else None
        measured = audition_measurement(len(CLIENTS), joint=joint)
        made = plan_audition(AuditionInputs(CLIENTS, measured, Training(10), 1000.0))
    else:
        made = find_contract(kind).plan(PlanInputs(CLIENTS, MODEL, Training(10), Prices(1000.0)))
    claims = {"claimed_batch_size": 20.0, "contribution": Contribution(0.1, 0.5)}
    seen = Observation(0.4, delivered=3, asked=4, **claims)
    together = made.pay(seen)
    terms = made.terms()
    for i in range(2):
        own = find_contract(kind).for_one(made.batch_size[i], {name: values[i] for name, values in terms.items()})
        assert own.pay(seen)[0] == together[i]
        low, high = own.pay_range(0.0, 2.0)
        whole = Observation(0.4, **claims)
        assert low[0] <= own.pay(whole)[0] <= high[0]
        assert all(isinstance(one, str) and one for one in own.explanation(str))
        assert own.calculation(seen)[-1].result == own.pay(seen)[0]
    nothing = Observation(0.4, delivered=0, asked=0, **claims, solo=SoloResult(np.full(2, np.nan)))
    assert (made.pay(nothing) == 0).all()
