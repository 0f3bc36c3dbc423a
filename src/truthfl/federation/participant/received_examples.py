"""The examples of an offer's classes from the server, checked against the signed offer before they are kept."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping

from truthfl.errors import InputError
from truthfl.instructions import LARGEST, Example, Instructions
from truthfl.samples.example_files import require_sound_example

LONGEST_ENCODED = 4 * (max(LARGEST.values()) // 3 + 1)  # letters of one file in base64


def received_examples(files: object, instructions: Instructions) -> dict[Example, bytes]:
    """The content of each example of these instructions, from files in base64 by digest, which are not trusted.

    Raise `InputError` if one is missing, is another than the offer names, is too large, or is dangerous to show.
    """
    return {example: _received(files, example) for example in instructions.examples}


def _received(files: object, example: Example) -> bytes:
    text = files.get(example.sha256) if isinstance(files, Mapping) else None
    if not isinstance(text, str) or len(text) > LONGEST_ENCODED:
        raise InputError(f"the example {example.sha256[:8]}… of the offer did not come, or is too long.")
    try:
        content = b64decode(text, validate=True)
    except ValueError:
        raise InputError(f"the example {example.sha256[:8]}… of the offer came damaged.") from None
    require_sound_example(content, example)
    return content
