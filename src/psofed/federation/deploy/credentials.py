"""Who may take part: a certificate authority, the server's certificate, and a key pair for each node."""

import datetime
import ipaddress
import os
import re
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.files import write_atomically

VALID_DAYS = 365
WARN_DAYS = 30
"""Before the end of a certificate: `status` warns, and `certs` makes a new one for the server."""
_GATEWAY = b"gateway"  # behind the public key of a node that may have many clients
_NAME = re.compile(r"[^\W_][\w.-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")

_NEVER = dict.fromkeys(
    (
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "encipher_only",
        "decipher_only",
    ),
    False,
)  # uses of a key that nobody needs


class Credentials:
    """Files of one federation's credentials within `folder`.

    Attributes
    ----------
    authority : path
        The authority's certificate ``ca.pem``, which goes to every machine. Its key ``ca.key`` is needed only to renew
        the server's certificate and is best kept elsewhere.
    certificate, key : path
        The server's certificate and private key, which stay with the server.
    link_certificate, link_key : path
        The same of the SuperLink on loopback, its own authority; made whenever the server starts.
    secret : path
        Secret that the server's processes show to its SuperLink; made whenever the server starts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder: Path = folder
        self.authority: Path = folder / "ca.pem"
        self.certificate: Path = folder / "server.pem"
        self.key: Path = folder / "server.key"
        self.link_certificate: Path = folder / "superlink.pem"
        self.link_key: Path = folder / "superlink.key"
        self.secret: Path = folder / "superlink.secret"

    def make_link_certificate(self) -> None:
        """Make the SuperLink's certificate, so that no renewal of the server's concerns it."""
        key = ec.generate_private_key(ec.SECP384R1())
        certificate = _sign("psofed SuperLink", key, None, key, [_general_name("127.0.0.1")])
        write_atomically(self.link_key, _private_pem(key), mode=0o600)
        write_atomically(self.link_certificate, certificate.public_bytes(serialization.Encoding.PEM))

    def warning(self, now: datetime.datetime) -> str:
        """Return which certificate is damaged or expires within a month, and what to do; empty if none does."""
        renewals = {
            self.certificate: "`psofed federation certs` makes a new one, which a running server takes up by itself",
            self.authority: "new ones for all machines must be made in another folder",
        }
        for path, renewal in renewals.items():
            if path.exists():
                try:
                    ends = _read_certificate(path).not_valid_after_utc
                except PsofedError as error:  # a running server has read it before
                    return str(error)
                if ends < now + datetime.timedelta(days=WARN_DAYS):
                    word = "ended" if ends < now else "ends"
                    return f"{path} {word} on {ends.date().isoformat()}: {renewal}"
        return ""

    def make_secret(self) -> str:
        """Make a new secret, readable by its owner only, and return it."""
        value = secrets.token_hex(32)
        write_atomically(self.secret, value.encode(), mode=0o600)
        return value

    def read_secret(self) -> str:
        """Return the secret of the server that was started last; empty if no server was started."""
        try:
            return self.secret.read_text()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise PsofedError(
                f"cannot read {self.secret}: {error.strerror}; use the account that runs the server"
            ) from None

    def node_key(self, name: str) -> Path:
        """Return the private key of the node `name`, which goes to that node; the server registers its public half."""
        return self.folder / f"{name}.key"

    def public_keys(self) -> list[Path]:
        """Return the public keys of all nodes."""
        return sorted(self.folder.glob("*.pub"))

    def public_key(self, name: str) -> Path:
        """Return the public key of the node `name`; a PsofedError if there is no such node."""
        path = self.folder / f"{name}.pub"
        if not path.is_file():
            names = ", ".join(entry.stem for entry in self.public_keys())
            raise PsofedError(
                f"there is no node {name}; {f'the nodes are {names}' if names else 'there are no nodes'}"
            )
        return path

    def is_gateway(self, name: str) -> bool:
        """Whether the node `name` may have many clients: then its public key ends with a word that says so."""
        try:
            return self.public_key(name).read_bytes().split()[2:] == [_GATEWAY]
        except (OSError, PsofedError):
            return False

    def make_gateway(self, name: str) -> None:
        """Let the node `name`, which has a key, have many clients."""
        path = self.public_key(name)
        if not self.is_gateway(name):
            write_atomically(path, b" ".join([*path.read_bytes().split()[:2], _GATEWAY]) + b"\n")

    def revoke(self, name: str) -> None:
        """Revoke the access of the node `name`; its keys are kept in the folder ``revoked``."""
        path, aside = self.public_key(name), self.folder / "revoked"
        aside.mkdir(exist_ok=True, mode=0o700)
        if self.node_key(name).exists():  # or `certs` would find it, and make no new pair
            self.node_key(name).replace(aside / f"{name}.key")
        path.replace(aside / path.name)

    def check_server(self) -> None:
        """Raise a clear error if the server's files are missing."""
        check_made(self.authority, self.certificate, self.key, maker=f"certs --home {self.folder.parent}")


def check_made(*files: Path, maker: str = "certs") -> None:
    """Raise a PsofedError if one of these files is missing."""
    for path in files:
        if not path.is_file():
            raise PsofedError(
                f"{path}: no such file; `psofed federation {maker}` makes it on the server's machine"
            )


