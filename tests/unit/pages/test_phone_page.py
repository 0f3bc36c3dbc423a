"""The page from a phone: real TLS, a link that works once, and what strangers in the network get."""

import re
import signal
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from hashlib import sha256

import httpx
import pytest
import segno

from helpers.browsers import HERE, launched
from helpers.browsers import TOUCH_PHONE as PHONE
from helpers.participants import draw_pictures
from truthfl import certificates as certificate_parts
from truthfl.cli.participant.pages import phone_access
from truthfl.cli.participant.phone import qr_lines, qr_matrix, tell_login
from truthfl.errors import InputError, ServiceError
from truthfl.page import access as one_time_login
from truthfl.page.access import CSRF_HEADER, LoginOutcome, OneTimeLogin
from truthfl.page.phone import PhoneAccess, address_towards, phone_address, phone_certificate
from truthfl.page.serving import MOST_OF_ONE_ADDRESS, open_page
from truthfl.samples.handmade_labels import labels_of
from truthfl.samples.sources import open_samples

DIGITS = tuple("0123456789")


@contextmanager
def opened(folder, pictures=3):
    """The page for computer and phone; `told` has what its owner reads about who opened the link."""
    source, told = open_samples(draw_pictures(folder / "data", pictures)), []
    phone = PhoneAccess(HERE, 0, lambda *what: told.append(what))
    with open_page(folder / "home", source, DIGITS, phone=phone) as page:
        yield page, told


@pytest.fixture
def served(tmp_path):
    with opened(tmp_path) as both:
        yield both


@contextmanager
def device(home=None):
    """A client that trusts the certificate in Ada's folder and no other; without it, one that was told to go on."""
    trust = ssl.create_default_context(cafile=str(home / "phone.pem")) if home is not None else False
    with httpx.Client(verify=trust, trust_env=False) as client:
        yield client


def test_the_first_device_gets_in_and_nobody_after_it(served, tmp_path):
    page, told = served
    url = httpx.URL(page.phone.url)
    with device(tmp_path / "home") as first, device() as second:
        answer = first.get(url)
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"]
        assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Secure", f"Path={url.path}"))
        assert first.get(url.join("label")).status_code == 200
        replayed = second.get(url)
        assert (replayed.status_code, "set-cookie" in replayed.headers) == (403, False)
        assert "<h1>This link was used</h1>" in replayed.text
        for path in ("", "label", "api/work", "samples/x/0", "export/labels.csv", "static/label.js"):
            assert second.get(url.copy_with(query=None).join(path)).status_code == 403
        assert first.get(url).status_code == 303  # the device that has the cookie opens the link again
        assert told == [(LoginOutcome.LET_IN, HERE), (LoginOutcome.USED, HERE)]


def test_two_pages_with_different_secrets_and_the_same_labels(served):
    page, _ = served
    with device() as phone, httpx.Client(trust_env=False) as computer:
        url, own = httpx.URL(page.phone.url), httpx.URL(page.url)
        assert (own.scheme, own.host) == ("http", HERE)
        phone.get(url)
        computer.get(own)
        work = phone.get(url.join("api/work")).json()
        said = {"edition": work["edition"], "nonce": "a-nonce-1234", "position": 0, "action": "label", "label": 7}
        headers = {"origin": f"https://{HERE}:{url.port}", CSRF_HEADER: work["csrf"]}
        assert phone.post(url.join("api/decisions"), json=said, headers=headers).status_code == 200
        seen = computer.get(own.join("api/work")).json()
        assert seen["csrf"] != work["csrf"]
        assert seen["labels"] == phone.get(url.join("api/work")).json()["labels"] == [7, -1, -1]
        token, path = url.params["token"], url.path
        assert computer.get(own.copy_with(raw_path=f"{path}?token={token}".encode())).status_code == 403


