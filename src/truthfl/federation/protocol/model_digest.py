"""The hash by which the ledger calls a model."""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from truthfl.learning.model import Params


def model_digest(params: Params) -> str:
    """A hash of the model's numbers."""
    return sha256(np.ascontiguousarray(params, dtype="<f4").data).hexdigest()
