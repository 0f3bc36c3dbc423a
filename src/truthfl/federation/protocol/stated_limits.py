"""What a client may say of herself when she enrols: how many samples she brings, and what work costs her.

Costs scale with the samples brought.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from truthfl.coded_text import coded
from truthfl.errors import InputError
from truthfl.job import DataJob
from truthfl.job.cost_distribution import cost_range

LEAST_COST_SHARE = 0.01  # of the job's cost; a lower statement is a mistake, or meant to break the plan


@dataclass(frozen=True)
class StatedLimits:
    """What the job says of one client.

    fewest_samples  who brings fewer is not taken in
    most_samples    further samples of hers are not asked for
    label_cost      of one label
    sample_cost     of one sample in one round's gradient
    cost_range      the lowest and the highest sample cost that she may state, in a job with a distribution of costs
    """

    fewest_samples: int
    most_samples: int
    label_cost: float
    sample_cost: float
    cost_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class ReckonedClient:
    """What the plan reckons with: her samples, the cost of labeling them all, the cost of one in one gradient.

    stated  whether the last is her own statement, in a job with a distribution of costs
    """

    samples: int
    labeling_cost: float
    sample_cost: float
    stated: bool = False


def limits_of(job: DataJob) -> dict[str, StatedLimits]:
    """The limits of each of the job's clients; she need not bring more than the job says that she has."""
    clients, distribution = job.clients, job.server.cost_distribution
    costs = None if distribution is None else cost_range(distribution)
    return {
        name: StatedLimits(min(job.server.fewest_samples, size), size, float(label_cost), float(sample_cost), costs)
        for name, size, label_cost, sample_cost in zip(
            clients.name, clients.dataset_size, clients.label_cost, clients.sample_cost, strict=True
        )
    }


def require_within(description: Mapping[str, Any], limits: StatedLimits) -> None:
    """Raise `InputError` if a checked enrolment document says what no plan can be made with."""
    samples = description["samples"]
    if samples < limits.fewest_samples:
        words = "{name} brings {count} samples; the job asks for {fewest} or more."
        if samples == 1:
            words = "{name} brings {count} sample; the job asks for {fewest} or more."
        name, fewest = description["name"], limits.fewest_samples
        raise InputError(coded("refusal.few_samples", words, name=name, count=samples, fewest=fewest))
    own_cost = description.get("sample_cost")
    if own_cost is not None and limits.cost_range is not None:
        low, high = limits.cost_range
        if not low <= own_cost <= high:
            words = "sample_cost is {cost}; the job takes costs from {low} to {high}."
            values = {"cost": f"{own_cost:g}", "low": f"{low:g}", "high": f"{high:g}"}
            raise InputError(coded("refusal.cost_range", words, **values))
    stated = {
        "labeling_cost": (description.get("labeling_cost"), limits.label_cost * samples),
        "sample_cost": (own_cost if limits.cost_range is None else None, limits.sample_cost),
    }
    for field, (cost, job_cost) in stated.items():
        if cost is not None and cost < LEAST_COST_SHARE * job_cost:
            words = "{field} is {cost}; the job reckons with {usual}, and lower ones are taken from {least} on."
            values = {"cost": f"{cost:g}", "usual": f"{job_cost:g}", "least": f"{LEAST_COST_SHARE * job_cost:g}"}
            raise InputError(coded("refusal.low_cost", words, field=field, **values))


def reckoned(description: Mapping[str, Any], limits: StatedLimits, labeling_cost: float) -> ReckonedClient:
    """The lower of her own and the job's numbers; `labeling_cost` is the job's, of all `most_samples`.

    In a job with a distribution of costs, the sample cost that she states is taken as it is.
    """
    brought = description["samples"]
    samples = min(limits.most_samples, brought)
    labeling = labeling_cost * (samples / limits.most_samples)
    if "labeling_cost" in description:
        labeling = min(labeling, float(description["labeling_cost"]) * (samples / brought))
    sample_cost = float(description.get("sample_cost", limits.sample_cost))
    if limits.cost_range is not None:
        return ReckonedClient(samples, labeling, sample_cost, stated="sample_cost" in description)
    return ReckonedClient(samples, labeling, min(limits.sample_cost, sample_cost))
