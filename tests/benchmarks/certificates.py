"""A certificate authority for one run, and the server's certificate by it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["make_certificates"]

_SYSTEM = Path("/etc/ssl/certs/ca-certificates.crt")


def make_certificates(directory: Path, names: Sequence[str]) -> None:
    """Write ``server.pem`` (key and certificate), ``ca.pem``, and ``bundle.pem`` with the system's.

    The authority is one of its own: there are TLS libraries that refuse one as a server.
    """
    key, name = ec.generate_private_key(ec.SECP256R1()), _name("Benchmark authority")
    authority = _certificate(name, name, key.public_key(), authority=True).sign(
        key, hashes.SHA256()
    )
    server_key = ec.generate_private_key(ec.SECP256R1())
    alternatives = x509.SubjectAlternativeName([x509.DNSName(one) for one in names])
    server = (
        _certificate(_name(names[0]), name, server_key.public_key(), authority=False)
        .add_extension(alternatives, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = server_key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    trusted = authority.public_bytes(pem)
    (directory / "server.pem").write_bytes(private + server.public_bytes(pem))
    (directory / "ca.pem").write_bytes(trusted)
    (directory / "bundle.pem").write_bytes(_SYSTEM.read_bytes() + trusted)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, authority: bool
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
