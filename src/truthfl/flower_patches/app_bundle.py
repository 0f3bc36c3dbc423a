"""An app and its settings as Flower's control API takes them.

Uses `build_fab_from_disk` of `flwr.cli.build`, `Fab` of `flwr.supercore.fab`, and `fab_to_proto` and
`user_config_to_proto` of `flwr.common.serde`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from truthfl.flower_patches.flower_part import flower_part

_build = flower_part("flwr.cli.build", "build_fab_from_disk")
_Bundle = flower_part("flwr.supercore.fab", "Fab")
_bundle_to_proto = flower_part("flwr.common.serde", "fab_to_proto")
_settings_to_proto = flower_part("flwr.common.serde", "user_config_to_proto")


def app_bundle(app: Path) -> Any:
    """The files of the app in this folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Flower's, of a library that it uses
        content = _build(app)
    return _bundle_to_proto(_Bundle(sha256(content).hexdigest(), content, {}))


def app_settings(values: Mapping[str, str | int | float | bool]) -> Any:
    """The values of settings of an app."""
    return _settings_to_proto(dict(values))
