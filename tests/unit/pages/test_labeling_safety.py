"""Who may talk to the page, and what they get: token, cookie, origin, CSRF, hosts, headers, paths, sizes."""

import asyncio
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from helpers.participants import Ada, draw_pictures
from helpers.texts import png_that_says
from truthfl.errors import InputError, ServiceError
from truthfl.page.access import CSRF_HEADER
from truthfl.page.catalogue import Message, in_english
from truthfl.page.serving import listen, open_page
from truthfl.samples.sample import NAMES
from truthfl.samples.sources import open_samples

DIGITS = tuple("0123456789")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    draw_pictures(folder / "data", 5)
    (folder / "data" / "bomb.png").write_bytes(png_that_says(60_000, 60_000))
    (folder / "data" / "junk.png").write_bytes(b"junk")
    (folder / "secret.png").write_bytes(b"secret")
    ada = Ada(folder)
    ada.gets_offer(samples=5)
    with open_page(ada.home, open_samples(folder / "data"), DIGITS, ada.key) as opened:
        yield opened


@pytest.fixture
def address(served):
    return served.url.split("/?")[0]


def origin(address):
    return address[: address.index("/", 8)]


@pytest.fixture
def stranger(address):
    with httpx.Client(base_url=address, trust_env=False) as client:
        yield client


@pytest.fixture
def inside(served, address):
    """A client that came in by the whole address, with the page's secret for changes."""
    with httpx.Client(base_url=address, trust_env=False) as client:
        assert client.get(served.url).status_code == 303
        client.work = client.get("/api/work").json()
        client.headers.update({"origin": origin(address), CSRF_HEADER: client.work["csrf"]})
        yield client


def a_decision(client, **changes):
    said = {"edition": client.work["edition"], "nonce": "a-nonce-1234", "position": 0, "action": "skip"}
    return client.post("/api/decisions", json=said | changes)


EVERYTHING = [
    "/",
    "/offer",
    "/label",
    "/static/label.js",
    "/api/work",
    "/api/offer",
    "/samples/x/0",
    "/export/labels.csv",
]


@pytest.mark.parametrize("path", EVERYTHING)
def test_without_the_token_nothing_is_shown(stranger, path):
    answer = stranger.get(path)
    assert answer.status_code == 403
    assert "csrf" not in answer.text
    assert "set-cookie" not in answer.headers


def test_a_wrong_token_is_refused(stranger, served):
    for token in ("", "x", served.url.split("token=")[1][:-1] + "é"):
        assert stranger.get("/", params={"token": token}).status_code == 403


def test_the_token_is_exchanged_for_a_cookie_that_scripts_and_other_sites_do_not_get(stranger, served):
    answer = stranger.get(served.url)
    assert answer.status_code == 303
    assert answer.headers["location"] == httpx.URL(served.url).path
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"truthfl-{httpx.URL(served.url).port}=")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert served.url.split("token=")[1] not in cookie
    assert stranger.get("/label").status_code == 200


def test_the_cookie_is_for_this_pages_path_alone(inside, stranger, served, address):
    """Browsers send cookies to all ports of a machine; a path that nobody knows keeps it from the others."""
    root = httpx.URL(served.url).path
    assert len(root) >= 18
    assert f"Path={root}" in stranger.get(served.url).headers["set-cookie"]
    cookie = "; ".join(f"{name}={value}" for name, value in inside.cookies.items())
    for path in ("/", "/label", "/api/work", f"{root[:-2]}/label"):
        assert stranger.get(f"{origin(address)}{path}", headers={"cookie": cookie}).status_code == 403
    others = f'prefs={{"theme":"dark"}}; {cookie}; x'
    assert stranger.get("/api/work", headers={"cookie": others}).status_code == 200


def test_somebody_who_comes_by_a_link_on_another_page_gets_in(stranger, served):
    answer = stranger.get(served.url, headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 200
    assert 'content="0;url=./"' in answer.text
    assert "set-cookie" in answer.headers


def test_tokens_are_long_and_new_each_time(tmp_path, served):
    with open_page(tmp_path, open_samples(draw_pictures(tmp_path / "data", 1)), DIGITS) as other:
        tokens = [one.url.split("token=")[1] for one in (served, other)]
    assert tokens[0] != tokens[1]
    assert min(map(len, tokens)) >= 43


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil:{port}"]
)
def test_another_host_is_refused(inside, served, host):
    """So that a name pointed at this machine (DNS rebinding) gets nothing."""
    port = httpx.URL(served.url).port
    assert inside.get("/api/work", headers={"host": host.format(port=port)}).status_code == 403


def test_localhost_by_its_other_names(inside, served):
    port = httpx.URL(served.url).port
    for host in (f"localhost:{port}", f"[::1]:{port}"):
        assert inside.get("/api/work", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_pages_of_the_browser_are_refused(inside, site):
    assert inside.get("/api/work", headers={"sec-fetch-site": site}).status_code == 403
    assert inside.get("/samples/x/0", headers={"sec-fetch-site": site}).status_code == 403


def test_a_change_needs_the_origin_and_the_secret(inside, address):
    assert a_decision(inside).status_code == 200
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": origin(address).replace("127.0.0.1", "localhost")},
        {"origin": "null"},
        {CSRF_HEADER: "wrong"},
        {CSRF_HEADER: ""},
    ):
        said = {"edition": inside.work["edition"], "nonce": "a-nonce-1234", "position": 0, "action": "skip"}
        for path, body in (
            ("/api/decisions", said),
            ("/api/undo", {}),
            ("/api/answer", {"offer": "x", "accepted": True}),
        ):
            assert inside.post(path, json=body, headers=headers).status_code == 403
    del inside.headers["origin"]
    assert a_decision(inside).status_code == 403


