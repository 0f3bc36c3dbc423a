"""The results of a simulated job with an audition, in sentences."""

from __future__ import annotations

import math

import numpy as np

from truthfl.federation.protocol.offers import left_out_of
from truthfl.federation.simulated.run_outcome import RunOutcome
from truthfl.ledger.settlement import Settled, read_settlement
from truthfl.ledger.solo_evidence import audition_of, expected_solo_loss
from truthfl.ledger.terms import Offer
from truthfl.mechanism.observation import Observation

MOST_LIARS = 20  # dishonest clients of whom there is a sentence
MOST_NAMED = 20  # clients in a sentence


def other_liars(outcome: RunOutcome) -> list[str]:
    """A sentence on the dishonest clients of whom there is none of their own, if there are any."""
    gained = (outcome.payoff - outcome.payoff_if_honest)[~np.isnan(outcome.payoff_if_honest)][MOST_LIARS:]
    if not len(gained):
        return []
    return [
        f"{len(gained):,} more were dishonest, and {int((gained > 0).sum()):,} of these are left with more than if she "
        "alone had been honest; results.json has them all."
    ]


def audition_sentences(outcome: RunOutcome) -> list[str]:
    """What became of each liar and why, who was not asked, and how the expected loss followed those who took part."""
    liars = np.flatnonzero(~np.isnan(outcome.payoff_if_honest)).tolist()
    sentences = []
    for i in liars[:MOST_LIARS]:
        offer = outcome.offers[i]
        if offer is not None:
            settled = read_settlement(outcome.view.settlements[offer.client.name])
            sentences.append(_liar_sentence(outcome, i, offer, settled))
    sentences += other_liars(outcome)
    left_out = left_out_of(outcome.view.plans[-1].document)
    for reason in dict.fromkeys(left_out.values()):
        names = [name for name, own in left_out.items() if own == reason]
        others = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
        sentences.append(f"Not asked, for {reason}: {', '.join(names[:MOST_NAMED])}{others}.")
    return [*sentences, _expected_loss_sentence(outcome)]


def _liar_sentence(outcome: RunOutcome, client: int, offer: Offer, settled: Settled) -> str:
    who = f"{offer.client.name} ({outcome.behaviour[client]})"
    lost = outcome.payoff_if_honest[client] - outcome.payoff[client]
    left = f"is left with {abs(lost):,.2f} {'less' if lost > 0 else 'more'} than if she had been honest"
    if settled.solo_loss is None or settled.level_shift is None:
        return f"{who} sent no model to the audition; she is paid {outcome.pay[client]:,.2f} and {left}."
    expected = expected_solo_loss(offer, settled.level_shift)
    if not settled.passed:
        limit = expected + float(audition_of(offer).gate[0])
        return (
            f"{who} was stopped at the audition: her model's loss is {settled.solo_loss:.2f}, honest ones are above "
            f"{limit:.2f} once in 10,000 times; she is paid {outcome.pay[client]:,.2f} and {left}."
        )
    missing = settled.asked - settled.delivered
    reports = f", and {missing} of her {settled.asked} reports were refused" if missing else ""
    return (
        f"{who} passed the audition: her model's loss is {settled.solo_loss:.2f}, {expected:.2f} was expected"
        f"{reports}; she is paid {outcome.label_pay[client]:,.2f} for labels and "
        f"{outcome.computing_pay[client]:,.2f} for computing, and {left}."
    )


def _expected_loss_sentence(outcome: RunOutcome) -> str:
    """How many of the labels took part, and the joint loss that is expected with these."""
    offers = outcome.agreement.offers
    all_labels = sum(offer.client.samples for offer in offers)
    present = math.fsum(outcome.view.delivered_labels.values())
    if present == 0:
        return "No report of anybody was taken: the model that was tested is the one from which training starts."
    observed = Observation(0.0, present_labels=present, loss_rise=outcome.view.loss_rise)
    expected = audition_of(offers[0]).expected_joint_loss(observed)
    return (
        f"{present:,.0f} of {all_labels:,} labels took part in the joint training; computing is paid by the loss that "
        f"is expected of these, {float(expected[0]):.4f}."
    )
