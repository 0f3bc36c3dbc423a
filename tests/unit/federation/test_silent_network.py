"""A network that is cut without a word: a node notices within two seconds, so that its page can say so within three."""

import shutil
import subprocess
import sys

import pytest

# In a network of its own: two ends of a virtual cable, a server at one of them that sends nothing, and then no cable.
SCRIPT = """
import socket, subprocess, sys, time
from truthfl.federation.deployed.node_connection import _notice_silence
run = lambda *words: subprocess.run(words, check=True)
other = subprocess.Popen(["unshare", "-n", "sleep", "60"])
try:
    time.sleep(0.2)
    there = ("nsenter", "-t", str(other.pid), "-n")
    run("ip", "link", "add", "here", "type", "veth", "peer", "name", "there")
    run("ip", "link", "set", "there", "netns", str(other.pid))
    for words, number, name in (((), 1, "here"), (there, 2, "there")):
        run(*words, "ip", "addr", "add", f"10.99.0.{number}/24", "dev", name)
        run(*words, "ip", "link", "set", name, "up")
    code = "import socket; s = socket.create_server(('10.99.0.2', 5555)); print(flush=True); s.accept()[0].recv(1)"
    server = subprocess.Popen([*there, sys.executable, "-c", code], stdout=subprocess.PIPE)
    server.stdout.readline()
    with socket.create_connection(("10.99.0.2", 5555), timeout=10) as connection:
        _notice_silence(connection)
        connection.settimeout(20)
        time.sleep(1.5)
        run(*there, "ip", "link", "set", "there", "down")
        cut = time.monotonic()
        try:
            connection.sendall(b"x" * SENT)  # what is sent into the cut
            connection.recv(1)
        except OSError:
            print(time.monotonic() - cut)
    server.kill()
finally:
    other.kill()
"""


@pytest.mark.parametrize("sent", [0, 200])
def test_a_node_notices_within_two_seconds_that_nobody_is_at_the_other_end(sent):
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("there is no ip or unshare here to make a separate network")
    if (
        subprocess.run(["unshare", "-n", "ip", "link", "add", "here", "type", "veth"], capture_output=True).returncode
        != 0
    ):
        pytest.skip("a separate network may not be made here")
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", SCRIPT.replace("SENT", str(sent))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 0 < float(done.stdout) < 2.4  # at most 2, and the time until Python runs again
