"""Certificates: who gets which, how they are renewed and revoked, and what is refused."""

import datetime
import os
import ssl
import stat

import pytest
from cryptography import x509

from psofed.common.errors import PsofedError
from psofed.federation.transport import certificates as module
from psofed.federation.transport.certificates import Certificates, Identity, check_private

pytestmark = pytest.mark.federation


@pytest.fixture
def certificates(tmp_path):
    return Certificates(tmp_path / "credentials")


def leaf(path):
    return x509.load_pem_x509_certificates(path.read_bytes())[0]


def serials(certificates):
    revoked = x509.load_pem_x509_crl(certificates.revocations.read_bytes())
    return {entry.serial_number for entry in revoked}


def test_each_name_has_one_file_that_only_its_owner_reads(certificates):
    made = certificates.make(["broker.example.org", "192.0.2.7"], ["pump-7", "sørpumpe"], {"hall": 50})
    assert made == ["broker", "server", "probe", "pump-7", "sørpumpe", "hall"]
    assert certificates.names() == {"pump-7", "sørpumpe", "hall"}
    assert [certificates.clients_allowed(name) for name in ("pump-7", "hall", "server", "nobody")] == [1, 50, 0, 0]
    assert stat.S_IMODE(certificates.folder.stat().st_mode) == 0o700
    for name in made:
        assert stat.S_IMODE(certificates.bundle(name).stat().st_mode) == 0o600
        identity = Identity(certificates.bundle(name))
        assert identity.name == name
        assert isinstance(identity.tls(), ssl.SSLContext)
    assert stat.S_IMODE(certificates.authority_key.stat().st_mode) == 0o600
    hosts = leaf(certificates.bundle("broker")).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["localhost", "broker.example.org"]
    assert leaf(certificates.bundle("hall")).public_key().curve.name == "secp256r1"


def test_certificates_satisfy_strict_verification(certificates):
    certificates.make([], ["a"])
    context = Identity(certificates.bundle("a")).tls()
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.bundle("broker"))
    server.load_verify_locations(certificates.authority)
    server.load_verify_locations(certificates.revocations)
    server.verify_mode = ssl.CERT_REQUIRED
    server.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF | ssl.VERIFY_X509_STRICT
    pipes = [ssl.MemoryBIO() for _ in range(2)]
    ends = [
        server.wrap_bio(pipes[0], pipes[1], server_side=True),
        context.wrap_bio(pipes[1], pipes[0], server_hostname="127.0.0.1"),
    ]
    for _ in range(3):
        for end in reversed(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert dict(item[0] for item in ends[0].getpeercert()["subject"]) == {"commonName": "a"}


def test_what_is_there_is_kept_and_what_ends_soon_is_made_again(certificates, monkeypatch):
    monkeypatch.setattr(module, "VALID_DAYS", 20)
    certificates.make([], ["a"])
    assert len(certificates.warnings(datetime.datetime.now(datetime.UTC))) == 4
    assert "the certificate of a ends on" in certificates.warnings(datetime.datetime.now(datetime.UTC))[0]
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=30)
    assert "the certificate of a ended on" in certificates.warnings(later)[0]
    monkeypatch.setattr(module, "VALID_DAYS", 365)
    node = certificates.bundle("a").read_bytes()
    assert certificates.make([], ["a", "b"]) == ["broker", "server", "probe", "b"]
    assert certificates.bundle("a").read_bytes() == node
    certificates.renew(["a"])
    assert certificates.warnings(later) == []
    assert certificates.bundle("a").read_bytes() != node
    assert certificates.make() == []
    assert certificates.make(["example.org"]) == ["broker"], "it must name all hosts"
    assert certificates.make(["localhost"]) == []
    certificates.bundle("a").unlink()  # moved to the node
    assert certificates.make([], ["a"]) == []


def test_a_clock_that_is_an_hour_slow_takes_all_that_was_just_made(certificates):
    certificates.make([], ["a"])
    certificates.revoke(["a"])
    slow = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    assert x509.load_pem_x509_crl(certificates.revocations.read_bytes()).last_update_utc < slow
    assert leaf(certificates.bundle("broker")).not_valid_before_utc < slow
    assert x509.load_pem_x509_certificate(certificates.authority.read_bytes()).not_valid_before_utc < slow


def test_a_revoked_name_is_refused_for_good_with_all_its_certificates(certificates):
    certificates.make([], ["a", "b"])
    assert serials(certificates) == set()
    first = leaf(certificates.bundle("a")).serial_number
    certificates.renew(["a"])
    second = leaf(certificates.bundle("a")).serial_number
    assert certificates.revoke(["a"])
    assert serials(certificates) == {first, second}
    assert certificates.names() == {"b"}
    assert certificates.revoked() == {"a"}
    assert certificates.clients_allowed("a") == 0
    assert not certificates.bundle("a").exists()
    assert certificates.revoke(["a"]), "twice is no mistake"
    assert Certificates(certificates.folder).records() == certificates.records()
    for change in (certificates.renew, lambda names: certificates.make([], names)):
        with pytest.raises(PsofedError, match="a is revoked; make a certificate with another name"):
            change(["a"])
    with pytest.raises(PsofedError, match="there is no certificate of 'c'; there are: b"):
        certificates.revoke(["c"])
    with pytest.raises(PsofedError, match="server is not a node; to replace its key: certs --renew server"):
        certificates.revoke(["server"])


