"""Participants whose solo model comes from a file instead of training on their labels."""

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


CHANGES = {
    "borrowed": {PARTICIPANT: borrowed_model(lambda model: model)},
    "disguised": {PARTICIPANT: borrowed_model(disguised)},
}
