"""How the plan of an audition came about, and what is shown of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from truthfl.contracts.audition.joint import TOLERATED_GAIN, JointAudition, idle_gain
from truthfl.contracts.audition.level import SoloCurve
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.audition.pilot import MORE_LABELS
from truthfl.contracts.audition.plan import AuditionInputs, best_choice, label_task
from truthfl.contracts.contract import Observation
from truthfl.contracts.details import CERTAIN, ROWS_SHOWN, PlanTable, PlanWorth, more_rows
from truthfl.contracts.formulas import SOLO_MEAN
from truthfl.contracts.setting import FloatArray, batch_price

if TYPE_CHECKING:
    from truthfl.contracts.audition.rounds import JointCurve, JointLevel, JointTraining, Tuned
    from truthfl.contracts.planning import Plan

FACTORS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)


@dataclass(frozen=True, eq=False)
class AuditionDetails:
    """How the plan was made.

    solo      the solo curve
    joint     the joint curve
    inputs    the inputs of the contract
    contract  the contract
    how       how the joint model is trained; `level` is what that gives, `tuned` what was tried
    """

    solo: SoloCurve
    joint: JointCurve
    inputs: AuditionInputs
    contract: Audition
    how: JointTraining
    level: JointLevel
    tuned: Tuned

    @cached_property
    def worth(self) -> FloatArray:
        """(clients,) Of the labels of those asked to the server: κ (A / (N − n_i) − A / N)."""
        labels, curve = self.contract.labels, self.inputs.measured.joint_curve
        total = float(labels.sum())
        with np.errstate(divide="ignore"):
            return np.asarray(self.inputs.loss_value * curve * (1.0 / (total - labels) - 1.0 / total))

    @property
    def faked(self) -> FloatArray:
        """(clients,) What is saved by reporting without computing, where computing is paid a fixed amount."""
        fixed = not self.contract.pays_by_joint_loss
        return np.asarray(self.contract.computing_base if fixed else np.zeros_like(self.contract.labels))

    @cached_property
    def unproven(self) -> NDArray[np.bool_]:
        """(clients,) Who would gain more than is tolerated by not computing, where it is paid by the joint loss."""
        measured = self.inputs.measured.joint
        if measured is None:
            return np.zeros(len(self.contract.labels), dtype=bool)
        price = batch_price(self.inputs.clients, self.inputs.training)
        gain = idle_gain(self.contract.batch_size, measured.sampling, price, measured.absence)
        return np.asarray(gain > TOLERATED_GAIN * self.contract.label_base * (1.0 + 1e-9))

    def at_labels(self, factor: float) -> tuple[float, float, float]:
        """Joint loss, cost of labels and label pay of all, if this factor of the labels were asked of everyone."""
        task, planned = label_task(self.inputs), self.contract.labels
        labels = np.clip(np.rint(planned * factor), task.numbers[0], task.numbers[-1])
        loss = self.level.loss + self.inputs.measured.joint_curve * (1.0 / labels.sum() - 1.0 / planned.sum())
        return float(loss), float((task.label_cost * labels).sum()), float(task.expected_pay(labels).sum())

    def warnings(self, plan: Plan, worth: PlanWorth) -> list[str]:  # noqa: ARG002
        """What the pilot did not show, and which clients would gain by not computing."""
        found = []
        if self.joint.curve < CERTAIN * self.joint.error:
            words = "the joint loss does not clearly fall with labels on this pilot; pilot_samples may be few."
            found.append(f"Beware: {words}")
        wanted = math.ceil(MORE_LABELS * float(self.inputs.clients.dataset_size.max()))
        if self.solo.labels[-1] < wanted:
            pilot = len(plan.side.pilot.data)
            enough = math.ceil(pilot * wanted / float(self.solo.labels[-1]))
            found.append(
                f"The pilot data are few: {pilot} samples show what up to {self.solo.labels[-1]:.0f} labels do. With "
                f"pilot_samples = {enough} all that clients hold could be asked for."
            )
        if self.unproven.any():
            number = int(self.unproven.sum())
            found.append(f"Beware: not computing would gain {number} of {len(plan.clients)} more than 1% of pay.")
        return found

    def document(self, plan: Plan) -> dict[str, Any]:
        solo, joint, level = self.solo, self.joint, self.level
        told: dict[str, Any] = {
            "solo": {"labels": solo.labels.tolist(), "loss": solo.level(solo.labels).tolist()},
            "joint": {"curve": float(joint.curve), "error": float(joint.error)},
            "round_zero": {"start": self.how.start, "loss": level.zero, "accuracy": level.zero_accuracy},
        }
        return {"audition": told if plan.recipe is None else {"recipe": plan.recipe.document(), **told}}

    def report(self, plan: Plan, worth: PlanWorth, *, pictures: bool) -> AuditionReport:  # noqa: ARG002
        return AuditionReport(self, plan, pictures)


@dataclass(frozen=True, eq=False)
class AuditionReport:
    """The report on an audition's plan; `pictures`: whether the clients have pictures."""

    details: AuditionDetails
    plan: Plan
    pictures: bool

    @property
    def contract(self) -> Audition:
        assert isinstance(self.plan.contract, Audition)
        return self.plan.contract

    @property
    def cost(self) -> FloatArray:
        return self.plan.cost

    @cached_property
    def parts(self) -> dict[str, FloatArray]:
        """What each client is paid for labels and for computing, if all losses are as expected."""
        expected = self.contract.expected_joint_loss(Observation(0.0))
        return self.contract.parts(Observation(0.0 if expected is None else expected))

    @property
    def expected_pay(self) -> FloatArray:
        return np.asarray(sum(self.parts.values()))

    @property
    def most(self) -> FloatArray:
        """The most that each client is paid."""
        return self.contract.pay_range(0.0, self.plan.expected_loss)[1]

    @cached_property
    def largest_gain(self) -> FloatArray | None:
        """What each client gains at most by other labels or batches, on the curves; None for a custom contract."""
        built_in = type(self.contract) in (Audition, JointAudition)
        return best_choice(self.details.inputs, self.contract).gain if built_in else None

    def bought(self, factor: float) -> dict[str, float]:
        """Loss, cost and pay if this factor of the labels were bought, and what the server then has left."""
        details = self.details
        loss, cost, pay = details.at_labels(factor)
        labels = float(np.rint(self.contract.labels * factor).sum())
        server = details.inputs.loss_value * loss + pay
        return {"factor": factor, "labels": labels, "loss": loss, "cost": cost, "label_pay": pay, "server_cost": server}

    def tables(self) -> list[PlanTable]:
        return [self._clients(), self._rounds(), self._labels_bought()]

    def _clients(self) -> PlanTable:
        plan, contract, clients, cost, most = self.plan, self.contract, self.plan.clients, self.cost, self.most
        deviation = contract.deviation(plan.expected_loss, plan.loss_error)
        rows = [
            [
                str(i) if clients.name is None else clients.name[i],
                f"{contract.labels[i]:.0f}",
                f"{contract.batch_size[i]:.0f}",
                f"{cost[i]:,.2f}",
                *(f"{part[i]:,.2f}" for part in self.parts.values()),
                f"{deviation[i]:,.2f}",
                f"{most[i]:,.2f}",
                f"{self.details.worth[i]:,.0f}",
            ]
            for i in range(min(len(clients), ROWS_SHOWN))
        ]
        rows += more_rows(len(clients), 8)
        sums = [f"{part.sum():,.2f}" for part in self.parts.values()]
        labels = f"{contract.labels.sum():,.0f}"
        rows.append(["total", labels, "", f"{cost.sum():,.2f}", *sums, "", f"{most.sum():,.2f}", ""])
        columns = ["client", "labels", "batch", "cost", "for labels", "computing", "± pay", "most", "worth"]
        people = f"{len(clients)} client{'s' * (len(clients) > 1)}"
        return PlanTable(f"Plan for {people}, {plan.training.rounds} rounds, contract {contract.kind}", columns, rows)

    def _rounds(self) -> PlanTable:
        """The loss from both starts after some of the rounds, on the pilot; with the chosen step and batch."""
        details = self.details
        chosen = details.how
        rows = [
            [how.start, f"{how.training.rounds}", f"{loss:.4f}", "chosen" if how == chosen else ""]
            for how, loss in sorted(
                details.tuned.tried.items(), key=lambda item: (item[0].start, item[0].training.rounds)
            )
            if replace(how, start=chosen.start, training=replace(how.training, rounds=chosen.training.rounds)) == chosen
        ]
        return PlanTable("Joint training", ["start", "rounds", "joint loss", ""], rows)

    def _labels_bought(self) -> PlanTable:
        bought = [self.bought(factor) for factor in FACTORS]
        best = min(row["server_cost"] for row in bought)
        return PlanTable(
            "Labels bought",
            ["of the plan", "labels", "joint loss", "cost", "pay for them", "loss and pay", ""],
            [
                [
                    f"{row['factor']:.0%}",
                    f"{row['labels']:,.0f}",
                    f"{row['loss']:.4f}",
                    f"{row['cost']:,.0f}",
                    _amount(row["label_pay"]),
                    _amount(row["server_cost"]),
                    "least" if row["server_cost"] == best else "",
                ]
                for row in bought
            ],
        )

    def sentences(self) -> list[str]:
        plan, contract, details = self.plan, self.contract, self.details
        assert plan.recipe is not None
        found = [
            f"Expected joint loss {plan.expected_loss:.4f}; honest pay is "
            f"{self.expected_pay.sum() / self.cost.sum():.2f} times its cost. A client's own model is expected at a "
            f"loss of {contract.solo_level.min():.3f} to {contract.solo_level.max():.3f} ± "
            f"{contract.solo_spread.mean():.3f}, trained in "
            f"{recipe_words(plan.recipe.document(), pictures=self.pictures)}.",
            "± pay: standard deviation; most: no client is paid more; worth: what the loss without their labels costs "
            "more.",
        ]
        if self.largest_gain is not None:
            most = max(float(self.largest_gain.max()), 0.0)
            found.append(f"The most anybody gains by other labels or batches, on these curves: {most:.2f}.")
        if plan.left_out:
            names = list(plan.left_out)
            told = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            found.append(
                f"Not asked: {told}. Their labels are worth less than their price, or they hold too few samples."
            )
        training, level = plan.training, details.level
        start = "the mean of the solo models" if details.how.start == SOLO_MEAN else "the common start"
        found.append(
            f"The rounds start from {start}, whose loss is {level.zero:.4f} ({level.zero_accuracy:.1%} right): "
            f"{training.rounds} rounds, step size {training.step_size:.3g}, momentum {training.momentum:g}, batches of "
            f"{details.how.batch}."
        )
        if contract.pays_by_joint_loss:
            found.append("Computing is expensive here, so it is paid by the joint model's loss.")
        elif training.rounds:
            share = float((details.faked / self.expected_pay).max())
            found.append(
                f"Computing is paid a fixed amount for each report: a client who fakes all of them saves at most "
                f"{float(details.faked.max()):.2f}, {share:.1%} of pay."
            )
        return found

    def as_json(self) -> dict[str, Any]:
        plan, details, contract, solo = self.plan, self.details, self.contract, self.details.solo
        assert plan.recipe is not None
        on_curves = {} if self.largest_gain is None else {"largest_gain_on_the_curves": self.largest_gain}
        return {
            "contract": contract.kind,
            "clients": {
                "name": plan.clients.name,
                **contract.terms(),
                "batch_size": contract.batch_size,
                "cost": self.cost,
                "expected_pay": self.expected_pay,
                "most_pay": self.most,
                "worth": details.worth,
                **on_curves,
                "not_computing_gains": details.unproven,
                "faking_saves": details.faked,
            },
            "left_out": list(plan.left_out),
            "recipe": plan.recipe.document(),
            "solo_curve": {
                "labels": solo.labels,
                "loss": solo.level(solo.labels),
                "spread": solo.spread(solo.labels),
                "slope": solo.slope(solo.labels),
                "slope_error": solo.slope_error(solo.labels),
            },
            "joint_curve": {"curve": details.joint.curve, "error": details.joint.error},
            "joint_training": {
                "start": details.how.start,
                "rounds": plan.training.rounds,
                "step_size": plan.training.step_size,
                "momentum": plan.training.momentum,
                "batch": details.how.batch,
                "round_zero": {"loss": details.level.zero, "accuracy": details.level.zero_accuracy},
                "end": {"loss": details.level.loss, "accuracy": details.level.accuracy},
            },
            "labels_bought": [self.bought(factor) for factor in FACTORS],
            "expected_loss": plan.expected_loss,
            "total_pay": float(self.expected_pay.sum()),
        }


def recipe_words(recipe: Mapping[str, Any], *, pictures: bool) -> str:
    """How a client trains alone."""
    shifts = f", {'with' if recipe['shifts'] else 'without'} shifted copies" if pictures else ""
    return f"{recipe['steps']} steps of {recipe['batch_size']}{shifts}"


def _amount(value: float) -> str:
    """A whole amount; a dash where no pay elicits the labels on these curves."""
    return f"{value:,.0f}" if np.isfinite(value) else "–"
