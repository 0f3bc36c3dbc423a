"""Another user of the operator's machine: what she gets when she asks her server, or opens her files."""

import os
import shutil
import subprocess
from pathlib import Path

NOBODY = 65534
PYTHON = "/usr/bin/python3"  # one that every user may start
ASK = """
import http.client, ssl, sys
port, methods = int(sys.argv[1]), sys.argv[2:]
for method in methods:
    asked = http.client.HTTPSConnection("127.0.0.1", port, context=ssl._create_unverified_context())
    asked.request("POST", "/v1/control/" + method, b"", {"Content-Type": "application/protobuf"})
    print(asked.getresponse().status)
"""
OPEN = "import sys\nfor path in sys.argv[1:]:\n    open(path, 'rb')"


def can_be_another_user():
    return os.getuid() == 0 and shutil.which(PYTHON) is not None


def statuses_for_another_user(port, *methods):
    """The HTTP statuses of these methods of the control API, asked without the secret."""
    return [int(line) for line in _as_nobody(ASK, str(port), *methods).stdout.split()]


def another_user_can_open(path):
    """Whether another user can open this file, if all folders above the operator's let her through."""
    return _as_nobody(OPEN, str(Path(path).resolve())).returncode == 0


def _as_nobody(code, *arguments):
    command = [PYTHON, "-I", "-c", code, *arguments]
    return subprocess.run(
        command, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", capture_output=True, text=True, timeout=60
    )