def test_other_hosts_and_other_pages_get_nothing(served):
    """DNS rebinding, the other page's names, changes that another site, or none, sent, paths out of the folder."""
    page, told = served
    url = httpx.URL(page.phone.url)
    with device() as client:
        for host in ("evil.example", f"evil.example:{url.port}", f"localhost:{url.port}", HERE, f"{HERE}:1"):
            assert client.get(url, headers={"host": host}).status_code == 403
        assert client.head(url).status_code == 403
        assert client.get(url, headers={"sec-purpose": "prefetch;prerender"}).status_code == 403
        assert told == []  # all that spent nothing
        assert client.get(url).status_code == 303
        assert client.get(url.join("api/work"), headers={"host": f"evil.example:{url.port}"}).status_code == 403
        work = client.get(url.join("api/work")).json()
        said = {"edition": work["edition"], "nonce": "a-nonce-1234", "position": 0, "action": "skip"}
        right = {"origin": f"https://{HERE}:{url.port}", CSRF_HEADER: work["csrf"]}
        wrong = [
            {"origin": f"http://{HERE}:{url.port}"},
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {CSRF_HEADER: "x"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        ]
        for change in wrong:
            assert client.post(url.join("api/decisions"), json=said, headers=right | change).status_code == 403
        for path in (
            "../../../etc/passwd",
            "static/..%2f..%2fphone.pem",
            "samples/x/..%2fphone.pem",
            "%2e%2e/phone.pem",
        ):
            raw = f"{url.path}{path}".encode()
            answer = client.get(url.copy_with(raw_path=raw))
            assert answer.status_code in (403, 404, 409, 422)
            assert "PRIVATE KEY" not in answer.text
        assert client.post(url.join("api/decisions"), json=said, headers=right).status_code == 200


def test_plain_http_to_the_tls_port_is_answered_by_nothing(served, capfd):
    page, _ = served
    port = httpx.URL(page.phone.url).port
    with socket.create_connection((HERE, port), 5) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP" not in plain.recv(1000)
    with device() as client:
        assert client.get(page.phone.url).status_code == 303
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection((HERE, port), 5) as outdated, pytest.raises(ssl.SSLError):
        old.wrap_socket(outdated)
    assert capfd.readouterr().err == ""


def test_connections_that_say_nothing_keep_nobody_out(served):
    """Neither in the middle of a handshake nor of a request's head; both pages go on, and files stay free."""
    page, _ = served
    url = httpx.URL(page.phone.url)
    careless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    with ExitStack() as held:
        silent = [held.enter_context(socket.create_connection((HERE, url.port), 5)) for _ in range(150)]
        for _ in range(30):
            slow = held.enter_context(careless.wrap_socket(socket.create_connection((HERE, url.port), 5)))
            slow.sendall(b"GET / HTTP/1.1\r\nHost: ")
        with device() as client, httpx.Client(trust_env=False) as computer:
            assert client.get(url, timeout=5).status_code == 303
            assert computer.get(page.url).status_code == 303
        still_open = 0
        for one in silent:
            one.settimeout(0.01)
            try:
                still_open += one.recv(1) != b""
            except TimeoutError:
                still_open += 1
            except OSError:
                pass
        assert still_open <= MOST_OF_ONE_ADDRESS
    with careless.wrap_socket(socket.create_connection((HERE, url.port), 5)) as endless:
        endless.sendall(b"GET / HTTP/1.1\r\nx: ")
        with pytest.raises(OSError, match=r"reset|pipe|EOF|closed"):
            endless.sendall(b"y" * 10_000_000)  # a head without end


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_a_link_expires_unused_and_cannot_be_guessed():
    clock, told = Clock(), []
    login = OneTimeLogin("right", lambda *what: told.append(what), clock)
    for _ in range(one_time_login.MOST_WRONG):
        assert login.attempt("wrong", "10.0.0.9") is LoginOutcome.WRONG
    assert login.attempt("right", "10.0.0.9") is LoginOutcome.TOO_MANY  # nobody learns which one it was
    assert told == [(LoginOutcome.WRONG, "10.0.0.9"), (LoginOutcome.TOO_MANY, "10.0.0.9")]
    clock.now += one_time_login.MINUTE
    assert login.attempt("wröng", "10.0.0.9") is LoginOutcome.WRONG
    clock.now = 1000 + one_time_login.VALID_SECONDS - 1
    late = OneTimeLogin("right", lambda *_: None, clock)
    assert login.attempt("right", "10.0.0.8") is LoginOutcome.LET_IN
    assert login.attempt("right", "10.0.0.8") is LoginOutcome.USED
    clock.now += one_time_login.VALID_SECONDS
    assert late.attempt("right", "10.0.0.8") is LoginOutcome.EXPIRED
    many = OneTimeLogin("right", lambda *what: told.append(what), clock)
    told.clear()
    for number in range(one_time_login.MOST_WRONG_IN_ALL):
        many.attempt("wrong", f"10.0.1.{number}")
    assert many.attempt("right", "10.0.0.8") is LoginOutcome.TOO_MANY
    assert len(told) == one_time_login.MOST_TOLD  # the terminal is not flooded


def test_guessing_and_lateness_get_a_page_that_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(one_time_login, "VALID_SECONDS", 0.0)
    with opened(tmp_path) as (page, _), device() as client:
        url = httpx.URL(page.phone.url)
        assert "<h1>This link is too old</h1>" in client.get(url).text
        guesses = [client.get(url.copy_set_param("token", str(number))) for number in range(11)]
        assert [guess.status_code for guess in guesses] == [403] * 10 + [429]
        assert "<h1>This is not the whole link</h1>" in guesses[0].text
        assert "<h1>Too many wrong links</h1>" in guesses[-1].text


def test_the_certificate_is_kept_and_made_anew_when_it_must_be(tmp_path, monkeypatch):
    made = phone_certificate(tmp_path, HERE)
    assert made.is_new
    assert made.path.stat().st_mode & 0o777 == 0o600
    assert re.fullmatch(r"([0-9A-F]{2}:){31}[0-9A-F]{2}", made.fingerprint)
    kept = phone_certificate(tmp_path, HERE)
    assert (kept.is_new, kept.fingerprint) == (False, made.fingerprint)
    found = {made.fingerprint}

    def anew(address=HERE):
        again = phone_certificate(tmp_path, address)
        assert again.is_new
        assert again.path.stat().st_mode & 0o777 == 0o600
        assert again.fingerprint not in found
        found.add(again.fingerprint)

    anew("192.168.1.20")
    made.path.chmod(0o644)  # others could read its key
    anew("192.168.1.20")
    made.path.write_text("damaged")
    anew()
    monkeypatch.setattr(certificate_parts, "CLOCK_TOLERANCE", timedelta(days=certificate_parts.DAYS_VALID))
    made.path.unlink()
    anew()  # it expires at once
    monkeypatch.undo()
    anew()


def test_the_fingerprint_is_what_the_phone_sees(served):
    page, _ = served
    port = httpx.URL(page.phone.url).port
    certificate = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((HERE, port)))
    assert page.phone.fingerprint == sha256(certificate).digest().hex(":").upper()


