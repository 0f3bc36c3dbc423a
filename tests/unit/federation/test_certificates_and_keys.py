"""Certificates that TLS libraries accept, and sentences for those that they would not; the command that makes them."""

import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from truthfl import certificates as certificate_parts
from truthfl.certificates import certificates_in, hosts_in, make_certificates, read_certificates, read_root, valid_until
from truthfl.cli.keys import keys
from truthfl.errors import InputError
from truthfl.ledger.signing import public_line, read_key, read_public_line

LOCAL = ["localhost", "127.0.0.1", "::1"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    make_certificates(folder, ["FL.example.org", "10.0.0.5", "localhost"])
    return folder


def _handshake(folder, name, root):
    """What a client who knows this root learns from a server with these files."""
    files = certificates_in(folder)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(files.server, files.server_key)
    asking = ssl.create_default_context(cafile=root)
    asking.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()

    def serve():
        try:
            with serving.wrap_socket(theirs, server_side=True) as wrapped:
                wrapped.recv(1)
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with ours, asking.wrap_socket(ours, server_hostname=name) as wrapped:
            return wrapped.version()
    finally:
        thread.join()


@pytest.mark.parametrize("name", ["fl.example.org", "10.0.0.5", "localhost", "127.0.0.1", "::1"])
def test_a_strict_client_accepts_them(made, name):
    assert _handshake(made, name, made / "ca.crt") == "TLSv1.3"


def test_a_client_refuses_another_host_and_another_authority(made, tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _handshake(made, "fl.example.com", made / "ca.crt")
    make_certificates(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(made, "localhost", tmp_path / "ca.crt")


def test_what_is_read_is_what_was_made(made):
    files = read_certificates(made, "fl.example.org")
    assert files == certificates_in(made)
    assert read_certificates(made, "0.0.0.0") == files
    assert read_root(files.root) == files.root
    assert hosts_in(files.server) == ["fl.example.org", "10.0.0.5", *LOCAL]
    assert files.server_key.stat().st_mode & 0o777 == 0o600
    assert timedelta(days=800) < valid_until(files.server) - datetime.now(UTC) < timedelta(days=826)


def test_sentences_for_what_cannot_be_used(made, tmp_path, monkeypatch):
    with pytest.raises(
        InputError, match=r"is for fl.example.org, .*, not for 10.0.0.6; truthfl keys server --host 10.0.0.6"
    ):
        read_certificates(made, "10.0.0.6")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_certificates(tmp_path / "nowhere", "localhost")
    make_certificates(tmp_path / "other")
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for name, source in (("ca.crt", tmp_path / "other"), ("server.crt", made), ("server.key", made)):
        (mixed / name).write_bytes((source / name).read_bytes())
    with pytest.raises(InputError, match="was not signed by"):
        read_certificates(mixed, "localhost")
    (mixed / "ca.crt").write_bytes((made / "ca.crt").read_bytes())
    (mixed / "server.key").write_bytes((tmp_path / "other" / "server.key").read_bytes())
    with pytest.raises(InputError, match="is not the key of"):
        read_certificates(mixed, "localhost")
    (mixed / "server.key").write_text("nothing")
    with pytest.raises(InputError, match="is no private key"):
        read_certificates(mixed, "localhost")
    (mixed / "ca.crt").write_text("nothing")
    with pytest.raises(InputError, match="is no certificate"):
        read_root(mixed / "ca.crt")
    for name, begun, said in (
        ("past", timedelta(days=900), "was valid until"),
        ("future", -timedelta(days=2), "clock"),
    ):
        monkeypatch.setattr(certificate_parts, "CLOCK_TOLERANCE", begun)
        make_certificates(tmp_path / name)
        with pytest.raises(InputError, match=said):
            read_certificates(tmp_path / name, "localhost")
        with pytest.raises(InputError, match=said):
            read_root(tmp_path / name / "ca.crt")


@pytest.mark.parametrize("host", ["", "a b", "http://x", "-x", "x:80", "1.2.3.4.5", "x" * 300, "0.0.0.0", "ü.org"])
def test_what_is_no_host(tmp_path, host):
    with pytest.raises(InputError):
        make_certificates(tmp_path, [host])
    assert not list(tmp_path.iterdir())


def test_keys_for_a_participant(tmp_path):
    done = CliRunner().invoke(keys, ["participant", "Ada", "--out", str(tmp_path)])
    assert (done.exit_code, "Ada.pub" in done.output) == (0, True)
    assert public_line(read_key(tmp_path / "Ada")) == read_public_line(tmp_path / "Ada.pub")
    assert (tmp_path / "Ada").stat().st_mode & 0o777 == 0o600
    (tmp_path / "Ada").unlink()
    for name, said in (("Ada", "exists already"), ("../Ada", "no name for a key"), (".x", "no name for a key")):
        again = CliRunner().invoke(keys, ["participant", name, "--out", str(tmp_path)])
        assert said in str(again.exception)


def test_keys_for_a_server(tmp_path):
    done = CliRunner().invoke(keys, ["server", "--host", "fl.example.org", "--out", str(tmp_path / "keys")])
    assert (done.exit_code, "fl.example.org, localhost" in done.output) == (0, True)
    names = {path.name for path in (tmp_path / "keys").iterdir()}
    assert names == {".gitignore", "operator", "operator.pub", "ca.crt", "server.crt", "server.key"}
    read_certificates(tmp_path / "keys", "fl.example.org")
    before = (tmp_path / "keys" / "ca.crt").read_bytes()
    (tmp_path / "keys" / "server.key").unlink()
    again = CliRunner().invoke(keys, ["server", "--out", str(tmp_path / "keys")])
    assert "exists already" in str(again.exception)
    assert (tmp_path / "keys" / "ca.crt").read_bytes() == before
    assert not (tmp_path / "keys" / "server.key").exists()


def test_help_has_an_example():
    for command in ("participant", "server"):
        assert f"truthfl keys {command}" in CliRunner().invoke(keys, [command, "--help"]).output
