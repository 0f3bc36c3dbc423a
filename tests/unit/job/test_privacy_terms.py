"""What an offer means for privacy: the words, the promise, and the secret that the noise comes from."""

import math
from dataclasses import replace

import numpy as np
import pytest

from helpers.commands import told
from helpers.participants import an_offer
from truthfl.errors import InputError
from truthfl.federation.participant.participant import Participant
from truthfl.federation.participant.round_guard import AskedRound, kept_secret, key_of_audition, key_of_round
from truthfl.federation.protocol.messages import model_digest
from truthfl.home import participant_folder
from truthfl.learning.privacy_promise import NoisySteps, epsilon
from truthfl.ledger.signing import new_key
from truthfl.page.catalogue import in_english
from truthfl.page.offer import noise_words, privacy_view, promised_to, what_leaves

PLAIN = {"kind": "softmax", "penalty": 0.001, "filters": 8}
NOISY = PLAIN | {"clip": 1.0, "noise": 2.0}


def _offer(**changes):
    return an_offer(new_key(), new_key(), **changes)


def test_an_offer_without_noise_promises_nothing():
    offer = _offer(model=PLAIN)
    view = privacy_view(offer)
    assert view["noise"] is None
    assert view["noise_words"]["key"] == "privacy.no_noise"
    assert "nothing is promised" in in_english(noise_words(offer, None))
    assert "The operator sees each by itself" in in_english(what_leaves(offer)[-1])
    clipped = _offer(model=PLAIN | {"clip": 1.0})
    assert privacy_view(clipped)["noise"]["epsilon"] is None
    assert "No noise is added" in in_english(noise_words(clipped, promised_to(clipped)))


def test_an_offer_with_noise_tells_its_epsilon():
    offer = _offer(model=NOISY)
    promised = promised_to(offer)
    steps = NoisySteps(offer.job.rounds, offer.client.batch_size / offer.client.samples, 2.0)
    assert promised.epsilon == epsilon([steps])
    assert f"e^{promised.epsilon:.1f}" in in_english(noise_words(offer, promised))
    weak = replace(promised, epsilon=30.0)
    assert "weak promise" in in_english(noise_words(offer, weak))
    assert "nothing is promised" in in_english(noise_words(offer, replace(promised, epsilon=math.inf)))


def test_an_audition_counts_and_is_told():
    recipe = {"steps": 60, "batch_size": 16, "step_size": 0.5, "penalty": 0.001, "shifts": 0}
    offer = _offer(model=NOISY)
    auditioned = replace(offer, job=replace(offer.job, recipe=recipe))
    assert promised_to(auditioned).epsilon > promised_to(offer).epsilon
    assert any("trains alone" in sentence for sentence in map(in_english, what_leaves(auditioned)))
    assert not any("trains alone" in sentence for sentence in map(in_english, what_leaves(offer)))


@pytest.mark.parametrize(("name", "noun"), [("tables", "rows"), ("texts", "texts"), ("Mine", "rows")])
def test_samples_are_called_what_they_are(name, noun):
    recipe = {"steps": 60, "batch_size": 16, "step_size": 0.5, "penalty": 0.001, "shifts": 0}
    task = {"name": name, "document": {}, "digest": "", "revision": 1}
    for model in (PLAIN, NOISY, PLAIN | {"clip": 1.0}):
        offer = _offer(model=model, task=task, image_shape=(3,))
        offer = replace(offer, job=replace(offer.job, recipe=recipe))
        words = " ".join(map(in_english, [*what_leaves(offer), noise_words(offer, promised_to(offer))]))
        assert f"how many {noun} you have, and" in words
        assert "picture" not in words


def test_masked_reports_are_told_as_such():
    offer = _offer(model=PLAIN)
    masked = replace(offer, job=replace(offer.job, masked=True))
    assert "It is masked" in in_english(what_leaves(masked)[-1])
    assert "if half of the others, and at least two, helped it" in in_english(what_leaves(masked)[-1])


