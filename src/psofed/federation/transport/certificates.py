"""Who may take part: a certificate authority, and one file for each server, broker and node that it vouches for.

The folder of the credentials holds

======================  ==============================================================================================
``ca.pem``, ``ca.key``  the authority. Its key makes, renews and revokes certificates and is best kept elsewhere.
``broker.pem``          the broker's private key and certificate, which names its hosts
``server.pem``          the server's, by which it connects to the broker and signs instructions
``probe.pem``           those of nobody: the server tries with them whether the broker keeps nodes apart
``NAME.pem``            a node's. This one file goes to the node; nothing else needs it here.
``crl.pem``             the certificates that a broker must refuse
``certificates.json``   a :class:`Record` for each name: the authority's memory
======================  ==============================================================================================

Each ``.pem`` holds a private key (P-256), its certificate and the authority's certificate. The certificate's common
name is the node's identity and the broker's user name. A revoked name is never given again.
"""

import contextlib
import datetime
import ipaddress
import os
import re
import ssl
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.files import only_one, read_json, reason_of, write_atomically, write_json
from psofed.federation.protocol.names import MAX_CLIENTS, clean_text, is_client_name

VALID_DAYS = 365
WARN_DAYS = 30
"""Before a certificate ends: :meth:`Certificates.warnings` names it, and :meth:`Certificates.make` renews our own."""

