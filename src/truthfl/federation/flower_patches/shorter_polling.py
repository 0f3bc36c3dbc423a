"""Shorten Flower's polling intervals that have no option. Imports Flower."""

from __future__ import annotations

from importlib import import_module

OBJECT_POLL_SECONDS = 0.1


def shorten_object_polling() -> None:
    """Shorten the first wait for the objects of a message that were announced but have not arrived, from 1 s.

    Replaces the default of `initial_backoff` in `flwr.supercore.inflatable.inflatable_utils`.
    """
    utils = import_module("flwr.supercore.inflatable.inflatable_utils")
    for function in (utils.pull_objects, utils.pull_and_inflate_object_from_tree):
        if "initial_backoff" in (function.__kwdefaults__ or {}):
            function.__kwdefaults__["initial_backoff"] = OBJECT_POLL_SECONDS
