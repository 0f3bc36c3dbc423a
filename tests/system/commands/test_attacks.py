"""The short form of scripts/attack.py holds, and the code of its attackers still fits to the code that it changes."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[3] / "scripts"
PATCH_ALL = """
from importlib import import_module
from dishonest import PLACES, changes_of

for place in PLACES:
    for name in import_module(f"dishonest.{place}").CHANGES:
        for module, change in changes_of(name).items():
            change(import_module(module))
            print(name, module)
"""


def test_the_short_form_of_all_attacks_holds():
    command = [sys.executable, str(SCRIPTS / "attack.py"), "--short"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "DID NOT HOLD" not in done.stdout
    assert done.stdout.count(" HELD: ") >= 14


def test_what_attackers_change_is_there():
    """Federations with attackers take minutes; a name that is gone is found at once."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(SCRIPTS / "attacks" / "patches"), *sys.path))}
    command = [sys.executable, "-c", PATCH_ALL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 12
