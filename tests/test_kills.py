"""A handful of the kills that scripts/kill_and_resume.py makes by the dozen."""

import random

from scripts_of_tests import kill_and_resume as script


def test_a_job_killed_without_warning_goes_on_and_pays_the_same(tmp_path):
    job = tmp_path / "job.toml"
    job.write_text(script.AUDITION_JOB, encoding="utf-8")
    expected, seconds = script.undisturbed(job, tmp_path / "calm")
    assert {name for name in expected if "/" not in name} == {"Ada", "Ben", "Cleo", "Dora"}
    fell = script.killed_until_done(job, tmp_path / "wild", 3, 0.8 * seconds, random.Random(7))
    assert script.settled(tmp_path / "wild") == expected, f"after kills at {fell}"
