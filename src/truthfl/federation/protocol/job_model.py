"""Build the model described in a job's terms. Imports `learning` and the ledger's `terms`."""

from __future__ import annotations

import numpy as np

from truthfl.learning.federations import ModelChoice
from truthfl.learning.images import LabeledImages
from truthfl.learning.model import Model
from truthfl.ledger.terms import JobTerms


def model_of(terms: JobTerms) -> Model:
    shape = (1, *terms.image_shape)
    return ModelChoice(**terms.model).for_images(LabeledImages(np.zeros(shape, np.uint8), [0], terms.classes))
