"""The opinion of the model that a participant trained alone, once there is one, on her own labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from truthfl.federation.participant.kept_audition import read_audition
from truthfl.federation.participant.node_settings import Settings, participant_of, samples_to_show
from truthfl.federation.protocol.job_task import model_of
from truthfl.learning.second_opinion import Opinion, OpinionSource, class_probabilities
from truthfl.ledger import participant_folder
from truthfl.samples.quick_opinion import quick_opinion


def solo_opinion(settings: Settings) -> OpinionSource:
    """Asks her solo model of the newest job that has one; before that, a quick model."""
    quick = quick_opinion(samples_to_show(settings)[0])

    def opinion(labels: Sequence[int], classes: Sequence[str]) -> Opinion | None:
        home = Path(settings.home)
        for offer in reversed(participant_folder.offers(home)):
            kept = read_audition(home, offer.hash) if tuple(offer.job.classes) == tuple(classes) else None
            if kept is None:
                continue
            participant = participant_of(settings)
            features = participant.samples_for(offer)[: offer.client.samples]
            model = model_of(offer.job, participant.task)
            return Opinion(range(len(features)), class_probabilities(model, kept.model, features), handed_in=True)
        return quick(labels, classes)

    return opinion
