"""Flower's waits, where they are longer than need be and no option shortens them."""

from __future__ import annotations

import time
from importlib import import_module
from types import SimpleNamespace

from truthfl.federation.flower_patches.replace_part import replace_part

SECONDS_FOR_PARTS = 0.1


def fetch_parts_soon() -> None:
    """A message's parts follow its announcement; look again soon for one that is on its way, not a second later."""
    parts = import_module("flwr.supercore.inflatable.inflatable_utils")
    for function in (parts.pull_objects, parts.pull_and_inflate_object_from_tree):
        if "initial_backoff" in (function.__kwdefaults__ or {}):
            function.__kwdefaults__["initial_backoff"] = SECONDS_FOR_PARTS


def look_for_messages_every(seconds: float) -> None:
    """A SuperNode looks for messages every three seconds; let it do so more often."""
    shorter = SimpleNamespace(sleep=lambda asked: time.sleep(min(asked, seconds)))
    replace_part(import_module("flwr.supernode.start_client_internal"), "time", shorter)