def test_the_secret_is_kept_and_the_participants_alone(tmp_path):
    secret = kept_secret(tmp_path)
    assert secret == kept_secret(tmp_path)
    assert len(secret) == 32
    assert (tmp_path / "noise.secret").stat().st_mode & 0o777 == 0o600
    (tmp_path / "noise.secret").write_bytes(b"short")
    assert "damaged" in told(kept_secret, tmp_path)


def test_a_round_is_answered_for_one_model(tmp_path):
    """The same question gets the same noise; another model in the same round would show through two noises."""
    secret, model, other = b"s" * 32, np.zeros(3, np.float32), np.ones(3, np.float32)
    first = key_of_round(secret, tmp_path, "ab", 4, model)
    assert first == key_of_round(secret, tmp_path, "ab", 4, model)
    assert "round 5 was answered for another model" in told(key_of_round, secret, tmp_path, "ab", 4, other)
    keys = {first, key_of_round(secret, tmp_path, "ab", 5, model), key_of_round(secret, tmp_path, "cd", 4, model)}
    assert len(keys | {key_of_audition(secret, "ab"), key_of_audition(b"t" * 32, "ab")}) == 5


def _participant(folder, offer, key, secret):
    images = np.random.default_rng(0).integers(0, 256, (offer.client.samples, 28, 28, 1)).astype(np.uint8)
    labels = np.arange(len(images)) % 10
    participant = Participant(
        name="Ada", samples=len(images), samples_for=lambda _: images, image_shape=images.shape[1:],
        labels=lambda _: labels, key=key, folder=folder,
        own_secret=secret, decide=lambda _: True,
    )  # fmt: skip
    participant_folder.put_offer(folder, offer)
    participant_folder.put_answer(folder, offer, key, accepted=True)
    return participant


def test_a_report_depends_on_the_participants_secret_and_not_on_the_jobs_seed_alone(tmp_path):
    key = new_key()
    offer = an_offer(key, new_key(), model=NOISY)
    common = np.zeros(7850, np.float32)
    secrets = {"a": b"a" * 32, "b": b"b" * 32, "none": None}
    reports = {
        name: _participant(tmp_path / name, offer, key, secret).report(offer.hash, common, 0)
        for name, secret in secrets.items()
    }
    again = _participant(tmp_path / "a", offer, key, b"a" * 32)
    np.testing.assert_array_equal(again.report(offer.hash, common, 0), reports["a"])
    assert len({report.tobytes() for report in reports.values()}) == 3
    with pytest.raises(InputError, match="answered for another model"):
        again.report(offer.hash, common + 1, 0)


def test_of_one_job_there_are_noisy_rounds_under_one_offer_and_one_model_trained_alone(tmp_path):
    """Each offer has noise of its own, so that the mean over many would show what the promise hides."""
    key, operator = new_key(), new_key()
    terms = {
        "model": NOISY,
        "recipe": {"steps": 5, "batch_size": 8, "step_size": 0.5, "penalty": 0.001, "shifts": 0},
        "rounds": 3,
    }
    offers = {version: an_offer(key, operator, version=version, **terms) for version in (1, 2, 3)}
    offers["new job"] = an_offer(key, operator, client="Ada", job="digits-2", **terms)
    start, commitments = np.zeros(7850, np.float32), {}

    def answered(name):
        participant = _participant(tmp_path, offers[name], key, b"s" * 32)
        with participant.answering(offers[name].hash, AskedRound(0, 0, 0, model_digest(start)), start) as answer:
            answer.sent("ab" * 32)

    def committed(name):
        commitments[name] = _participant(tmp_path, offers[name], key, b"s" * 32).commit_audition(offers[name].hash)

    committed(2)  # the first offer was declined by others
    assert "a second model that is trained on your labels alone" in told(committed, 1)
    assert "under another offer of job digits-1" in participant_folder.last_news(tmp_path).sentence
    assert "each job gets one" in told(committed, 3)
    first = commitments[2]
    committed(2)
    assert commitments[2] == first
    answered(2)
    answered(2)
    assert "rounds of job digits-1 were answered under another offer" in told(answered, 1)
    assert "rounds of job digits-1 were answered under another offer" in told(answered, 3)
    committed("new job")
    answered("new job")
