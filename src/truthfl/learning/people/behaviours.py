"""The registry of behaviours and the built-in ones."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from truthfl.errors import InputError
from truthfl.learning.people.behaviour import Behaviour, Echo, Garbage, LastBit, Unlabeled

_REGISTERED: dict[str, Behaviour] = {}
BEHAVIOURS: Mapping[str, Behaviour] = MappingProxyType(_REGISTERED)


def behaviour(name: str | Behaviour, *, field: str = "behaviour") -> Behaviour:
    """The registered behaviour of this name; a `Behaviour` is returned as it is. `field` is named in the error."""
    if isinstance(name, Behaviour):
        return name
    if not isinstance(name, str) or name not in _REGISTERED:
        raise InputError(f"{field} is {name!r}; it must be one of: {', '.join(_REGISTERED)}.")
    return _REGISTERED[name]


def register(new_behaviour: Behaviour) -> Behaviour:
    """Register a behaviour under its name, in this process; job files may then use the name."""
    name = new_behaviour.name
    if _REGISTERED.get(name, new_behaviour) != new_behaviour:
        raise InputError(f"the behaviour {name!r} exists already; choose another name.")
    _REGISTERED[name] = new_behaviour
    return new_behaviour


TRUTHFUL = register(
    Behaviour(
        "truthful",
        "Labels every sample, uses the requested batch and reports what they computed; bears the whole cost.",
        labels_honestly=True,
        computes_honestly=True,
        reports_honestly=True,
    )
)
LAZY_LABELER = register(
    Behaviour(
        "lazy labeler",
        "Draws all their labels at random, and saves the cost of labeling.",
        labels_honestly=False,
        computes_honestly=True,
        reports_honestly=True,
        labeling_effort=0.0,
    )
)
register(
    Behaviour(
        "half-hearted labeler",
        "Labels half of their samples, which costs half, and draws the labels of the other half at random.",
        labels_honestly=False,
        computes_honestly=True,
        reports_honestly=True,
        labeling_effort=0.5,
    )
)
register(
    Behaviour(
        "sloppy labeler",
        "Labels every sample, at the full cost, and one label in five comes out wrong.",
        labels_honestly=True,
        computes_honestly=True,
        reports_honestly=True,
        error_rate=0.2,
    )
)
register(
    Behaviour(
        "small batch",
        "Computes on a fifth of the requested batch, at a fifth of the cost.",
        labels_honestly=True,
        computes_honestly=False,
        reports_honestly=True,
        batch_share=0.2,
    )
)
FREE_RIDER = register(
    Behaviour(
        "free rider",
        "Does no work, which costs nothing, and sends back the received model.",
        labels_honestly=False,
        computes_honestly=False,
        reports_honestly=False,
        labeling_effort=0.0,
        batch_share=0.0,
        report_scale=0.0,
        computes=False,
    )
)
EXAGGERATOR = register(
    Behaviour(
        "exaggerator",
        "Doubles the computed change before reporting it, and saves nothing.",
        labels_honestly=True,
        computes_honestly=True,
        reports_honestly=False,
        report_scale=2.0,
    )
)
register(
    Behaviour(
        "understater",
        "Halves the computed change before reporting it, and saves nothing.",
        labels_honestly=True,
        computes_honestly=True,
        reports_honestly=False,
        report_scale=0.5,
    )
)
register(
    Behaviour(
        "saboteur",
        "Draws all their labels at random, computes on a fifth of the batch and doubles the reported change; a fifth "
        "of the computing is the only cost.",
        labels_honestly=False,
        computes_honestly=False,
        reports_honestly=False,
        labeling_effort=0.0,
        batch_share=0.2,
        report_scale=2.0,
    )
)
register(
    Behaviour(
        "whisperer",
        "Draws all their labels at random, computes on one sample and reports a fiftieth of the change; one sample "
        "per batch is the only cost.",
        labels_honestly=False,
        computes_honestly=False,
        reports_honestly=False,
        labeling_effort=0.0,
        batch_share=0.0,
        report_scale=0.02,
    )
)
register(
    Behaviour(
        "echo",
        "Does no work, which costs nothing, and reports the last change of the common model as their own; in their "
        "first round there is none, so they send the model back unchanged.",
        labels_honestly=False,
        computes_honestly=False,
        reports_honestly=False,
        labeling_effort=0.0,
        batch_share=0.0,
        computes=False,
        fabricate=Echo(),
        remembers=1,
    )
)
register(
    Behaviour(
        "noisy echo",
        "Does no work, which costs nothing, and reports the last change of the common model with noise half as long.",
        labels_honestly=False,
        computes_honestly=False,
        reports_honestly=False,
        labeling_effort=0.0,
        batch_share=0.0,
        computes=False,
        fabricate=Echo(noise=0.5),
        remembers=1,
    )
)
register(
    Behaviour(
        "garbage",
        "Does no work, which costs nothing, and reports a change in a random direction, as long as the last change of "
        "the common model.",
        labels_honestly=False,
        computes_honestly=False,
        reports_honestly=False,
        labeling_effort=0.0,
        batch_share=0.0,
        computes=False,
        fabricate=Garbage(),
        remembers=1,
    )
)
register(
    Behaviour(
        "last bit",
        "Does no work, which costs nothing, and sends back the received model with the last bit of one number "
        "changed, so that it is not empty.",
        labels_honestly=False,
        computes_honestly=False,
        reports_honestly=False,
        labeling_effort=0.0,
        batch_share=0.0,
        computes=False,
        fabricate=LastBit(),
    )
)
register(
    Behaviour(
        "parrot",
        "Lets the current common model label all their samples, computes and reports honestly, and saves the cost "
        "of labeling.",
        labels_honestly=False,
        computes_honestly=True,
        reports_honestly=True,
        labeling_effort=0.0,
        unlabeled=Unlabeled.PREDICTED,
    )
)
register(
    Behaviour(
        "half parrot",
        "Labels half of their samples, which costs half, and lets the current common model label the others.",
        labels_honestly=False,
        computes_honestly=True,
        reports_honestly=True,
        labeling_effort=0.5,
        unlabeled=Unlabeled.PREDICTED,
    )
)
register(
    Behaviour(
        "few labels",
        "Labels a tenth of their samples, which costs a tenth, and trains on those alone.",
        labels_honestly=False,
        computes_honestly=True,
        reports_honestly=True,
        labeling_effort=0.1,
        unlabeled=Unlabeled.LEFT_OUT,
    )
)
register(
    Behaviour(
        "neighbour labeler",
        "Labels a quarter of their samples, which costs a quarter, and gives each of the others the label of the "
        "labeled one that looks most like it.",
        labels_honestly=False,
        computes_honestly=True,
        reports_honestly=True,
        labeling_effort=0.25,
        unlabeled=Unlabeled.NEAREST,
    )
)
register(
    Behaviour(
        "fading reporter",
        "Draws all their labels at random, which saves their cost, and reports their whole change in the first round, "
        "less of it in each later round, and a fiftieth in the last.",
        labels_honestly=False,
        computes_honestly=True,
        reports_honestly=False,
        labeling_effort=0.0,
        report_scale=1.0,
        last_report_scale=0.02,
    )
)
