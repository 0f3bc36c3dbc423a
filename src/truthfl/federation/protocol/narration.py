"""What happens in a job, row by row of its book, in words for whoever watches. Looks at the ledger's entries."""

from __future__ import annotations

from truthfl.ledger.entry import Entry
from truthfl.ledger.terms import offer_from


def in_words(entry: Entry) -> str | None:
    """One line about this row; None where it needs none."""
    said = entry.document
    if entry.kind == "enrolment":
        return f"{said['name']} is there with {said['samples']} samples"
    if entry.kind == "plan":
        return f"planned: step size {said['step_size']:.3g}, expected loss {said['expected_loss']:.4f}"
    if entry.kind == "offer":
        offer = offer_from(said)
        return (
            f"offer to {offer.client.name}: {offer.client.samples} labels, batches of {offer.client.batch_size}, "
            f"expected pay {offer.expected_pay:,.2f} {offer.job.currency}"
        )
    if entry.kind == "answer":
        paper = said["document"]
        return f"{paper['client']} {'accepts' if paper['kind'] == 'acceptance' else 'declines'}"
    if entry.kind == "round":
        loss = f", loss {said['loss']:.4f}, accuracy {said['accuracy']:.1%}" if "loss" in said else ""
        return f"round {said['round']}: {len(said['taken'])} reports{loss}"
    if entry.kind == "rejection":
        where = f"round {said['round']}" if said["round"] is not None else said["stage"]
        return f"{where}: {said['client'] or said['node']} refused: {said['reason']}"
    if entry.kind == "test":
        accuracy = "" if said["accuracy"] is None else f", accuracy {said['accuracy']:.1%}"
        return f"test loss {said['loss']:.4f}{accuracy}"
    if entry.kind == "settlement":
        return f"{said['client']} is paid {said['pay']:,} for {said['delivered']} of {said['asked']} rounds"
    return None
