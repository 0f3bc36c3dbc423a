"""A handful of the kills that scripts/kill_and_resume.py makes by the dozen."""

import random
import signal
import time

from helpers.commands import kill_and_resume as script
from helpers.small_jobs import known_plans, plans_made_anew  # noqa: F401


def test_a_job_killed_without_warning_goes_on_and_pays_the_same(tmp_path):
    job = tmp_path / "job.toml"
    job.write_text(script.AUDITION_JOB, encoding="utf-8")
    with plans_made_anew():
        expected, seconds = script.undisturbed(job, tmp_path / "calm")
        assert {name for name in expected if "/" not in name} == {"Ada", "Ben", "Cleo", "Dora"}
        fell = script.killed_until_done(job, tmp_path / "wild", 3, 0.8 * seconds, random.Random(7))
    assert script.settled(tmp_path / "wild") == expected, f"after kills at {fell}"


def test_a_killed_job_whose_checkpoint_is_lost_is_trained_from_the_start_and_pays_the_same(tmp_path):
    job, wild = tmp_path / "job.toml", tmp_path / "wild"
    job.write_text(script.AUDITION_JOB, encoding="utf-8")
    expected, _ = script.undisturbed(job, tmp_path / "calm")
    run = script.start(job, wild)
    try:
        while not trained(wild):
            assert run.poll() is None, "it ended before it was killed"
            time.sleep(0.02)
    finally:
        run.send_signal(signal.SIGKILL)
        run.communicate()
    before = trained(wild)
    (checkpoint,) = (path for path in (wild / "checkpoints").iterdir() if path.suffix not in (".limits", ".draft"))
    checkpoint.unlink()
    again = script.start(job, wild)
    _, error = again.communicate()
    assert again.returncode == 0, error
    assert script.settled(wild) == expected
    rows = script.entries(wild)
    assert [row.document["round"] for row in rows if row.kind == "start"] == [1, 1]
    assert trained(wild)[: len(before)] == before


def trained(folder):
    """The hashes of the rows of rounds."""
    if not (folder / "ledger.db").exists():
        return []
    return [row.hash for row in script.entries(folder) if row.kind == "round"]
