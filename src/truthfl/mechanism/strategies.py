"""`Strategies`: the real behaviour of clients as numbers (e, D, γ and the claimed batch)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from truthfl.errors import InputError
from truthfl.mechanism.checks import FloatArray


@dataclass(frozen=True, init=False, eq=False)
class Strategies:
    """Every client's real behaviour; arrays of shape (N,), or (…, N) for many profiles at once.

    labeling_effort     e_i  1: correct labels, 0: labels drawn at random
    batch_size          D_i  samples in each local step's batch
    report_scale        γ_i  she sends w_{t−1} + γ_i (w_i − w_{t−1})
    claimed_batch_size       the batch size she claims to have used; by default the real one
    """

    labeling_effort: FloatArray
    batch_size: FloatArray
    report_scale: FloatArray
    claimed_batch_size: FloatArray

    def __init__(
        self,
        labeling_effort: ArrayLike,
        batch_size: ArrayLike,
        report_scale: ArrayLike,
        claimed_batch_size: ArrayLike | None = None,
    ) -> None:
        claimed = batch_size if claimed_batch_size is None else claimed_batch_size
        try:
            arrays = np.broadcast_arrays(
                *(np.asarray(a, dtype=float) for a in (labeling_effort, batch_size, report_scale, claimed))
            )
        except ValueError:
            raise InputError("the parts of Strategies differ in shape; each must have one number per client.") from None
        effort, batch, scale, claim = arrays
        for field, bad, wanted in (
            ("labeling_effort", ~((effort >= 0) & (effort <= 1)), "a number from 0 to 1"),
            ("batch_size", ~((batch > 0) & np.isfinite(batch)), "a positive finite number"),
            ("report_scale", ~((scale >= 0) & np.isfinite(scale)), "a finite number, at least 0"),
            ("claimed_batch_size", ~((claim >= 0) & np.isfinite(claim)), "a finite number, at least 0"),
        ):
            if bad.any():
                where = np.argwhere(np.atleast_1d(bad))[0]
                value = np.atleast_1d(dict(zip(self.__dataclass_fields__, arrays, strict=True))[field])[tuple(where)]
                raise InputError(f"{field} of client {where[-1]} is {value:g}; it must be {wanted}.")
        for field, array in zip(self.__dataclass_fields__, arrays, strict=True):
            object.__setattr__(self, field, array)

    @classmethod
    def truthful(cls, batch_size: ArrayLike) -> Strategies:
        """All clients label, use the assigned batch sizes and report what they computed."""
        return cls(1.0, batch_size, 1.0)