BROKER, SERVER, PROBE = "broker", "server", "probe"
_OWN = (BROKER, SERVER, PROBE)
_RESERVED = (*_OWN, "ca", "crl")
_NAME = re.compile(r"[^\W_][\w.-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_AUTHORITY_DAYS = 10 * VALID_DAYS
_SLACK = datetime.timedelta(hours=2)  # clocks may differ, and may be set back
_ECDSA = ec.ECDSA(hashes.SHA256())
_Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class Record:
    """Entry of the authority about a name.

    Attributes
    ----------
    until : datetime
        When the newest certificate ends.
    serials : tuple of str
        Serial numbers of all its certificates, hexadecimal.
    clients : int
        How many clients it may have: 1 unless it is a gateway.
    hosts : tuple of str
        What the broker's certificate names.
    revoked : bool
        Whether it is refused for good.
    """

    until: datetime.datetime
    serials: tuple[str, ...] = ()
    clients: int = 1
    hosts: tuple[str, ...] = ()
    revoked: bool = False

    @classmethod
    def from_mapping(cls, table: Mapping[str, Any]) -> "Record":
        """Read what the table of records holds, or raise ValueError, TypeError or KeyError."""
        until, lists = datetime.datetime.fromisoformat(table["until"]), ("serials", "hosts")
        _ = [int(serial, 16) for serial in table["serials"]]
        return cls(**{**table, "until": until, **{name: tuple(table[name]) for name in lists}})


class Certificates:
    """The credentials of one federation within `folder`, of which only its owner may be able to write."""

    def __init__(self, folder: Path) -> None:
        self.folder: Path = folder
        self.authority: Path = folder / "ca.pem"
        self.authority_key: Path = folder / "ca.key"
        self.revocations: Path = folder / "crl.pem"
        self.table: Path = folder / "certificates.json"
        self._read: tuple[tuple[int, int], dict[str, Record]] = ((0, 0), {})
        self._nodes: frozenset[str] = frozenset()

    def bundle(self, name: str) -> Path:
        """Return the file with a name's key and certificate."""
        return self.folder / f"{name}.pem"

    def records(self) -> Mapping[str, Record]:
        """Return what is known, by name; the file is read again only if it has changed."""
        if not self.table.exists():
            return {}
        status = self.table.stat()
        state = status.st_mtime_ns, status.st_ino
        if state != self._read[0]:
            table = read_json(self.table)
            try:
                self._read = state, {name: Record.from_mapping(about) for name, about in table.items()}
            except (AttributeError, KeyError, TypeError, ValueError):
                raise PsofedError(f"{self.table}: not written by psofed; restore the file") from None
            known = self._read[1].items()
            self._nodes = frozenset(name for name, one in known if not one.revoked and name not in _RESERVED)
        return self._read[1]

    def names(self) -> frozenset[str]:
        """Return the nodes that may take part."""
        return self._nodes if self.records() else frozenset()

    def revoked(self) -> frozenset[str]:
        """Return the revoked names."""
        return frozenset(name for name, record in self.records().items() if record.revoked)

    def clients_allowed(self, name: str) -> int:
        """Return how many clients a node may have; none if it may not take part."""
        return self.records()[name].clients if name in self.names() else 0

    def warnings(self, now: datetime.datetime) -> list[str]:
        """Return a line for each certificate that has ended or ends within a month."""
        soon = now + datetime.timedelta(days=WARN_DAYS)
        return [
            f"the certificate of {name} {'ended' if record.until < now else 'ends'} on {record.until.date()}: "
            f"psofed federation certs --renew {name}"
            for name, record in sorted(self.records().items())
            if record.until < soon and not record.revoked
        ]

    def check_server(self) -> None:
        """Raise a PsofedError if the server's files are missing or others could replace them."""
        check_private(self.folder)
        for path in (self.authority, self.revocations, *map(self.bundle, _OWN)):
            if not path.is_file():
                maker = f"psofed federation certs --home {self.folder.parent}"
                raise PsofedError(f"{path}: no such file; `{maker}` makes it")

    def make(
        self, hosts: Iterable[str] = (), nodes: Iterable[str] = (), gateways: Mapping[str, int] | None = None
    ) -> list[str]:
        """Make what is missing: the authority, our own certificates, and one for each node and gateway.

        Our own are made again if they end within a month, and the broker's if it does not name all of `hosts`. A node
        that has a certificate keeps it. `gateways` gives the number of clients for each. Returns the names that have a
        new file.
        """
        wanted = {**dict.fromkeys(nodes, 1), **(gateways or {})}
        hosts = ("127.0.0.1", "localhost", *hosts)
        for name, number in wanted.items():
            check_name(name, "--node" if number == 1 else "--gateway")
            if not 1 <= number <= MAX_CLIENTS:
                raise InvalidValueError("--gateway", number, f"clients between 1 and {MAX_CLIENTS:,}")
        for host in hosts:
            _general_name(host)
        with self._changing():
            records = self.records()
            for name, number in wanted.items():
                self._check_new(name, {*records, *wanted}, number)
            soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=WARN_DAYS)
            new: dict[str, Record] = {}
            for name in _OWN:
                record = records.get(name, Record(soon))
                all_hosts = tuple(dict.fromkeys((*record.hosts, *hosts))) if name == BROKER else ()
                if all_hosts != record.hosts or not self.bundle(name).exists() or record.until <= soon:
                    new[name] = replace(record, hosts=all_hosts)
            new |= {name: Record(soon, clients=n) for name, n in wanted.items() if name not in records}
            self._issue(new)
            if not self.revocations.exists():
                self._write_revocations()
        return list(new)

    def renew(self, names: Iterable[str]) -> list[str]:
        """Make a new key and certificate for each of `names`; the earlier ones remain valid until they end.

        ``all`` stands for broker, server and all nodes. Returns the names.
        """
        everybody = (BROKER, SERVER, *sorted(self.names()))
        renewed = dict.fromkeys(n for name in names for n in (everybody if name == "all" else (name,)))
        with self._changing():
            self._issue({name: self._record(name) for name in renewed})
        return list(renewed)

    def revoke(self, names: Iterable[str]) -> bool:
        """Refuse `names` for good; False if ``ca.key`` is not here, so that only server and access list know.

        With the key, the broker's list is written, too.
        """
        with self._changing():
            records = {name: replace(self._record(name, revoked=True), revoked=True) for name in names}
            for name in records:
                if name in _RESERVED:
                    raise PsofedError(f"{name} is not a node; to replace its key: certs --renew {name}")
            self._write(records)
            if not self.authority_key.exists():
                return False
            self._write_revocations()
            for name in records:
                self.bundle(name).unlink(missing_ok=True)
        return True

    def _record(self, name: str, revoked: bool = False) -> Record:
        record = self.records().get(name)
        if record is None:
            names = ", ".join(sorted(self.names())[:10])
            raise PsofedError(f"there is no certificate of {clean_text(name)!r}; there are: {names or 'none'}")
        if record.revoked and not revoked:
            raise PsofedError(f"{name} is revoked; make a certificate with another name")
        return record

    def _check_new(self, name: str, names: Collection[str], clients: int) -> None:
        if name in self.records() and (before := self._record(name).clients) != clients:
            problem = f"{name} has a certificate for {before:,} and not {clients:,} clients"
            raise PsofedError(f"{problem}; make one with another name")
        for other in names:
            if other != name and other.casefold() == name.casefold():
                raise PsofedError(f"{name} differs from {other} only in case; choose another name")

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        check_private(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with only_one(self.folder / ".lock", f"another process is changing {self.folder}; try again"):
            yield

    def _load_authority(self) -> tuple[x509.Certificate, _Key]:
        if not self.authority.exists() and not self.authority_key.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            certificate = _sign(_subject("psofed federation CA"), key, None, key)
            write_atomically(self.authority_key, _private_pem(key), mode=0o600)
            write_atomically(self.authority, _pem(certificate), mode=0o644)
            return certificate, key
        try:
            key, (certificate,) = _load_pair(self.authority_key.read_bytes(), self.authority.read_bytes())
        except FileNotFoundError as error:
            problem = f"{error.filename} is missing; bring it here to make, renew or revoke certificates"
            raise PsofedError(problem) from None
        except ValueError:
            problem = f"{self.authority} and {self.authority_key} are not psofed's; restore them"
            raise PsofedError(problem) from None
        return certificate, key

    def _issue(self, records: Mapping[str, Record]) -> None:
        """Make a certificate for each name; a file is complete before the table says that there is one."""
        if not records:
            return
        authority, authority_key = self._load_authority()
        issued = {}
        for name, record in records.items():
            key = ec.generate_private_key(ec.SECP256R1())
            made = _sign(_subject(name), key, authority, authority_key, record.hosts)
            write_atomically(self.bundle(name), _private_pem(key) + _pem(made) + _pem(authority))
            serials = (*record.serials, f"{made.serial_number:x}")
            issued[name] = replace(record, until=made.not_valid_after_utc, serials=serials)
        self._write(issued)

    def _write(self, changed: Mapping[str, Record]) -> None:
        """Replace some of the records."""
        records = {**self.records(), **changed}
        write_json(self.table, {name: {**asdict(r), "until": r.until.isoformat()} for name, r in records.items()})

    def _write_revocations(self) -> None:
        """Write the broker's list, valid as long as the authority: a list that has ended would refuse everybody."""
        authority, key = self._load_authority()
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(authority.subject).last_update(now - _SLACK)
        builder = builder.next_update(authority.not_valid_after_utc)
        builder = builder.add_extension(_key_identifier(key), critical=False)
        builder = builder.add_extension(x509.CRLNumber(int(now.timestamp())), critical=False)
        for serial in (s for record in self.records().values() if record.revoked for s in record.serials):
            entry = x509.RevokedCertificateBuilder().serial_number(int(serial, 16)).revocation_date(now)
            builder = builder.add_revoked_certificate(entry.build())
        signed = builder.sign(key, hashes.SHA256())
        write_atomically(self.revocations, signed.public_bytes(serialization.Encoding.PEM), mode=0o644)


class Identity:
    """A key and certificate from a file that :class:`Certificates` has made.

    Attributes
    ----------
    name : str
        The certificate's common name.
    certificate : bytes
        The certificate (DER), by which others recognise signatures.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            data = path.read_bytes()
            self._key, (certificate, self._authority) = _load_pair(data, data)
        except OSError as error:
            problem = f"cannot read {path}: {reason_of(error)}; `psofed federation certs` makes it"
            raise PsofedError(problem) from None
        except ValueError:
            problem = f"{path} is not a file that `psofed federation certs` has made; copy it again"
            raise PsofedError(problem) from None
        self._issued: dict[bytes, ec.EllipticCurvePublicKey] = {}
        self.name: str = _common_name(certificate)
        self.certificate: bytes = certificate.public_bytes(serialization.Encoding.DER)

    def tls(self, authority: Path | None = None) -> ssl.SSLContext:
        """Return the TLS settings of a connection; `authority` vouches for the broker if it is not our own."""
        data = None if authority else _pem(self._authority).decode()
        try:
            context = ssl.create_default_context(cadata=data, cafile=authority)
            context.load_cert_chain(self.path)
        except OSError as error:  # also an SSLError
            source = authority or self.path
            raise PsofedError(f"cannot read certificates from {source}: {reason_of(error)}") from None
        return context

    def sign(self, data: bytes) -> bytes:
        """Return a signature of `data`."""
        return self._key.sign(data, _ECDSA)

    def is_from_server(self, data: bytes, signature: bytes, certificate: bytes) -> bool:
        """Whether our own authority has given `certificate` to the server, whose key has signed `data`."""
        try:
            if certificate not in self._issued:
                loaded = x509.load_der_x509_certificate(certificate)
                loaded.verify_directly_issued_by(self._authority)
                key = loaded.public_key()
                if _common_name(loaded) != SERVER or not isinstance(key, ec.EllipticCurvePublicKey):
                    return False
                self._issued = {certificate: key}
            self._issued[certificate].verify(signature, data, _ECDSA)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True


def check_private(folder: Path) -> None:
    """Raise a PsofedError if other users of this machine could put files into `folder`, or have made it.

    Keys and certificates that are there are used, so whoever can write there decides who takes part. Root may work in
    a folder of any user.
    """
    if os.name != "posix" or not folder.exists():
        return
    for place, writers in ((folder, stat.S_IWOTH | stat.S_IWGRP), (folder.absolute().parent, stat.S_IWOTH)):
        status = place.stat()
        is_foreign = os.geteuid() != 0 and status.st_uid not in (0, os.geteuid())
        is_sticky = place != folder and status.st_mode & stat.S_ISVTX  # others cannot replace our folder
        if is_foreign or (status.st_mode & writers and not is_sticky):
            problem = "other users could replace the keys in it; make it yours alone (chmod 700)"
            raise PsofedError(f"{place}: {problem}")


def check_name(name: str, flag: str = "--node") -> str:
    """Return a node's name if it can be a file's name and a topic's level, and is not confusable with another."""
    if not _NAME.fullmatch(name) or not is_client_name(name) or name in _RESERVED or len(name.encode()) > 64:
        allowed = (
            "up to 64 letters of one alphabet, digits, '-', '_' and '.', a letter or digit first, no combining marks; "
            f"not {', '.join(_RESERVED)}"
        )
        raise InvalidValueError(flag, name, allowed)
    return name


def _load_pair(key_data: bytes, data: bytes) -> tuple[_Key, list[x509.Certificate]]:
    """Return a private key and certificates, the first of which is the key's, or raise ValueError."""
    try:
        key, certificates = (serialization.load_pem_private_key(key_data, None), x509.load_pem_x509_certificates(data))
    except TypeError:
        raise ValueError("the key is encrypted") from None
    if not isinstance(key, _Key) or certificates[0].public_key() != key.public_key():
        raise ValueError("the certificate has another key")
    return key, certificates


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _sign(
    subject: x509.Name, key: _Key, issuer: x509.Certificate | None, issuer_key: _Key, hosts: Collection[str] = ()
) -> x509.Certificate:
    """Return a certificate from `issuer`; without one it is an authority, signed by itself."""
    now, is_authority = datetime.datetime.now(datetime.UTC), issuer is None
    ends = now + datetime.timedelta(days=_AUTHORITY_DAYS if is_authority else VALID_DAYS)
    # Signatures; of certificates and revocations, if it is the authority.
    usage = (not is_authority, False, False, False, False, is_authority, is_authority, False, False)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(ends if issuer is None else min(ends, issuer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_key_identifier(issuer_key), critical=False)
        .add_extension(x509.KeyUsage(*usage), critical=True)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    if not is_authority:
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _key_identifier(issuer: _Key) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not _HOST.fullmatch(host):
            allowed = "an IP address, or a name of ASCII letters, digits, '-' and '.'"
            raise InvalidValueError("--host", host, allowed) from None
        return x509.DNSName(host)


def _common_name(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_pem(key: _Key) -> bytes:
    encoding, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, kind, serialization.NoEncryption())
