"""What an offer means for privacy, in words: what leaves the participant's machine, who sees it, what it can tell.

What is said to be recoverable was measured by `benchmarks.inversion`; docs/security.md has the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from truthfl.ledger.round_terms import OWN
from truthfl.ledger.terms import Offer
from truthfl.page.catalogue import Message, rounded

if TYPE_CHECKING:
    from truthfl.learning.promised_privacy import PromisedPrivacy

MUCH = 10.0  # an ε above which little is promised


def privacy_view(offer: Offer) -> dict[str, Any]:
    """What leaves her machine, a sentence each; what noise promises; None for `noise` if there is no clipping."""
    promised = promised_to(offer)
    return {
        "leaves": [asdict(sentence) for sentence in what_leaves(offer)],
        "noise": None if promised is None else asdict(promised) | {"epsilon": _finite(promised.epsilon)},
        "noise_words": asdict(noise_words(offer, promised)),
    }


def sample_noun(offer: Offer) -> str:
    """What a sample of the offer's job is called: "picture", "text" or "row"."""
    task = offer.job.task
    return {"pictures": "picture", "texts": "text"}.get("pictures" if task is None else str(task["name"]), "row")


def what_leaves(offer: Offer) -> list[Message]:
    """What the participant's machine sends in this job, one sentence each."""
    job, client, noun = offer.job, offer.client, sample_noun(offer)
    own_way = job.aggregation == OWN
    rounds = Message(
        "privacy.rounds_own" if own_way else "privacy.rounds",
        {"rounds": job.rounds, "number": client.batch_size, "noun": noun},
    )
    seen = "privacy.seen_pictures" if noun == "picture" else "privacy.seen"
    return [
        Message("privacy.identity_pictures" if noun == "picture" else "privacy.identity", {"noun": noun}),
        Message("privacy.progress", {"noun": noun}),
        Message("privacy.answers"),
        *([Message("privacy.audition", {"number": client.samples, "noun": noun})] if job.has_audition else []),
        Message("privacy.masked" if job.masked else seen, {"sent": rounds, "noun": noun}),
    ]


def noise_words(offer: Offer, promised: PromisedPrivacy | None) -> Message:
    """What clipping and noise promise, in words."""
    if promised is None:
        return Message("privacy.no_noise")
    values: dict[str, Any] = {"noun": sample_noun(offer), "clip": promised.clip}
    if not promised.noise:
        return Message("privacy.clipped", values)
    if not math.isfinite(promised.epsilon):
        return Message("privacy.hardly_noisy", values)
    values |= {
        "noise": promised.noise,
        "number": offer.client.samples,
        "epsilon": rounded(promised.epsilon, 1),
        "delta": promised.delta,
    }
    return Message("privacy.noisy_weak" if promised.epsilon > MUCH else "privacy.noisy", values)


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
