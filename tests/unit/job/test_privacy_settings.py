"""Section [privacy] of a job file, and the way reports are combined."""

import pytest

from helpers.commands import told
from helpers.small_jobs import SMALL_JOB
from truthfl.job import read_job


def job(folder, text):
    path = folder / "job.toml"
    path.write_text(text)
    return read_job(path)


def test_default_settings_leave_the_job_as_it_was(tmp_path):
    plain = job(tmp_path, SMALL_JOB)
    assert plain.privacy.secure_aggregation is None
    assert plain.server.aggregation == "mean"
    document = plain.document()
    assert "privacy" not in document


def test_settings_are_read_and_told(tmp_path):
    text = SMALL_JOB.replace("[server]", '[server]\naggregation = "median"') + "[privacy]\nsecure_aggregation = false\n"
    told_job = job(tmp_path, text).document()
    assert told_job["privacy"] == {"secure_aggregation": False}
    assert told_job["server"]["aggregation"] == "median"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SMALL_JOB + '[privacy]\nsecure_aggregation = "yes"\n', "must be true or false"),
        (SMALL_JOB + "[privacy]\nnoise = 0.7\n", "[privacy] noise is 0.7, and clip is not given"),
        (SMALL_JOB + "[privacy]\nclip = -1\n", "[privacy] clip is -1"),
        (SMALL_JOB + "[privacy]\nclip = 1\nnoise = 'x'\n", "[privacy] noise is 'x'"),
        (SMALL_JOB.replace("[model]", "[model]\nclip = 1.0"), "no field 'clip'"),
        (SMALL_JOB + "[privacy]\nmasks = true\n", "no field 'masks'"),
        (SMALL_JOB.replace("[server]", '[server]\naggregation = "best"'), "'mean', 'trimmed', 'median'"),
    ],
)
def test_wrong_settings_are_told_in_a_sentence(tmp_path, text, words):
    assert words in told(job, tmp_path, text)


def test_clip_and_noise_reach_the_model(tmp_path):
    private = job(tmp_path, SMALL_JOB + "[privacy]\nclip = 1.5\nnoise = 0.7\n")
    assert private.trained_model.document() == {"clip": 1.5, "noise": 0.7} | private.model.document()
    assert private.server_side().pilot.model.noise == 0.7
    assert private.document()["privacy"] == {"clip": 1.5, "noise": 0.7}
    assert private.document()["model"] == job(tmp_path, SMALL_JOB).document()["model"]
