"""Python imports this at its start where this folder is on PYTHONPATH: it changes truthfl as TRUTHFL_ATTACK says.

So an attacker's processes run other code, and those of the attacked run truthfl as it is. A module is changed directly
after it is imported.
"""

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

from dishonest import changes_of


class ChangingFinder(MetaPathFinder):
    """Finds the modules that are to be changed, and changes them when they are loaded."""

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
