"""Named ways to behave, honest and not, as what a client really does. Looks at `errors` and the mechanism.

Each behaviour declares which of its parts are honest. The declaration is not computed from the numbers, so that a test
can hold one against the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from truthfl.errors import InputError
from truthfl.mechanism.checks import FloatArray, IntArray, client_whole_numbers, number
from truthfl.mechanism.strategies import Strategies


def behaviour(name: str) -> Behaviour:
    """The behaviour of that name."""
    if name not in BEHAVIOURS:
        raise InputError(f"behaviour is {name!r}; it must be one of: {', '.join(BEHAVIOURS)}.")
    return BEHAVIOURS[name]


def play(names: Sequence[str], assigned_batch_size: ArrayLike) -> Strategies:
    """What clients with these behaviours, one each, do when asked for these batch sizes; the least batch is 1 sample.

    Error rates are no part of it: see `error_rates`.
    """
    kinds, kind_of = _kinds(names)
    assigned = client_whole_numbers(
        "assigned_batch_size", assigned_batch_size, len(kind_of), "client {}".format, at_least=1
    )
    return Strategies(
        labeling_effort=np.array([kind.labeling_effort for kind in kinds])[kind_of],
        batch_size=np.maximum(1.0, np.rint(np.array([kind.batch_share for kind in kinds])[kind_of] * assigned)),
        report_scale=np.array([kind.report_scale for kind in kinds])[kind_of],
    )


def error_rates(names: Sequence[str]) -> FloatArray:
    """How often each client's honestly made labels are wrong."""
    kinds, kind_of = _kinds(names)
    return np.array([kind.error_rate for kind in kinds])[kind_of]


def _kinds(names: Sequence[str]) -> tuple[list[Behaviour], IntArray]:
    """The behaviours that occur, and which of them each client has."""
    if isinstance(names, str) or len(names) == 0:
        raise InputError(f"names is {names!r}; it must be a list with the name of a behaviour per client.")
    different, kind_of = np.unique(np.asarray(names, dtype=str), return_inverse=True)
    for position, name in enumerate(different):
        if name not in BEHAVIOURS:
            client = int(np.flatnonzero(kind_of == position)[0])
            raise InputError(
                f"behaviour of client {client} is {str(name)!r}; it must be one of: {', '.join(BEHAVIOURS)}."
            )
    return [BEHAVIOURS[name] for name in different], kind_of


@dataclass(frozen=True)
class Behaviour:
    """One way to behave; what is not said is done as asked.

    labeling_effort    e_i  share of her samples that she labels by looking; she draws the others' labels at random
    batch_share             of the batch she was asked to use
    report_scale       γ_i  she sends the model she received plus γ_i times her change to it
    error_rate              chance that a label made by looking is wrong all the same
    labels_honestly         she looks at every sample; whoever does and errs is honest still, as her effort is what
                            honesty asks for and what costs her
    computes_honestly       she uses the batch she was asked to use
    reports_honestly        she sends what she computed
    """

    name: str
    description: str
    labels_honestly: bool
    computes_honestly: bool
    reports_honestly: bool
    labeling_effort: float = 1.0
    batch_share: float = 1.0
    report_scale: float = 1.0
    error_rate: float = 0.0

    def __post_init__(self) -> None:
        number("report_scale", self.report_scale, at_least=0)
        for field in ("labeling_effort", "batch_share", "error_rate"):
            if number(field, getattr(self, field), at_least=0) > 1:
                raise InputError(f"{field} is {getattr(self, field):g}; it must be from 0 to 1.")

    @property
    def truthful(self) -> bool:
        """Honest in all that she does."""
        return self.labels_honestly and self.computes_honestly and self.reports_honestly


_ALL = (
    Behaviour(
        "truthful",
        "Labels every sample, uses the batch she was asked to use and reports what she computed.",
        labels_honestly=True,
        computes_honestly=True,
        reports_honestly=True,
    ),
    Behaviour(
        "lazy labeler",
        "Draws all her labels at random.",
        labels_honestly=False,
        computes_honestly=True,
        reports_honestly=True,
        labeling_effort=0.0,
    ),
    Behaviour(
        "half-hearted labeler",
        "Labels half of her samples and draws the labels of the other half at random.",
        labels_honestly=False,
        computes_honestly=True,
        reports_honestly=True,
        labeling_effort=0.5,
    ),
    Behaviour(
        "sloppy labeler",
        "Labels every sample, and one label in five comes out wrong.",
        labels_honestly=True,
        computes_honestly=True,
        reports_honestly=True,
        error_rate=0.2,
    ),
    Behaviour(
        "small batch",
        "Computes on a fifth of the batch she was asked to use.",
        labels_honestly=True,
        computes_honestly=False,
        reports_honestly=True,
        batch_share=0.2,
    ),
    Behaviour(
        "free rider",
        "Does no work and sends back the model she received.",
        labels_honestly=False,
        computes_honestly=False,
        reports_honestly=False,
        labeling_effort=0.0,
        batch_share=0.0,
        report_scale=0.0,
    ),
    Behaviour(
        "exaggerator",
        "Doubles the change she computed before she reports it.",
        labels_honestly=True,
        computes_honestly=True,
        reports_honestly=False,
        report_scale=2.0,
    ),
    Behaviour(
        "understater",
        "Halves the change she computed before she reports it.",
        labels_honestly=True,
        computes_honestly=True,
        reports_honestly=False,
        report_scale=0.5,
    ),
    Behaviour(
        "saboteur",
        "Draws all her labels at random, computes on a fifth of the batch and doubles the change she reports.",
        labels_honestly=False,
        computes_honestly=False,
        reports_honestly=False,
        labeling_effort=0.0,
        batch_share=0.2,
        report_scale=2.0,
    ),
)

BEHAVIOURS: Mapping[str, Behaviour] = MappingProxyType({kind.name: kind for kind in _ALL})
