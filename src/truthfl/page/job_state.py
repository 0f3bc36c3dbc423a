"""The state of the participant's job, for all pages: stage, time left, rounds, news, connection.

The node writes all of it to the participant's folder.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truthfl.home.node_state import read_connection, read_stage

if TYPE_CHECKING:
    from truthfl.home.participant_folder import News
    from truthfl.ledger.terms import Offer

RESUMED_SECONDS, EXTENDED_SECONDS, OVER_SECONDS = 600.0, 3600.0, 86_400.0  # how long such news matters
FOR_LABELS = ("accepted", "labeling", "labeled")  # stages in which the server waits for labels, or will
SOON_SHARE, SOON_SECONDS = 0.1, 3600.0


def connection_view(home: Path) -> dict[str, Any] | None:
    """Whether the node in this folder reaches the server, and since when; None if no node runs here."""
    state, now = read_connection(home), time.time()
    return None if state is None else {"state": state.in_words(now), "since": state.since}


def job_view(home: Path, offer: Offer) -> dict[str, Any]:
    """The stage of the job whose offer the participant accepted.

    stage    "accepted": others have not answered yet; "labeling"; "labeled"; "alone": the computer trains alone;
             "tested_alone": that model is sent; "rounds"; "final": the final model is tested; "stopped": the job needs
             nothing more from the participant; "paid": there is a receipt; "over": the server said that there will be
             none
    left     seconds until the server stops waiting; None if unknown, or if the server waits for nothing
    total    seconds that the offer gives for it
    soon     whether at most a tenth of that is left, or at most an hour if there was more
    round    the last round that the participant reported, from 1 on
    """
    from truthfl.home.record import last_round, rounds_file

    known, report = read_stage(home, offer.hash), last_round(home, offer.hash)
    stage = _stage(home, offer, None if known is None else known.stage, has_rounds=report is not None)
    paused = known is not None and known.paused_at is not None
    if known and paused and report is not None:  # a later round shows that the job goes on
        paused = rounds_file(home, offer.hash).stat().st_mtime < float(known.paused_at or 0.0)
    total = {"alone": offer.job.audition_seconds}.get(stage, offer.job.label_seconds if stage in FOR_LABELS else None)
    waits = known is not None and known.stage in ("labeling", "labeled", "auditioning") and total is not None
    left = known.seconds_left(time.time()) if known is not None and waits else None
    return {
        "stage": stage,
        "left": left,
        "total": total,
        "soon": left is not None and total is not None and is_soon(left, total),
        "paused": paused,
        "round": None if report is None else report.round + 1,
        "rounds": offer.job.rounds,
        "audition": offer.job.has_solo_models,
    }


def is_soon(left: float, total: float) -> bool:
    """Whether to warn the participant: at most a tenth of the time is left, or at most an hour if there was more."""
    return left <= SOON_SHARE * total or (left <= SOON_SECONDS < total)


def _stage(home: Path, offer: Offer, told: str | None, *, has_rounds: bool) -> str:
    """The stage, from the files in the participant's folder and the server's last message."""
    from truthfl.home import participant_folder

    if participant_folder.receipt_files(home, offer.job.name):
        return "paid"
    news = participant_folder.last_news(home)
    if news is not None and news.over:
        return "over"
    if told == "stopped":
        return "stopped"
    if participant_folder.has_final(home, offer):
        return "final"
    if has_rounds:
        return "rounds"
    if (home / "auditions" / f"{offer.hash}.npz").exists():
        return "tested_alone"
    return {None: "accepted", "auditioning": "alone"}.get(told, str(told))


def news_in_force(home: Path, job: dict[str, Any] | None) -> News | None:
    """The server's last message if it still matters; None if there is none, or its subject is over.

    job   as `job_view` returns it; None if the participant is in no job
    """
    from truthfl.home import participant_folder

    news = participant_folder.last_news(home)
    if news is None:
        return None
    age, stage = time.time() - news.at, None if job is None else job["stage"]
    receipts = [path.stat().st_mtime for path in (home / "receipts").glob("*.json")]
    over = {
        "paused": job is not None and not job["paused"] and stage != "accepted",
        "resumed": age > RESUMED_SECONDS,
        "extended": age > EXTENDED_SECONDS or (job is not None and job["left"] is None and stage != "accepted"),
        "held": stage in ("rounds", "final"),
        "late labels": stage in ("rounds", "final"),
    }.get(news.about, news.over and news.at > 0 and age > OVER_SECONDS)
    return None if over or (news.at > 0 and max(receipts, default=0.0) > news.at) else news
