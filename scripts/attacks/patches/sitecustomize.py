"""Changes truthfl as TRUTHFL_ATTACK says; Python imports this at its start if this folder is on PYTHONPATH.

Attackers' processes thus run changed code, and all others run truthfl unchanged. A module is changed directly after its
import.
"""

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

from dishonest import changes_of


class ChangingFinder(MetaPathFinder):
    """Finds the modules to change, and changes them when they are loaded."""

    def __init__(self, changes):
        self.changes = changes

    def find_spec(self, name, path, target=None):
        change = self.changes.get(name)
        spec = None if change is None else PathFinder.find_spec(name, path, target)
        if spec is None:
            return None
        load = spec.loader.exec_module

        def load_and_change(module):
            load(module)
            change(module)

        spec.loader.exec_module = load_and_change
        return spec


if os.environ.get("TRUTHFL_ATTACK"):
    sys.meta_path.insert(0, ChangingFinder(changes_of(os.environ["TRUTHFL_ATTACK"])))
