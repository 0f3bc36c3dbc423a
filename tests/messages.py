"""What a refusal says: always one sentence."""

import pytest

from truthfl import InputError


def told(call, *arguments, kind=InputError, **options):
    with pytest.raises(kind) as error:
        call(*arguments, **options)
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text
