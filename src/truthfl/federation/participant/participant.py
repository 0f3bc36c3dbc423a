"""What the node of a participant with pictures does: what a signatory does, and labels and trains one of our models.

Looks at `signatory`, `learning` and the ledger's papers. It knows no Flower; `client_app` puts it on the network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController

from truthfl.errors import InputError
from truthfl.federation.participant.received_models import RECEIVED, received_models
from truthfl.federation.participant.signatory import Signatory
from truthfl.federation.protocol.job_model import model_of
from truthfl.learning.behaviour import Behaviour
from truthfl.learning.behaviours import behaviour
from truthfl.learning.local_training import report_of_round
from truthfl.learning.model import Images, Labels, Model, Params
from truthfl.ledger.terms import Offer, offer_from

LabelSource = Callable[[Offer], Labels | None]


@dataclass(eq=False, kw_only=True)
class Participant(Signatory):
    """One client on her own machine, with pictures and one of our models.

    images     her pictures
    labels     asked for the labels of an offer, one per picture; None until all are there
    behaviour  what she really does, for simulations: a name or a `Behaviour`
    """

    images: Images
    labels: LabelSource
    behaviour: str | Behaviour = "truthful"
    accepted: dict[str, tuple[Offer, Model]] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"image_shape": list(self.images.shape[1:])}

    def consider(self, document: dict[str, Any]) -> dict[str, Any] | None:
        offer = offer_from(document)
        if offer.job.image_shape != self.images.shape[1:]:
            raise InputError(f"the offer asks for pictures of shape {offer.job.image_shape}.")
        return super().consider(document)

    def labeled(self, offer_hash: str) -> bool:
        """Whether all labels are there that the offer asks for."""
        offer, _ = self._accepted(offer_hash)
        labels = self.labels(offer)
        return labels is not None and len(labels) >= offer.client.samples

    def report(self, offer_hash: str, common: Params, round_: int) -> Params:
        """Her report of one round, honest if she is."""
        offer, model = self._accepted(offer_hash)
        labels = self.labels(offer)
        if labels is None or len(labels) < offer.client.samples:
            raise InputError("not all samples are labeled yet.")
        if labels.max(initial=0) >= len(offer.job.classes):
            raise InputError(f"a label is {labels.max()}; the job has {len(offer.job.classes)} classes.")
        manner = behaviour(self.behaviour)
        received = received_models(self.folder / RECEIVED / offer_hash, manner, common, round_)
        with _libraries().limit(limits=1, user_api="blas"):  # the same sums, whatever machine has how many cores
            return report_of_round(
                manner,
                model,
                received,
                self.images[: offer.client.samples],
                labels[: offer.client.samples],
                client=offer.client.index,
                round_=round_,
                assigned_batch_size=offer.client.batch_size,
                local_steps=offer.job.local_steps,
                step_size=offer.job.step_size,
                seed=offer.job.seed,
            )

    def _accepted(self, offer_hash: str) -> tuple[Offer, Model]:
        """The offer, which she must have accepted, and its model."""
        if offer_hash not in self.accepted:
            offer = self.accepted_offer(offer_hash)
            self.accepted[offer_hash] = (offer, model_of(offer.job))
        return self.accepted[offer_hash]


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    """Looked for once: it takes longer than a small round."""
    return ThreadpoolController()
