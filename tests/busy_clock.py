"""Seconds as a test counts them that states how long something may take: without those in which the machine was busy.

A thread sleeps for a beat again and again. On a machine with nothing else to do a beat takes a hundredth of a second;
on one that is busy each takes longer, as whatever is measured does, and the beats are counted.
"""

import threading
from contextlib import contextmanager

BEAT = 0.01  # seconds


@contextmanager
def within(seconds):
    """What is done in this context takes less than so many seconds."""
    over, beats = threading.Event(), []

    def count():
        while not over.wait(BEAT):
            beats.append(BEAT)

    counting = threading.Thread(target=count, daemon=True)
    counting.start()
    try:
        yield
    finally:
        over.set()
        counting.join()
    assert sum(beats) < seconds
