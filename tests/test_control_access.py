"""Who may use which path of a SuperLink: the rules, and the middleware that asks them."""

import asyncio
import json
import os
import stat
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from outsiders import another_user_can_open, can_be_another_user
from truthfl.errors import ServiceError
from truthfl.federation.flower_patches.restricted_superlink import AccessControl, Request, refusal
from truthfl.files import create_private_file, make_private_folder
from truthfl.ledger.book import open_ledger
from truthfl.samples.label_store import LabelStore

SECRET = "5ec7e7"
SUBMIT = "/v1/control/start-run"
HERE, ELSEWHERE = ("127.0.0.1", "192.0.2.1"), ("192.0.2.7", "192.0.2.1")


def _refused(path, ends, authorization=f"Bearer {SECRET}", *, secret=SECRET, submitted=False):
    refused = refusal(Request(path, *ends, authorization), secret, submitted=submitted)
    return None if refused is None else int(refused[0])


@pytest.mark.parametrize(
    ("path", "client", "server", "passes"),
    [
        ("/v1/fleet/pull-messages", "192.0.2.7", "192.0.2.1", True),
        ("/health", None, None, True),
        (SUBMIT, "192.0.2.7", "192.0.2.1", False),
        (SUBMIT, None, None, False),
        (SUBMIT, "", "", False),
        (SUBMIT, "192.0.2.1", "192.0.2.1", True),
        (SUBMIT, "127.0.0.1", "192.0.2.1", True),
        (SUBMIT, "::1", "::1", True),
        (SUBMIT, "::ffff:127.0.0.1", "::1", True),
        (SUBMIT, "::ffff:192.0.2.7", "::1", False),
        ("/healthy", "192.0.2.7", "192.0.2.1", False),
        ("/v1/fleet", "192.0.2.7", "192.0.2.1", False),
        ("/v1/runtime/acquire-task", "192.0.2.7", "192.0.2.1", False),
        ("/v1/runtime/acquire-task", "127.0.0.1", "192.0.2.1", True),
        ("/docs", "127.0.0.1", "127.0.0.1", False),
        ("/v1/responses", "127.0.0.1", "127.0.0.1", False),
        ("/v1/control/start-automation", "127.0.0.1", "127.0.0.1", False),
        ("start-run", "127.0.0.1", "127.0.0.1", False),
        ("/v1/fleet/../control/start-run", "192.0.2.7", "192.0.2.1", False),
        ("//v1/control/start-run", "127.0.0.1", "127.0.0.1", False),
    ],
)
def test_which_machine_may_use_which_path(path, client, server, passes):
    assert _refused(path, (client, server)) == (None if passes else HTTPStatus.NOT_FOUND)


@pytest.mark.parametrize("authorization", ["", SECRET, "Bearer ", "Bearer x", f"bearer {SECRET}", f"Bearer {SECRET} "])
def test_without_the_secret_nobody_controls_the_server(authorization):
    for method in ("start-run", "stop-run", "list-nodes", "register-node", "stream-logs"):
        assert _refused(f"/v1/control/{method}", HERE, authorization) == HTTPStatus.UNAUTHORIZED
    assert _refused(SUBMIT, ELSEWHERE, authorization) == HTTPStatus.NOT_FOUND
    assert _refused("/v1/fleet/pull-messages", HERE, authorization) is None


def test_a_server_without_a_secret_has_no_control():
    assert _refused(SUBMIT, HERE, "Bearer ", secret="") == HTTPStatus.UNAUTHORIZED


def test_after_the_run_nothing_is_submitted():
    assert _refused(SUBMIT, HERE, submitted=True) == HTTPStatus.FORBIDDEN
    assert _refused("/v1/control/list-runs", HERE, submitted=True) is None


class Server:
    """A server behind the middleware, which answers with these statuses, one after the other."""

    def __init__(self, file, *statuses):
        self.statuses = list(statuses)
        self.control = AccessControl(self.answer, file)

    async def answer(self, _scope, _receive, send):
        status = self.statuses.pop(0)
        if status is None:
            raise ConnectionError
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def post(self, *headers, kind="http"):
        sent = []

        async def send(message):
            sent.append(message)

        scope = {"type": kind, "path": SUBMIT, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)}
        asyncio.run(self.control(scope | {"headers": headers}, None, send))
        return sent


def test_one_run_is_submitted_also_by_a_server_that_starts_again(tmp_path):
    file, known = tmp_path / "secret", (b"authorization", f"Bearer {SECRET}".encode())
    file.write_text(SECRET)
    server = Server(file, 400, None, 200)
    assert server.post()[0]["status"] == HTTPStatus.UNAUTHORIZED
    assert server.post(known, known)[0]["status"] == HTTPStatus.UNAUTHORIZED
    assert server.post(kind="websocket") == [{"type": "websocket.close", "code": 1008}]
    assert server.post(known)[0]["status"] == HTTPStatus.BAD_REQUEST  # which was no run
    with pytest.raises(ConnectionError):
        server.post(known)
    assert server.post(known)[0]["status"] == HTTPStatus.OK
    refused = server.post(known)
    assert refused[0]["status"] == HTTPStatus.FORBIDDEN
    assert "submitted already" in json.loads(refused[1]["body"])["detail"]
    assert Server(file).post(known)[0]["status"] == HTTPStatus.FORBIDDEN


@pytest.mark.skipif(not can_be_another_user(), reason="only root can act as another user")
def test_another_user_opens_nothing():
    with TemporaryDirectory() as place:  # unlike tmp_path, in folders that all may enter
        folder = Path(place)
        folder.chmod(0o755)
        (folder / "told").write_text("all")
        make_private_folder(folder / "link")
        open_ledger(str(folder / "ledger.db")).close()
        create_private_file(folder / "link" / "secret")
        opened = {name: another_user_can_open(folder / name) for name in ("told", "ledger.db", "link/secret")}
    assert opened == {"told": True, "ledger.db": False, "link/secret": False}


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_private_is_so_whatever_the_umask(tmp_path, monkeypatch):
    before = os.umask(0)
    try:
        make_private_folder(tmp_path / "new" / "folder")
        open_ledger(str(tmp_path / "ledger.db")).close()
        with open_ledger(str(tmp_path / "open.db")):
            modes = {path.name: _mode(path) for path in tmp_path.glob("open.db*")}
        LabelStore(tmp_path / "labels.db").close()
        (tmp_path / "wide").mkdir(mode=0o755)
        make_private_folder(tmp_path / "wide")
        create_private_file(tmp_path / "file")
        create_private_file(tmp_path / "file")
        (tmp_path / "shared" / "deeper").mkdir(mode=0o755, parents=True)
        monkeypatch.chdir(tmp_path / "shared" / "deeper")
        make_private_folder(tmp_path / "shared")
    finally:
        os.umask(before)
    assert len(modes) > 1
    assert set(modes.values()) == {0o600}
    assert {_mode(tmp_path / name) for name in ("ledger.db", "labels.db", "file")} == {0o600}
    assert {_mode(tmp_path / name) for name in ("new/folder", "wide")} == {0o700}
    assert _mode(tmp_path / "shared") != 0o700
    with pytest.raises(ServiceError, match="cannot be made private: File exists"):
        make_private_folder(tmp_path / "file")
    with pytest.raises(ServiceError, match="cannot be written: No such file"):
        create_private_file(tmp_path / "nowhere" / "file")
