"""`OwnSteps`: a model whose local training is a method of the task, in place of gradient steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.learning.labeled_samples import read_only
from truthfl.learning.model import Features, Labels, Model, Params
from truthfl.learning.task import Task
from truthfl.learning.tasks.task_model import inputs


class OwnSteps:
    """A model that computes losses and gradients as another one, and is trained by `task.local_steps`."""

    def __init__(self, model: Model, task: Task, penalty: float | None = None) -> None:
        self.model, self.task = model, task
        self.penalty = float(getattr(model, "penalty", 0.0)) if penalty is None else penalty
        self.size, self.init = model.size, model.init
        self.scores, self.predict, self.accuracy = model.scores, model.predict, model.accuracy
        self.weighted_gradient, self.loss = model.weighted_gradient, model.loss

    def with_penalty(self, penalty: float) -> OwnSteps:
        """The same model with another penalty in training."""
        return OwnSteps(self.model, self.task, penalty)

    def local_steps(
        self, params: Params, features: Features, labels: Labels, batches: Sequence[NDArray[np.int64]], step_size: float
    ) -> Params:
        """The parameters after one step on each of these batches, positions of samples, from `params`."""
        own: Any = self.task
        x, start = inputs(features), read_only(params)
        trained = np.asarray(own.local_steps(start, x, labels, batches, step_size, self.penalty))
        if trained.size != self.size or trained.dtype.kind != "f":
            raise InputError(
                f"{type(own).__name__}'s local_steps gave {trained.size} values of type {trained.dtype}; it must give "
                f"the model's {self.size} parameters."
            )
        return trained.reshape(-1).astype(np.float32, copy=True)
