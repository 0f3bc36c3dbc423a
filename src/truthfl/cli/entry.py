"""The entry point of the `truthfl` command: Ctrl+C ends it at any moment with exit code 130 and no traceback.

Little is imported before `main` starts, since until then an interrupt prints Python's traceback.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

MOMENT = 0.02  # seconds
OBJECTS_BETWEEN_COLLECTIONS = 100_000  # for Python's garbage collection; by default 700


def main() -> None:
    """Run a command; see `app.main`."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # a shell made this process ignore it
        _run()
        return
    signal.signal(signal.SIGINT, _leave)  # some modules would turn it into another error during their import
    from truthfl.cli import app  # noqa: F401
    from truthfl.errors import INTERRUPTED

    sys.unraisablehook = _without_traceback
    try:
        signal.signal(signal.SIGINT, _interrupt)
        _run()
    except KeyboardInterrupt:
        _leave()
    except Exception as error:
        if not _comes_of_interrupt(error):
            raise
        print("truthfl: interrupted.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, _leave)  # while Python waits for threads at its end
        _forget_handled_interrupt()


def _run() -> None:
    from truthfl.cli.app import main as run_command

    run_command()


def _interrupt(*of_signal: object) -> None:
    """Interrupt as Python does; other threads, whose work is taken away, then end without a traceback."""
    import threading

    threading.excepthook = lambda _: None
    signal.default_int_handler(*of_signal)  # type: ignore[arg-type]


def _leave(*_: object) -> None:
    """End this process at once."""
    from truthfl.errors import INTERRUPTED

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, RuntimeError):  # closed, or being written to at this moment
            continue
    os._exit(INTERRUPTED)


def _forget_handled_interrupt() -> None:
    """Make Python end with the exit code that the command chose, and not by a signal.

    When an interrupt leaves code that is executed from a string, as dataclasses do during imports, Python remembers to
    end itself by the signal, even if the interrupt is handled later. Executing another string clears that.
    """
    exec("")


def _comes_of_interrupt(error: BaseException) -> bool:
    """Whether Ctrl+C led to this error."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        following = error.__cause__ or error.__context__
        if following is None:
            break
        error = following
    return isinstance(error, KeyboardInterrupt)


def _without_traceback(unraisable: sys.UnraisableHookArgs) -> None:
    """Interrupt again a moment later if Ctrl+C came where nothing can be raised, such as in a destructor."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
        return
    from threading import Timer

    again = Timer(MOMENT, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    again.start()
