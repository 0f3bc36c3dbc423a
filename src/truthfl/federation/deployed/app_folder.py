"""Write the Flower app that is submitted: a folder with a pyproject.toml that names a ServerApp and a ClientApp.

The folder contains no code; the server and all participants have truthfl installed.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from truthfl.errors import InputError
from truthfl.files import write_file

Value = str | int | float | bool
SERVER_APP = "truthfl.federation.deployed.apps:server_app"
CLIENT_APP = "truthfl.federation.deployed.node_app:client_app"
_KEY = re.compile(r"[A-Za-z0-9_-]+")


def write_app_folder(
    folder: Path,
    serverapp: str = SERVER_APP,
    clientapp: str = CLIENT_APP,
    run_config: Mapping[str, Value] | None = None,
) -> Path:
    """Write the app; return the folder.

    serverapp, clientapp  MODULE:NAME; Flower requires an assignment `NAME = ...` in that module
    run_config            all settings that a run may set, with their defaults
    """
    sections: list[tuple[str, Mapping[str, Value]]] = [
        ("project", {"name": "truthfl-federation", "version": "1.0.0", "description": "A federation of truthfl"}),
        ("tool.flwr.app", {"publisher": "truthfl"}),
        ("tool.flwr.app.components", {"serverapp": serverapp, "clientapp": clientapp}),
        ("tool.flwr.app.config", run_config or {}),
    ]
    text = "\n".join(f"[{name}]\n{toml_lines(values)}" for name, values in sections)
    text = text.replace("[project]\n", '[project]\nlicense = { text = "Apache-2.0" }\ndependencies = []\n', 1)
    write_file(folder / "pyproject.toml", text)
    return folder


def read_run_config(folder: Path) -> dict[str, Value]:
    """Return the settings that a run of this app may set, with their defaults."""
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        return dict(project["tool"]["flwr"]["app"].get("config", {}))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError):
        raise InputError(f"{folder} is no folder with a Flower app; write_app_folder makes one.") from None


def toml_lines(values: Mapping[str, Value]) -> str:
    """Return the values as TOML, one `key = value` per line, with all characters escaped as needed."""
    return "".join(f"{_checked_key(key)} = {_toml_value(key, value)}\n" for key, value in values.items())


def _checked_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise InputError(f"{key!r} is no name of a setting; it may have letters, digits, - and _.")
    return key


def _toml_value(key: str, value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    raise InputError(f"{key} is {value!r}; a setting must be text, a finite number, true or false.")
