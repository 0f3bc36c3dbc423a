"""What a plan's noise promises its clients, as a sentence and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truthfl.learning.private_model import PrivateModel
from truthfl.learning.promised_privacy import PromisedPrivacy, promised_privacy

if TYPE_CHECKING:
    from truthfl.learning.planning import Plan


def promises(plan: Plan) -> list[PromisedPrivacy]:
    """The promise to each client; empty if gradients are not clipped."""
    model, training = plan.side.pilot.model, plan.training
    if not isinstance(model, PrivateModel):
        return []
    return [
        promised_privacy(
            model.clip,
            model.noise,
            samples=int(samples),
            batch_size=float(batch),
            steps=training.rounds * training.local_steps,
            recipe=None if plan.audition is None else plan.audition.recipe,
        )
        for samples, batch in zip(plan.clients.dataset_size, plan.contract.batch_size, strict=True)
    ]


def privacy_json(plan: Plan) -> dict[str, object]:
    """ε of each client and δ; empty without noise."""
    found = promises(plan)
    if not found or not found[0].noise:
        return {}
    return {"privacy": {"epsilon": [one.epsilon for one in found], "delta": found[0].delta}}


def privacy_sentence(plan: Plan) -> str | None:
    """What the noise promises; None if gradients are not clipped."""
    found = promises(plan)
    if not found:
        return None
    if not found[0].noise:
        return "Gradients are clipped; without noise that promises nothing of what can be learned from them."
    least, most = min(one.epsilon for one in found), max(one.epsilon for one in found)
    return (
        f"Noise of {found[0].noise:g} times clip: each client's epsilon, of all that she sends in this job, is "
        f"{least:.1f} to {most:.1f} at a delta of {found[0].delta:g}."
    )