def test_which_address(tmp_path):
    assert address_towards((HERE, 9)) == HERE
    assert phone_address("192.168.1.20") == "192.168.1.20"
    for address in ("x", "::1", "0.0.0.0", "224.0.0.1", "192.168.1.20:80", ""):
        with pytest.raises(InputError, match="phone-address is"):
            phone_address(address)
    with pytest.raises(InputError, match="is for --phone"):
        phone_access(False, HERE, 0)
    source = open_samples(draw_pictures(tmp_path / "data", 1))

    def serve(address, port=0):
        with open_page(tmp_path, source, DIGITS, phone=PhoneAccess(address, port, tell_login)) as page:
            return page

    with pytest.raises(InputError, match=r"192\.0\.2\.7 is no address of this machine"):
        serve("192.0.2.7")
    with socket.create_server((HERE, 0)) as taken, pytest.raises(ServiceError, match="name another with --phone-port"):
        serve(HERE, taken.getsockname()[1])


def modules(lines):
    """The code's modules, read back from the characters: 1 is dark."""
    rows = []
    for line in lines:
        rows += [[int(letter not in "█▀") for letter in line], [int(letter not in "█▄") for letter in line]]
    return rows


def test_the_code_has_the_address_in_it():
    url = "https://192.168.100.200:65535/abcdefghijklmnop/?token=" + "x" * 43
    code = segno.make_qr(url, error="l")
    assert code.version <= 6  # 49 characters wide at most
    drawn = modules(qr_lines(url, colours=False))
    assert drawn[: len(drawn) - 1] == qr_matrix(url) == [list(map(int, row)) for row in code.matrix_iter(border=4)]
    assert not any(drawn[-1])
    assert all(
        line.startswith("\x1b[38;5;231;48;5;16m") and line.endswith("\x1b[0m") for line in qr_lines(url, colours=True)
    )


