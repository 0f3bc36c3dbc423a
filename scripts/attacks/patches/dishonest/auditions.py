"""Participants whose solo model comes from a file, or is changed so that it would spoil the mean of all."""

import os
from pathlib import Path

PARTICIPANT = "truthfl.federation.participant.participant"
NOISE = 1.5  # times the mean square of the model's parameters


def borrowed_model(change):
    """Make the solo model `change(the model in the file)`."""

    def apply(module):
        def audition_model(*_, **__):
            import numpy as np

            kept = np.load(Path(os.environ["TRUTHFL_ATTACK_FOLDER"]) / "borrowed.npy")
            return change(kept).astype(np.float32)

        module.audition_model = audition_model

    return apply


def disguised(model):
    """A third of it, with noise: as good as an honest solo model, or better."""
    import numpy as np

    noise = np.random.default_rng(1).normal(size=model.shape)
    return (model + NOISE * np.sqrt(np.square(model).mean()) * noise) / 3


def changed_model(change):
    """Make the solo model `change(the honest one)`."""

    def apply(module):
        honest = module.audition_model

        def audition_model(*arguments, **more):
            return change(honest(*arguments, **more).copy())

        module.audition_model = audition_model

    return apply


def one_class(model):
    """The bias of the last class is huge."""
    model[-1] = 1e5
    return model


def not_a_number(model):
    model[0] = float("nan")
    return model


def from_solo_models(module):
    """An honest operator whose training starts from solo models, up to 1.5 times as long as pilot clients'."""
    from dataclasses import replace

    from truthfl.contracts.audition.pilot import draw_pilot_clients
    from truthfl.contracts.formulas import SOLO_MEAN
    from truthfl.learning.solo import solo_length, train_all_alone

    make_offers = module.planned_offers

    def planned_offers(roster, job, make_plan, opening, *more):
        def plan_from_solo(job, side):
            plan = make_plan(job, side)
            labels, data = int(plan.clients.dataset_size.max()), side.pilot.data
            samples = [(data.features[own], data.labels[own]) for own in draw_pilot_clients(side, labels, 1).rows]
            models = train_all_alone(side.pilot.model, samples, plan.recipe, opening.seed, classes=data.classes)
            longest = max(solo_length(model) for model in models)
            return replace(plan, start=SOLO_MEAN, solo_bound=1.5 * longest)

        return make_offers(roster, job, plan_from_solo, opening, *more)

    module.planned_offers = planned_offers


CHANGES = {
    "starts from solo models": {"truthfl.federation.protocol.planned_offers": from_solo_models},
    "huge solo model": {PARTICIPANT: changed_model(lambda model: 1e6 * model)},
    "long solo model": {PARTICIPANT: changed_model(lambda model: 100 * model)},
    "solo model of one class": {PARTICIPANT: changed_model(one_class)},
    "solo model that is none": {PARTICIPANT: changed_model(not_a_number)},
    "opposed solo model": {PARTICIPANT: changed_model(lambda model: -model)},
    "borrowed": {PARTICIPANT: borrowed_model(lambda model: model)},
    "disguised": {PARTICIPANT: borrowed_model(disguised)},
}
