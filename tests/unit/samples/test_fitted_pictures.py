"""A participant's pictures of mixed sizes, fitted to what the offer asks for, as the offer says."""

from hashlib import sha256

import numpy as np
import pytest
from PIL import Image

from helpers.commands import told
from helpers.participants import an_offer, draw_pictures
from truthfl.errors import InputError
from truthfl.federation.participant.node_settings import Settings, participant_of
from truthfl.federation.protocol.enrolment import checked_description
from truthfl.ledger.signing import new_key, write_key
from truthfl.ledger.terms import PADDED, job_terms_from
from truthfl.samples import pixels as decoded_pictures
from truthfl.samples.pixels import FITTED_CACHE, load_cached, load_pictures
from truthfl.samples.sources import open_samples

# made once with Pillow 13 on x86-64; the same on every machine
EXPECTED = "46b69a28655a7c8d"


@pytest.fixture
def mixed(tmp_path):
    """Pictures of other sizes and formats, one of the asked size, and one that cannot be read."""
    data = draw_pictures(tmp_path / "data", 1)
    pixels = np.arange(90 * 60, dtype=np.uint32).reshape(60, 90) * 7919 % 251
    wide = Image.fromarray(pixels.astype(np.uint8))
    wide.save(data / "wide.bmp")
    wide.transpose(Image.Transpose.ROTATE_90).convert("RGB").save(data / "tall.tiff")
    Image.new("L", (7, 7), 200).save(data / "small.gif")
    (data / "broken.png").write_bytes((data / "00000.png").read_bytes()[:60])
    return data


@pytest.fixture
def ada(tmp_path, mixed):
    write_key(new_key(), tmp_path / "key")
    participant_of.cache_clear()
    return participant_of(Settings("Ada", str(mixed), str(tmp_path / "home"), str(tmp_path / "key")))


def offer(**changes):
    return an_offer(new_key(), new_key(), samples=4, **({"picture_fit": PADDED} | changes))


def test_pictures_are_scaled_with_their_proportions_in_the_middle_of_black(mixed):
    source, images = load_pictures(open_samples(mixed), (28, 28, 1))
    assert [sample.name for sample in source.samples] == ["00000.png", "small.gif", "tall.tiff", "wide.bmp"]
    assert [problem.name for problem in source.problems] == ["broken.png"]
    exact, small, tall, wide = images[..., 0]
    assert (exact == np.asarray(Image.open(mixed / "00000.png"))).all()
    assert (small == 200).all()  # enlarged
    assert (wide[:4].max(), wide[24:].max(), tall[:, :4].max(), tall[:, 24:].max()) == (0, 0, 0, 0)
    assert wide[5:23].min() > 0 < tall[:, 5:23].min()
    assert sha256(images.tobytes()).hexdigest()[:16] == EXPECTED


def test_colours_and_grays_as_asked(mixed):
    for shape in ((28, 28, 3), (20, 40, 1), (1, 1, 3)):
        assert load_pictures(open_samples(mixed), shape)[1].shape == (4, *shape)


def test_without_a_shape_they_must_be_of_one_size(mixed):
    assert "without a shape that they are fitted to, all pictures must be of one size" in told(
        load_pictures, open_samples(mixed)
    )


def test_a_participant_with_mixed_pictures_takes_part(ada, tmp_path):
    sent = ada.describe()
    assert (sent["image_shape"], sent["samples"]) == (None, 4)
    assert checked_description(sent, (28, 28, 1))["samples"] == 4
    with pytest.raises(InputError, match=r"pictures are \[30, 30, 1\]"):
        checked_description(sent | {"image_shape": [30, 30, 1]}, (28, 28, 1))
    for shape in ((28, 28, 1), (16, 12, 3)):
        assert ada.samples_for(offer(image_shape=shape)).shape == (4, *shape)
    assert (tmp_path / "home" / FITTED_CACHE).exists()


def test_an_offer_that_fits_nothing_is_not_answered(ada):
    bare = offer(picture_fit="")
    assert job_terms_from(bare.job.document()) == bare.job
    assert "does not fit others" in ada._sample_fault(bare)
    assert ada._sample_fault(offer()) is None
    document = offer().job.document()
    assert job_terms_from(document).picture_fit == PADDED
    assert "update truthfl" in told(job_terms_from, document | {"picture_fit": "cut"})


def test_fitted_pictures_are_made_once(mixed, tmp_path, monkeypatch):
    decoded = load_cached(open_samples(mixed), tmp_path / "home")
    assert decoded.as_they_are is None
    images = decoded.of_shape((28, 28, 1), fit=True)
    monkeypatch.setattr(decoded_pictures, "load_pictures", lambda *_: pytest.fail("decoded again"))
    again = load_cached(open_samples(mixed), tmp_path / "home")
    assert (again.of_shape((28, 28, 1), fit=True) == images).all()
    assert again.why_not == decoded.why_not


def test_large_pictures_are_not_kept_as_they_are(tmp_path, monkeypatch):
    data = draw_pictures(tmp_path / "data", 3)
    monkeypatch.setattr(decoded_pictures, "KEPT_BYTES", 2 * 3 * 28 * 28)
    decoded = load_cached(open_samples(data), tmp_path / "home")
    assert (decoded.as_they_are, decoded.why_not) == (None, "00002.png has 28×28 pixels.")
    assert decoded.of_shape((28, 28, 1), fit=True).shape == (3, 28, 28, 1)
