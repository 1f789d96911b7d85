"""The fleet's own certificate authority, and certificates of its NATS servers. Keys and
certificates as PEM bytes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CA_DAYS: Final = 3650 * 2
_SERVER_DAYS: Final = 3650
_SKEW: Final = timedelta(days=1)
"""A device without a clock of its own may be a little behind."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, which is in no representation."""

    certificate: bytes
    key: bytes = field(repr=False)


def make_ca(name: str, now: datetime) -> Pair:
    """An authority for this fleet alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(f"{name} authority")
    builder = _builder(subject, subject, key.public_key(), now, _CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    return _pair(builder.sign(key, hashes.SHA256()), key)


def make_server(ca: Pair, hosts: Sequence[str], now: datetime) -> Pair:
    """A certificate for a server that is reached as `hosts`: names and addresses."""
    authority = x509.load_pem_x509_certificate(ca.certificate)
    signer = serialization.load_pem_private_key(ca.key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("the authority's key is of another kind than this program makes")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_named(hosts[0]), authority.subject, key.public_key(), now, _SERVER_DAYS)
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    builder = builder.add_extension(
        x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False
    )
    builder = builder.add_extension(_usage(signs=False), critical=True)
    uses = [
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    ]  # a route's caller is a client, too
    builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(issuer, critical=False)
    return _pair(builder.sign(signer, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), private)
