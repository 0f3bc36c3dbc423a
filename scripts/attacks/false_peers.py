"""An operator against masks: peers whom she invented, and real ones who tell her their keys.

The victim's node is truthfl as it is; her papers are those of a finished job. Imports `finished_job`, `outcomes`,
`truthfl`'s masks and the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.finished_job import FinishedJob
from attacks.outcomes import Outcome, not_defended, outcome
from truthfl.federation.participant.masked_reports import MaskedRound, MaskingClient
from truthfl.federation.protocol.masking import from_fixed_point, mask_sum, pair_key, round_key
from truthfl.ledger import participant_folder
from truthfl.ledger.agreement_keys import AgreementKey, agreement_line, kept_agreement_key
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.signing import new_key, public_line, sign
from truthfl.ledger.terms import Offer

VICTIM, COLLUDING = "Ada", ("Ben", "Cleo")
SIZE, LONGEST_ERROR = 650, 1e-6


def invented_peers(job: FinishedJob, attack: str) -> Outcome:
    """All of her peers are keys that the operator made: each acceptance is well signed, by nobody who exists."""
    offers = _offers(job)
    folder = job.folder.with_name(attack)
    keys = {offer.client.index: kept_agreement_key(folder / name) for name, offer in offers.items() if name != VICTIM}
    papers = {str(index): _acceptance(offers[VICTIM], key) for index, key in keys.items()}
    error = _error_of_recovered(job, folder, papers, keys)
    if error > LONGEST_ERROR:
        return outcome(attack, True, f"what she recovers differs by {error:.2g}")
    return not_defended(attack, f"the node cannot tell; her report is seen to {error:.1g}; she can compare peers' keys")


def colluding_peers(job: FinishedJob, attack: str) -> Outcome:
    """Two of three peers tell their keys; the operator asks for a report that is masked with these two alone."""
    view, offers = _view(job), _offers(job)
    papers = {
        str(offer.client.index): view.answer_to(offer).document for name, offer in offers.items() if name != VICTIM
    }
    homes = job.folder / "participants"
    keys = {
        offers[name].client.index: participant_folder.agreement_key(homes / name, offers[name]) for name in COLLUDING
    }
    error = _error_of_recovered(job, job.folder.with_name(attack), papers, keys)
    third = next(offer.client.index for name, offer in offers.items() if name not in (VICTIM, *COLLUDING))
    with_third = _error_of_recovered(job, job.folder.with_name(f"{attack}-3"), papers, keys, (*keys, third))
    hidden = with_third > LONGEST_ERROR
    if error > LONGEST_ERROR or not hidden:
        return outcome(attack, hidden, f"differs by {error:.2g}; with an honest peer by {with_third:.2g}")
    return not_defended(attack, f"masked with these two, her report is seen to {error:.1g}; with a third, it is not")


def _error_of_recovered(
    job: FinishedJob,
    home: Path,
    papers: Mapping[str, Any],
    keys: Mapping[int, AgreementKey],
    peers: tuple[int, ...] = (),
) -> float:
    """How far what the operator recovers of her report, by these peers' keys, is from it; relative to its length.

    papers  the acceptances that the victim is shown, by index
    keys    the peers' agreement keys that the operator has
    peers   with whom the report is masked; by default those whose keys the operator has
    """
    offer = _offers(job)[VICTIM]
    own = _own_key(job, VICTIM)
    asked = MaskedRound(0, 0, "ab" * 32, tuple(sorted(peers or keys)))
    change = np.random.default_rng(0).normal(size=SIZE).astype(np.float32)
    change *= np.float32(0.5 * offer.job.bound_of_round(0) / np.linalg.norm(change))
    node = MaskingClient(offer, own, home)
    node.keep_peers(papers)
    seen: NDArray[np.uint32] = node.masked(change, offer.client.weight, asked)
    line = agreement_line(own)
    for key in keys.values():
        shared = round_key(pair_key(key, line, offer.job.name), asked.round, asked.attempt, asked.model)
        seen = seen + mask_sum({line: shared}, agreement_line(key), SIZE)
    recovered = from_fixed_point(seen, offer.job.bound_of_round(0)) / offer.client.weight
    return float(np.abs(recovered - change).max() / np.linalg.norm(change))


def _own_key(job: FinishedJob, name: str) -> AgreementKey:
    """The agreement key that is in a participant's folder."""
    return participant_folder.agreement_key(job.folder / "participants" / name, _offers(job)[name])


def _acceptance(offer: Offer, key: AgreementKey) -> dict[str, Any]:
    """An acceptance of an offer of this job by somebody who does not exist."""
    identity = new_key()
    document = {
        "kind": "acceptance",
        "job": offer.job.name,
        "public_key": public_line(identity),
        "agreement_key": agreement_line(key),
    }
    return {"document": document, "signature": sign(identity, document)}


def _view(job: FinishedJob) -> JobView:
    return job_view(job.entries[0].job, job.entries)


def _offers(job: FinishedJob) -> dict[str, Offer]:
    agreement = _view(job).agreement
    return {offer.client.name: offer for offer in agreement.offers} if agreement else {}


JUDGES: dict[str, tuple[str, Callable[[FinishedJob, str], Outcome]]] = {
    "masks-invented-peers": ("the operator names peers whom she invented", invented_peers),
    "masks-colluding-peers": ("two of Ada's peers tell the operator their keys", colluding_peers),
}
