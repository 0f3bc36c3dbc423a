"""Shorten Flower's polling intervals that have no option.

Replaces the default of `initial_backoff` of `pull_objects` and `pull_and_inflate_object_from_tree` in
`flwr.supercore.inflatable.inflatable_utils`.
"""

from __future__ import annotations

from truthfl.flower_patches.flower_part import flower_part, missing_part

MODULE, OPTION = "flwr.supercore.inflatable.inflatable_utils", "initial_backoff"
OBJECT_POLL_SECONDS = 0.1
_pulling = [flower_part(MODULE, name) for name in ("pull_objects", "pull_and_inflate_object_from_tree")]


def shorten_object_polling() -> None:
    """Shorten the first wait for the objects of a message that were announced but have not arrived, from 1 s."""
    for function in _pulling:
        defaults = function.__kwdefaults__ or {}
        if OPTION not in defaults:
            raise missing_part(f"{OPTION} in {MODULE}.{function.__name__}")
        defaults[OPTION] = OBJECT_POLL_SECONDS