def test_the_command_shows_all_of_it_and_labels_are_made_by_touch(tmp_path):
    """A code, an address, a fingerprint and what it means; then a phone opens it, and a second one does not."""
    data, home = draw_pictures(tmp_path / "data", 3), tmp_path / "home"
    options = ["--data", data, "--home", home, "--no-browser", "--phone", "--phone-address", HERE, "--phone-port", 0]
    command = [sys.executable, "-m", "truthfl", "label", *map(str, options)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    with launched() as browser, subprocess.Popen(command, **pipes) as process:
        try:
            lines = []
            while not lines or not lines[-1].startswith("Ctrl+C stops it"):
                lines.append(process.stdout.readline().rstrip("\n"))
                assert process.poll() is None
            shown = "\n".join(lines)
            url = re.search(r"Or open this address there: (https://\S+)", shown)[1]
            assert modules([line for line in lines if line.startswith("████")])[:-1] == qr_matrix(url)
            certificate = phone_certificate(home, HERE)
            assert not certificate.is_new
            assert certificate.fingerprint == ":".join(re.findall(r"^    ([0-9A-F:]+)$", shown, re.M))
            said = (
                "within 10 minutes",
                "one device, once",
                "pictures and labels travel within your network",
                "nothing goes",
            )
            assert all(part in shown for part in said)
            context = browser.new_context(ignore_https_errors=True, **PHONE)
            phone = context.new_page()
            requested, trouble = [], []
            phone.on("request", lambda request: requested.append(request.url))
            phone.on("pageerror", lambda error: trouble.append(str(error)))
            phone.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
            phone.goto(url)
            for position in range(3):
                phone.wait_for_selector(f"body[data-at='{position}']")
                phone.tap(f"#classes button:nth-child({position + 4})")
            phone.wait_for_selector("#done:not([hidden])")
            phone.reload()
            phone.wait_for_selector("#done:not([hidden])")
            assert {address.split("/?")[0][: len(f"https://{HERE}:")] for address in requested} == {f"https://{HERE}:"}
            assert trouble == []
            other = browser.new_context(ignore_https_errors=True, **PHONE).new_page()
            assert other.goto(url).status == 403
            assert other.inner_text("h1") == "This link was used"
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
    assert labels_of(home / "labels.db", open_samples(data).ids, DIGITS).tolist() == [3, 4, 5]
    assert errors.splitlines() == [
        f"truthfl: {HERE} opened the page, and the code is used up. If that is not your phone, press Ctrl+C now.",
        f"truthfl: {HERE} opened the link after it was used, and was not let in.",
    ]
    assert process.returncode == 0