@pytest.mark.parametrize(
    "name",
    ["", "a/b", "a+b", "#", "a b", ".hidden", "-x", "_x", "x" * 65, "ca", "server", "broker", "probe", "crl",
     "n\u043erth", "e\u0301t\u0435", "A\u030angstrom", "\ufb01n", "a\n", "ø" * 40],
)  # fmt: skip
def test_a_name_that_is_no_topic_or_looks_like_another_is_refused(certificates, name):
    with pytest.raises(PsofedError, match="--node must be up to 64 letters of one alphabet") as caught:
        certificates.make([], [name])
    assert "\n" not in str(caught.value)
    assert not certificates.folder.exists()


def test_other_mistakes_are_one_line(certificates):
    certificates.make([], ["a"], {"hall": 2})
    mistakes = [
        (lambda: certificates.make([], ["A"]), "A differs from a only in case"),
        (lambda: certificates.make([], ["B", "b"]), "B differs from b only in case"),
        (
            lambda: certificates.make([], ["hall"]),
            "hall has a certificate for 2 and not 1 clients; make one with another name",
        ),
        (lambda: certificates.make([], [], {"a": 5}), "a has a certificate for 1 and not 5 clients; make"),
        (lambda: certificates.make([], [], {"b": 0}), "--gateway must be .* between 1 and 10,000; got 0"),
        (lambda: certificates.make([], [], {"b": 10_001}), "--gateway must be"),
        (lambda: certificates.make(["bad host"]), "--host must be an IP address"),
        (lambda: certificates.renew(["x\n\x1b[2J"]), r"there is no certificate of 'x\[2J'"),
        (lambda: Identity(certificates.folder / "none.pem"), r"cannot read .*none\.pem: No such file"),
        (lambda: Identity(certificates.authority), "is not a file that `psofed federation certs` has made"),
        (lambda: Identity(certificates.bundle("a")).tls(certificates.authority_key), "cannot read certificates from"),
    ]
    for mistake, problem in mistakes:
        with pytest.raises(PsofedError, match=problem) as caught:
            mistake()
        assert "\n" not in str(caught.value)


def test_a_damaged_folder_is_named(certificates):
    certificates.make([], ["a"])
    certificates.check_server()
    table = certificates.table.read_text()
    for damaged, problem in (
        ("[]", "not written by psofed"),
        ('{"a": {}}', "not written by psofed"),
        (table.replace('"until": "', '"until": "?'), "not written by psofed"),
        (table[:-9], "is not JSON"),
    ):
        certificates.table.write_text(damaged)
        with pytest.raises(PsofedError, match=rf"certificates\.json:? {problem}"):
            certificates.names()
    certificates.table.write_text(table)
    key = certificates.authority_key.read_bytes()
    certificates.authority_key.write_bytes(Identity(certificates.bundle("a")).path.read_bytes())
    with pytest.raises(PsofedError, match="are not psofed's; restore them"):
        certificates.renew(["a"])
    certificates.authority_key.unlink()
    with pytest.raises(PsofedError, match=r"ca\.key is missing; bring it here"):
        certificates.renew(["a"])
    certificates.authority_key.write_bytes(key)
    certificates.bundle("probe").unlink()
    with pytest.raises(PsofedError, match=r"probe\.pem: no such file"):
        certificates.check_server()


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_to_is_refused(certificates, mode):
    certificates.folder.mkdir()
    certificates.folder.chmod(mode)
    with pytest.raises(
        PsofedError, match=r"other users could replace the keys in it; make it yours alone \(chmod 700\)"
    ):
        certificates.make()
    assert list(certificates.folder.iterdir()) == []


def test_a_folder_in_one_that_others_can_write_to_is_refused_unless_they_cannot_replace_it(tmp_path):
    folder = tmp_path / "open" / "credentials"
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o777)
    with pytest.raises(PsofedError, match="open: other users could replace"):
        check_private(folder)
    folder.parent.chmod(0o1777)
    check_private(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_foreign_folder_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "credentials"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    check_private(folder)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(PsofedError, match="other users could replace"):
        check_private(folder)


def test_only_the_servers_signature_counts(certificates, tmp_path):
    certificates.make([], ["a", "b"])
    other = Certificates(tmp_path / "other")
    other.make()
    a, b, server, stranger = (
        Identity(path) for path in (*map(certificates.bundle, ("a", "b", "server")), other.bundle("server"))
    )
    signed = server.sign(b"data")
    assert a.is_from_server(b"data", signed, server.certificate)
    assert not a.is_from_server(b"date", signed, server.certificate)
    assert not a.is_from_server(b"data", signed[:-1], server.certificate)
    assert not a.is_from_server(b"data", b.sign(b"data"), b.certificate)
    assert not a.is_from_server(b"data", stranger.sign(b"data"), stranger.certificate)
    assert not a.is_from_server(b"data", signed, b"")
    assert not a.is_from_server(b"data", signed, server.certificate[:-1])
