"""Audition contracts on known curves."""

import numpy as np

from truthfl import Clients, LossModel, PlanInputs, Training
from truthfl.contracts.audition.level import SoloCurve
from truthfl.contracts.audition.plan import AuditionMeasurement

NUMBERS = np.unique(np.rint(np.geomspace(20, 300, 24)))


SCORES = np.linspace(-1.5, 1.5, 41) / np.std(np.linspace(-1.5, 1.5, 41), ddof=1)  # of 41 pilot clients, exactly


def curve(scale=60.0, floor=0.3, relative_spread=0.2, power=1.0, spread_power=1.0):
    """floor + scale / n^power, with a spread that is a share of its slope and falls as n^-spread_power."""
    level = floor + scale / NUMBERS**power
    slope = power * scale / NUMBERS**power
    spread = relative_spread * slope[-1] * (NUMBERS[-1] / NUMBERS) ** spread_power
    return SoloCurve(NUMBERS, level + SCORES[:, None] * spread)


def measurement(count, solo=None, **changes):
    values = {
        "solo": curve() if solo is None else solo,
        "joint_curve": 60.0,
        "joint_curve_error": 3.0,
        "constant": 0.3,
        "sampling": np.full(count, 0.03),
        "absence": np.full(count, 0.01),
        "loss_error": 0.015,
        "audition_cost": np.full(count, 2.0),
    }
    return AuditionMeasurement(**(values | changes))


def inputs(count=10, label_cost=1.0, sample_cost=0.0006, kappa=40_000.0, measured=None, **changes):
    clients = Clients(
        weight=np.full(count, 1.0 / count),
        gradient_variance=1.0,
        sample_cost=sample_cost,
        labeling_cost=np.broadcast_to(label_cost, (count,)) * 220.0,
        dataset_size=220,
    )
    nothing = np.zeros(count)
    model = LossModel(constant=0.0, sampling=nothing, labeling=nothing, reporting=nothing)
    measured = measurement(count) if measured is None else measured
    return PlanInputs(clients, model, Training(100), kappa, audition=measured, **changes)
