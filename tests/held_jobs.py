"""Jobs in which a solo model is too good to be paid unseen."""

from dataclasses import replace

import numpy as np
import pytest

from audition_jobs import Plans
from truthfl.federation.participant import participant
from truthfl.job import DataJob
from truthfl.learning.solo import Recipe, train_alone


class NarrowGate(Plans):
    """Plans by which a loss is too good for honest people well above 0; that of so small a job would be below it."""

    def __call__(self, job, side, make=DataJob.plan):
        plan = super().__call__(job, side, make)
        return replace(plan, contract=replace(plan.contract, gate=np.full(len(plan.clients), 0.2)))


@pytest.fixture
def from_elsewhere(monkeypatch):
    """Cleo, the third, has a model that was trained on a thousand labels; the function says which, if on others."""
    honest, given = participant.audition_model, {}

    def audition_model(own, model, *arguments, client, **more):
        if client == 2 and "model" in given:
            return given["model"]
        return honest(own, model, *arguments, client=client, **more)

    monkeypatch.setattr(participant, "audition_model", audition_model)

    def give(model):
        given["model"] = model

    return give


def good_model(side):
    data = side.pilot.data
    everything = np.concatenate([data.features, side.test.features]), np.concatenate([data.labels, side.test.labels])
    return train_alone(side.pilot.model, *everything, Recipe(800, 64, 0.5, 1e-3, 0), 1)
