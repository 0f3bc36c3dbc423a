"""What an offer means for privacy, in words: what leaves the participant's machine, who sees it, what it can tell.

What is said to be recoverable was measured by `benchmarks.inversion`; docs/security.md has the numbers. Imports the
ledger's `terms` and `round_terms`; `learning` when an offer has noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from truthfl.ledger.round_terms import OWN
from truthfl.ledger.terms import Offer

if TYPE_CHECKING:
    from truthfl.learning.promised_privacy import PromisedPrivacy

MUCH = 10.0  # an ε above which little is promised


def privacy_view(offer: Offer) -> dict[str, Any]:
    """What leaves her machine, a sentence each; what noise promises; None for `noise` if there is no clipping."""
    promised = promised_to(offer)
    return {
        "leaves": what_leaves(offer),
        "noise": None if promised is None else asdict(promised) | {"epsilon": _finite(promised.epsilon)},
        "noise_words": noise_words(offer, promised),
    }


def sample_noun(offer: Offer) -> str:
    """What a sample of the offer's job is called: "picture", "text" or "row"."""
    if offer.job.task is None:
        return "picture"
    return "text" if offer.job.task["name"] == "texts" else "row"


def what_leaves(offer: Offer) -> list[str]:
    """What the participant's machine sends in this job, one sentence each."""
    job, client, noun = offer.job, offer.client, sample_noun(offer)
    size = " and of what size" if noun == "picture" else ""
    sent = [
        f"Your name, your public key, how many {noun}s you have{size}, and the costs that you state.",
        f"While you label, how many {noun}s are labeled.",
        "Your signed answers: to this offer, and that you have the final model.",
    ]
    if job.has_audition:
        sent.append(
            f"A model that your computer trains alone on your {client.samples:,} labeled {noun}s. The operator sees "
            "it. It tells roughly how often each class is among your labels and, somewhat better than by chance, "
            f"whether a {noun} that the operator has is one of yours."
        )
    asked = f"about {client.batch_size:,} of your {noun}s"
    rounds = f"In each of {job.rounds:,} rounds, how {asked} would change the model."
    if job.aggregation == OWN:
        rounds += " Reports are combined in a way of the operator's own, which you cannot check."
    if job.secure_aggregation:
        sent.append(
            f"{rounds} It is masked: the operator sees sums of at least three reports. It could see yours alone "
            "if two other participants helped it or were invented by it, or in a round of which it says falsely that "
            "you dropped out; your receipt then contradicts what your computer kept."
        )
    elif noun == "picture":
        sent.append(
            f"{rounds} The operator sees each by itself: from one it can read how often each label is in it and some "
            "of the pictures, and from all together most of your labels and many of your pictures."
        )
    else:
        sent.append(
            f"{rounds} The operator sees each by itself. How much can be read from that was not measured for {noun}s; "
            f"take it that it is most of your labels and many of your {noun}s."
        )
    return sent


def noise_words(offer: Offer, promised: PromisedPrivacy | None) -> str:
    """What clipping and noise promise, in words."""
    if promised is None:
        return "No noise is added to what is sent, so nothing is promised of what can be learned from it."
    noun = sample_noun(offer)
    if not promised.noise:
        return (
            f"Each {noun}'s part of a change is shortened to {promised.clip:g}. No noise is added, so nothing is "
            "promised of what can be learned."
        )
    much = " That is a weak promise." if promised.epsilon > MUCH else ""
    return (
        f"Each {noun}'s part of a change is shortened to {promised.clip:g}, and noise of {promised.noise:g} times "
        f"that is added: whether any one {noun} is among your {offer.client.samples:,} changes the odds of anything "
        f"that the operator sees in this job by a factor of at most e^{promised.epsilon:.1f}, except with probability "
        f"{promised.delta:g}.{much} Several jobs add up."
    )


def promised_to(offer: Offer) -> PromisedPrivacy | None:
    """What the offer's noise promises; None if gradients are not clipped."""
    model = offer.job.model
    if not isinstance(model, Mapping) or not model.get("clip"):
        return None
    from truthfl.learning.promised_privacy import promised_privacy
    from truthfl.learning.recipe import recipe_of

    return promised_privacy(
        float(model["clip"]),
        float(model.get("noise", 0.0)),
        samples=offer.client.samples,
        batch_size=offer.client.batch_size,
        steps=offer.job.rounds * offer.job.local_steps,
        recipe=recipe_of(offer.job.recipe) if offer.job.has_audition else None,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