def check_private(*folders: Path) -> None:
    """Raise a PsofedError if another user of this machine could put keys into one of `folders`, or has made it.

    Keys and certificates that are there are used, so whoever can write there decides who takes part. Root, who may work
    in a folder of any user, is refused only one that everybody can write to.
    """
    for folder in folders:
        if os.name != "posix" or not folder.exists():
            continue
        found = folder.stat()
        is_foreign = os.geteuid() != 0 and found.st_uid not in (0, os.geteuid())
        is_open = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
        if is_foreign or is_open:
            raise PsofedError(
                f"{folder}: other users of this machine could replace the keys in it; choose another --home, or make "
                "the folder yours alone (chmod 700)"
            )


def make_credentials(
    folder: Path, hosts: Iterable[str], nodes: Iterable[str], gateways: Iterable[str] = ()
) -> Credentials:
    """Make what is missing in `folder`: authority, server certificate for `hosts`, and keys for `nodes` and `gateways`.

    Private keys are readable by their owner only. Nothing that exists is replaced, but for the server's
    certificate, which is replaced if it ends within a month or does not name all of `hosts`; the new one also names the
    earlier hosts. A node whose public key is here has a key, also if the private half was moved to it; `gateways` makes
    it a gateway's.
    """
    credentials = Credentials(folder)
    gateways = [_check_name(name, "--gateway") for name in gateways]
    nodes = [*(_check_name(name, "--node") for name in nodes), *gateways]
    wanted = [_general_name(host) for host in ("127.0.0.1", "localhost", *hosts)]
    check_private(folder.parent, folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found, fresh = _hosts_of(credentials.certificate)
    if not fresh or not set(wanted) <= set(found):
        _make_server_certificate(credentials, list(dict.fromkeys([*found, *wanted])))
    for name in nodes:
        if not credentials.node_key(name).with_suffix(".pub").exists():
            make_node_key(credentials.node_key(name))
    for name in gateways:
        credentials.make_gateway(name)
    return credentials


def make_node_key(path: Path) -> Path:
    """Make a node's key pair (NIST P-384, as OpenSSH writes them) and return the public half's path."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    public_path = path.with_suffix(".pub")
    write_atomically(path, private, mode=0o600)
    write_atomically(public_path, public + b"\n")
    return public_path


def _check_name(name: str, flag: str) -> str:
    """Return a node's name if it can be the name of a file, and printed."""
    if not _NAME.fullmatch(name) or name in ("ca", "server", "superlink"):
        raise InvalidValueError(
            flag,
            name,
            "up to 64 letters, digits, '-', '_' and '.', a letter or digit first; not ca, server or superlink",
        )
    return name


def _make_server_certificate(credentials: Credentials, names: list[x509.GeneralName]) -> None:
    authority_key_path = credentials.folder / "ca.key"
    if credentials.authority.exists() != authority_key_path.exists():
        raise PsofedError(
            f"{credentials.folder} holds only one of ca.pem and ca.key; a new certificate needs both"
        )
    if credentials.authority.exists():
        authority = _read_certificate(credentials.authority)
        try:
            loaded = serialization.load_pem_private_key(authority_key_path.read_bytes(), None)
        except (ValueError, TypeError):  # a TypeError asks for the password of an encrypted key
            loaded = None
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise PsofedError(f"{authority_key_path} is not a key made by psofed; restore it")
        authority_key = loaded
    else:
        authority_key = ec.generate_private_key(ec.SECP384R1())
        authority = _sign("psofed federation CA", authority_key, None, authority_key, [])
        write_atomically(authority_key_path, _private_pem(authority_key), mode=0o600)
        write_atomically(credentials.authority, authority.public_bytes(serialization.Encoding.PEM))
    key = ec.generate_private_key(ec.SECP384R1())
    certificate = _sign("psofed federation server", key, authority, authority_key, names)
    write_atomically(credentials.key, _private_pem(key), mode=0o600)
    write_atomically(credentials.certificate, certificate.public_bytes(serialization.Encoding.PEM))


def _sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    hosts: list[x509.GeneralName],
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS * (10 if issuer is None else 1)))
    )
    is_authority = issuer is None
    usage = x509.KeyUsage(
        digital_signature=bool(hosts), key_cert_sign=is_authority, crl_sign=is_authority, **_NEVER
    )
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), False),
        (usage, True),
    ]
    if hosts:
        extensions.append((x509.SubjectAlternativeName(hosts), False))
        extensions.append((x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False))
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(issuer_key, hashes.SHA384())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not _HOST.fullmatch(host):
            raise InvalidValueError(
                "--host", host, "an IP address, or a name of ASCII letters, digits, '-' and '.'"
            ) from None
        return x509.DNSName(host)


def _hosts_of(path: Path) -> tuple[list[x509.GeneralName], bool]:
    """Return whom the certificate names, and whether it is there and will be valid for another month."""
    if not path.exists():
        return [], False
    certificate = _read_certificate(path)
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=WARN_DAYS)
    fresh = certificate.not_valid_after_utc > soon
    return list(found), fresh


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise PsofedError(
            f"{path} is not a certificate; restore it, or move it away and run: psofed federation certs"
        ) from None


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