@pytest.mark.parametrize("path", [*EVERYTHING, "/nowhere"])
def test_every_answer_has_strict_headers(inside, stranger, path):
    for client in (inside, stranger):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] in ("no-store", "no-cache")
        assert "server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/%2e%2e/errors.py",
        "/static//etc/passwd",
        "/samples/{edition}/../../secret.png",
        "/samples/{edition}/..%2f..%2fsecret.png",
        "/samples/{edition}/-1",
        "/samples/{edition}/6",
        "/samples/{edition}/0x0",
        "/samples/{edition}/99999999999999999999999",
        "/export/labels.db",
        "/labels.db",
        "/key",
    ],
)
def test_no_path_leads_anywhere_else(inside, address, path):
    target = path.format(edition=inside.work["edition"])
    port = httpx.URL(address).port
    cookie = "; ".join(f"{name}={value}" for name, value in inside.cookies.items())
    target = httpx.URL(address).path + target
    request = f"GET {target} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncookie: {cookie}\r\nconnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(request.encode())
        answer = b"".join(iter(lambda: line.recv(65536), b""))
    assert answer.split()[1] in (b"404", b"422"), answer
    assert b"secret" not in answer
    assert b"import" not in answer


def test_a_picture_over_the_limit_and_a_broken_one_are_refused_and_reported(inside):
    edition = inside.work["edition"]
    assert inside.work["total"] == 6
    (junk,) = inside.work["problems"]
    assert in_english(Message(**junk)) == f"junk.png is no {NAMES} picture, whatever its name says."
    answer = inside.get(f"/samples/{edition}/5")
    assert answer.status_code == 422
    assert answer.json()["error"] == "bomb.png is of 60,000×60,000 pixels; at most 50 million are decoded."
    assert inside.get(f"/thumbs/{edition}/5").status_code == 422
    assert inside.get("/api/work").json()["unreadable"] == {"5": answer.json()["message"]}
    assert inside.get(f"/samples/{edition}/0").headers["content-type"] == "image/png"


@pytest.mark.parametrize(
    "changes",
    [
        {"nonce": "x"},
        {"nonce": "'; drop table decisions"},
        {"position": 6},
        {"position": -1},
        {"position": True},
        {"action": "undo"},
        {"action": "label"},
        {"action": "label", "label": 10},
        {"action": "label", "label": -1},
        {"action": "skip", "label": 1},
        {"more": 1},
    ],
)
def test_nonsense_is_refused_in_one_sentence(inside, changes):
    before = inside.get("/export/labels.csv").text
    answer = a_decision(inside, **changes)
    assert answer.status_code == 422
    assert list(answer.json()) == ["error", "message"]
    assert inside.get("/export/labels.csv").text == before


def test_other_samples_or_classes_must_be_looked_at_again(inside):
    assert a_decision(inside, edition="0" * 16).status_code == 409
    assert inside.get("/samples/0000/0").status_code == 409


def test_a_large_body_is_refused_before_it_is_read(inside):
    body = json.dumps({"edition": "x" * 70_000})
    assert inside.post("/api/undo", content=body).status_code == 413
    assert inside.post("/api/undo", content=(part for part in [b"{}"])).status_code == 413


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system does not tell who listens")
def test_only_this_machine_is_listened_to(address):
    port = httpx.URL(address).port
    with open("/proc/net/tcp") as table:
        listening = [line.split()[1] for line in table if line.split()[3] == "0A"]
    hosts = [one.split(":")[0] for one in listening if int(one.split(":")[1], 16) == port]
    assert hosts == ["0100007F"]  # 127.0.0.1


def test_a_port_that_is_taken(served, tmp_path):
    port = httpx.URL(served.url).port
    source = open_samples(draw_pictures(tmp_path / "data", 1))
    with pytest.raises(ServiceError, match=f"port {port} cannot"), open_page(tmp_path, source, DIGITS, port=port):
        pass
    with pytest.raises(InputError, match="port is 70000; it must be"), open_page(tmp_path, source, DIGITS, port=70000):
        pass


def test_small_answers_are_sent_at_once():
    """An answer leaves in two parts; if the second waits until the first is confirmed, each key press takes 40 ms."""
    waits = []

    def note(_, writer):
        line = writer.get_extra_info("socket")
        waits.append(not line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async def serve_one():
        async with await asyncio.start_server(note, sock=listen(0)) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            await reader.read()
            writer.close()

    with ThreadPoolExecutor(1) as pool:  # a browser's driver may have a loop in this thread
        pool.submit(asyncio.run, serve_one()).result()
    assert waits == [False]


def test_static_files_are_not_sent_twice(inside):
    first = inside.get("/static/label.js")
    assert inside.get("/static/label.js", headers={"if-none-match": first.headers["etag"]}).status_code == 304


def test_many_at_once(inside):
    edition = inside.work["edition"]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: inside.get(f"/samples/{edition}/{n % 5}").status_code, range(60)))
    assert set(answers) == {200}
