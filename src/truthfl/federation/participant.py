"""What one participant's node does when it is asked: describe itself, pass an offer on, say how far labeling is, train.

Looks at `learning` and at the ledger (`desk`, papers). It knows no Flower; `client` puts it on the network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from truthfl.errors import InputError
from truthfl.learning.behaviours import behaviour, play
from truthfl.learning.images import LabeledImages
from truthfl.learning.local import local_model
from truthfl.learning.model import Images, Labels, Model, Params
from truthfl.learning.scene import ModelChoice
from truthfl.ledger import desk
from truthfl.ledger.documents import Offer, offer_from
from truthfl.ledger.signing import PrivateKey, public_line

LabelSource = Callable[[], Labels | None]
Decision = Callable[[Offer], bool | None]


@dataclass(eq=False)
class Participant:
    """One client on her own machine.

    images     her pictures
    labels     asked for her labels, one per picture; None until all are there
    key        signs her answers
    folder     her desk: offers, answers, receipts
    decide     says yes or no to an offer; None leaves it to whoever else puts an answer on her desk
    behaviour  what she really does, for simulations
    """

    name: str
    images: Images
    labels: LabelSource
    key: PrivateKey
    folder: Path
    decide: Decision
    labeling_cost: float | None = None
    sample_cost: float | None = None
    behaviour: str = "truthful"
    accepted: dict[str, tuple[Offer, Model]] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """What she tells the server when she enrols."""
        told: dict[str, Any] = {
            "name": self.name,
            "samples": len(self.images),
            "image_shape": list(self.images.shape[1:]),
            "public_key": public_line(self.key),
        }
        costs = {"labeling_cost": self.labeling_cost, "sample_cost": self.sample_cost}
        return told | {name: cost for name, cost in costs.items() if cost is not None}

    def consider(self, document: dict[str, Any]) -> dict[str, Any] | None:
        """Her signed answer to an offer; None while she has not made up her mind."""
        offer = offer_from(document)
        if offer.public_key != public_line(self.key) or offer.client != self.name:
            raise InputError(f"the offer is to {offer.client}, with another key than {self.name}'s.")
        if offer.samples > len(self.images) or tuple(offer.image_shape) != self.images.shape[1:]:
            raise InputError(f"the offer asks for {offer.samples} pictures of shape {offer.image_shape}.")
        desk.put_offer(self.folder, offer)
        given = desk.read_answer(self.folder, offer)
        if given is None:
            decided = self.decide(offer)
            given = None if decided is None else desk.give_answer(self.folder, offer, self.key, accepted=decided)
        return given

    def labeled(self, offer_hash: str) -> bool:
        """Whether all labels are there that the offer asks for."""
        offer, _ = self._accepted(offer_hash)
        labels = self.labels()
        return labels is not None and len(labels) >= offer.samples

    def report(self, offer_hash: str, common: Params, round_: int) -> Params:
        """Her report of one round, honest if she is."""
        offer, model = self._accepted(offer_hash)
        labels = self.labels()
        if labels is None or len(labels) < offer.samples:
            raise InputError("not all samples are labeled yet.")
        if labels.max(initial=0) >= len(offer.classes):
            raise InputError(f"a label is {labels.max()}; the job has {len(offer.classes)} classes.")
        played, manner = play([self.behaviour], [offer.batch_size]), behaviour(self.behaviour)
        if manner.report_scale == 0:
            return common
        with threadpool_limits(limits=1, user_api="blas"):
            local = local_model(
                model,
                common,
                self.images[: offer.samples],
                labels[: offer.samples],
                client=offer.index,
                round_=round_,
                batch_size=int(played.batch_size[0]),
                local_steps=offer.local_steps,
                step_size=offer.step_size,
                seed=offer.seed,
            )
        return local if manner.report_scale == 1 else common + np.float32(manner.report_scale) * (local - common)

    def keep_receipt(self, paper: dict[str, Any]) -> None:
        document = paper.get("document")
        if not isinstance(document, dict):
            raise InputError("the receipt is no signed paper.")
        desk.put_receipt(self.folder, paper, str(document.get("job")))

    def _accepted(self, offer_hash: str) -> tuple[Offer, Model]:
        """The offer, which she must have accepted, and its model."""
        if offer_hash not in self.accepted:
            offer = desk.read_offer(self.folder, offer_hash)
            if offer is None or not desk.has_accepted(self.folder, offer):
                raise InputError("this offer was not accepted here.")
            self.accepted[offer_hash] = (offer, model_of(offer))
        return self.accepted[offer_hash]


def model_of(offer: Offer) -> Model:
    """The model that the offer speaks of."""
    shape = (1, *offer.image_shape)
    return ModelChoice(**offer.model).for_images(LabeledImages(np.zeros(shape, np.uint8), [0], offer.classes))
