"""Child processes: what they inherit, how one waits for them, and that none outlives us."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from truthfl.errors import ServiceError
from truthfl.federation.deployed import processes
from truthfl.federation.deployed.processes import (
    environment,
    is_running,
    restart,
    start,
    stop,
    wait_until,
)

SECONDS = 60.0
SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER
FAMILY = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}]); {SLEEPER}"


def _python(code):
    return [sys.executable, "-c", code]


def _is_up(child, lines=1):
    return lambda: child.output().count("up") >= lines


def _exists(pid):
    """Whether this process runs; one that is dead and not yet buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_stop_ends_all_that_a_child_started_even_who_does_not_listen(tmp_path):
    child = start("family", _python(FAMILY), tmp_path, home=tmp_path)
    wait_until(_is_up(child, 2), [child], "The family did not start", SECONDS)
    stop([child], grace=0.5)
    assert not is_running(child)
    stop([child])


def test_one_that_listens_is_not_killed(tmp_path):
    child = start("sleeper", _python(SLEEPER), tmp_path, home=tmp_path)
    wait_until(_is_up(child), [child], "The sleeper did not start", SECONDS)
    begun = time.monotonic()
    stop([child], grace=SECONDS)
    assert child.process.returncode == -signal.SIGTERM
    assert time.monotonic() - begun < SECONDS / 2


def test_a_child_outlives_the_thread_that_asked_for_it(tmp_path):
    made = []
    thread = threading.Thread(target=lambda: made.append(start("a", _python(SLEEPER), tmp_path, home=tmp_path)))
    thread.start()
    thread.join()
    wait_until(_is_up(made[0]), made, "The sleeper did not start", SECONDS)
    time.sleep(0.3)
    assert not made[0].ended
    stop(made)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells a process of its parent's death")
def test_children_end_when_we_are_killed(tmp_path):
    code = (
        "from pathlib import Path; import sys, time; from truthfl.federation.deployed.processes import start; "
        f"child = start('sleeper', [sys.executable, '-c', {SLEEPER!r}], Path({str(tmp_path)!r}), "
        f"home=Path({str(tmp_path)!r})); print(child.process.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(_python(code), stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        end = time.monotonic() + SECONDS
        while "up" not in (tmp_path / "sleeper.log").read_text() and time.monotonic() < end:
            time.sleep(0.05)
        assert _exists(pid)
        parent.kill()
    while _exists(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not _exists(pid)


def test_one_that_ends_too_soon_is_a_sentence_with_its_last_lines(tmp_path):
    child = start(
        "broken", _python("print('\\x1b[91mone\\x1b[0m'); print('two'); raise SystemExit(3)"), tmp_path, home=tmp_path
    )
    with pytest.raises(ServiceError, match=r"did not start: broken ended. The last lines of .*broken.log:\none\ntwo$"):
        wait_until(lambda: False, [child], "It did not start", SECONDS)
    again = restart(child)
    again.process.wait()
    assert (again.output(), again.log.read_text().count("two")) == ("one\ntwo\n", 2)


def test_one_that_never_gets_ready_is_a_sentence(tmp_path):
    child = start("slow", _python("import time; time.sleep(600)"), tmp_path, home=tmp_path)
    with pytest.raises(ServiceError, match=r"Not ready: not within 0.2 seconds. .*slow.log is empty."):
        wait_until(lambda: False, [child], "Not ready", 0.2)
    stop([child])


def test_a_log_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ServiceError, match=r"some.log cannot be written: Not a directory"):
        start("some", _python("pass"), tmp_path / "file" / "folder", home=tmp_path)


def test_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_OIDC_ENABLED", "1")
    monkeypatch.setenv("NO_PROXY", "example.org")
    monkeypatch.setenv("LANGUAGE_OF_OURS", "kept")
    made = environment(tmp_path)
    assert made["FLWR_HOME"] == str(tmp_path)
    assert made["FLWR_TELEMETRY_ENABLED"] == "0"
    assert made["NO_PROXY"] == made["no_proxy"] == "example.org,localhost,127.0.0.1,::1"
    assert "FLWR_OIDC_ENABLED" not in made
    assert made["LANGUAGE_OF_OURS"] == "kept"


def test_a_free_port_is_free():
    assert 0 < processes.free_port() < 65536


def test_who_answers_a_message_leaves_when_the_executor_was_killed():
    executor = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    module = "truthfl.federation.flower_patches.forking_executor"
    code = f"from {module} import exit_with_executor; print(flush=True); exit_with_executor({executor.pid})"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as answering:
        answering.stdout.readline()
        assert answering.poll() is None
        executor.kill()
        executor.communicate()
        assert answering.wait(30) == 1
