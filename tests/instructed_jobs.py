"""Examples of classes in a folder, jobs whose [classes] name them, and a participant who got such a job's offer."""

from io import BytesIO

import numpy as np
from PIL import Image

from participants import Ada, draw_pictures
from truthfl.federation.protocol.offers import kept_instructions
from truthfl.job import read_classes
from truthfl.samples.sources import open_samples

CLASSES = """
[classes]
examples = "examples"
instructions = "Label the digit.\\nIf there are two, the larger one."

[[classes.class]]
name = "7"
description = "With or without a bar. <b>Not</b> a one."
"""


def picture_bytes(width=20, height=20, kind="PNG", noise=False):
    """A picture file of this size: one colour, or noise, which compresses badly."""
    rng = np.random.default_rng(width)
    pixels = (
        rng.integers(0, 256, (height, width, 3), dtype=np.uint8) if noise else np.full((height, width, 3), 90, "uint8")
    )
    target = BytesIO()
    Image.fromarray(pixels).save(target, kind)
    return target.getvalue()


def example_folder(folder):
    """A folder of examples: two pictures of a 7, a large photo and a text of a 1."""
    seven, one = folder / "examples" / "7", folder / "examples" / "1"
    seven.mkdir(parents=True)
    one.mkdir()
    (seven / "a.png").write_bytes(picture_bytes())
    (seven / "b.png").write_bytes(picture_bytes(24, 30))
    (one / "photo.jpg").write_bytes(picture_bytes(1200, 800, "JPEG", noise=True))
    (one / "words.txt").write_bytes(b"A stroke.\r\n\tOr <i>two</i>.\n")
    return folder / "examples"


def instructed_ada(folder, samples):
    """Ada with an offer for so many pictures whose classes are described, and her pictures."""
    example_folder(folder)
    (folder / "classes.toml").write_text(CLASSES)
    ada = Ada(folder / "ada")
    given = kept_instructions(read_classes(folder / "classes.toml"), ada.home)
    ada.offer = ada.gets_offer(samples=samples, instructions=given)
    ada.samples = open_samples(draw_pictures(folder / "data", samples))
    return ada
