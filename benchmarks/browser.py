"""The path of Chromium: TRUTHFL_CHROMIUM, or one of its usual names on the PATH."""

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium():
    return os.environ.get("TRUTHFL_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
