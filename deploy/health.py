"""Whether a server answers that it is well: python health.py URL [CA.crt]; exits with 0 if so, otherwise with 1.

Imports nothing of truthfl, so that it takes a moment.
"""

from __future__ import annotations

import json
import ssl
import sys
import urllib.request

SECONDS = 4


def is_well(url: str, root: str | None) -> bool:
    """Whether the server at this address, with a certificate that `root` signed, says that its status is ok."""
    try:
        context = ssl.create_default_context(cafile=root) if root else None
        handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)]
        with urllib.request.build_opener(*handlers).open(url, timeout=SECONDS) as answer:
            return bool(json.load(answer).get("status") == "ok")
    except (OSError, ValueError, AttributeError):
        return False


if __name__ == "__main__":
    sys.exit(0 if is_well(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None) else 1)
