"""Shorten Flower's polling intervals that have no option. Imports `replace_part` and Flower."""

from __future__ import annotations

import time
from importlib import import_module
from types import SimpleNamespace

from truthfl.federation.flower_patches.replace_part import replace_part

OBJECT_POLL_SECONDS = 0.1


def shorten_object_polling() -> None:
    """Shorten the first wait for the objects of a message that were announced but have not arrived, from 1 s.

    Replaces the default of `initial_backoff` in `flwr.supercore.inflatable.inflatable_utils`.
    """
    utils = import_module("flwr.supercore.inflatable.inflatable_utils")
    for function in (utils.pull_objects, utils.pull_and_inflate_object_from_tree):
        if "initial_backoff" in (function.__kwdefaults__ or {}):
            function.__kwdefaults__["initial_backoff"] = OBJECT_POLL_SECONDS


def shorten_message_polling(max_seconds: float) -> None:
    """Let a SuperNode poll for messages at least every `max_seconds`; by default it does every 3 s.

    Replaces the module `time` in `flwr.supernode.start_client_internal`.
    """
    short_sleep = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, max_seconds)))
    replace_part(import_module("flwr.supernode.start_client_internal"), "time", short_sleep)
