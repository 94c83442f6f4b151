"""Files of certificates and keys: each problem names the file, the key of the configuration and what to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.transports.tls_contexts import UnusableTLS, build
from holdfast.transports.tls_files import KeyPair, TLSSettings
from tests.certificates import Authority, Issued


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.authority = Authority()
        self.issued = self.authority.issue("a.example", ["a.example", "*.b.example"])
        self.certificate, self.key = self.issued.write(path, "server")
        self.other: Issued = self.authority.issue("other")
        (path / "ca.pem").write_bytes(self.authority.chain)
        (path / "password").write_text("secret\n")

    def problems(self, **changes: object) -> list[tuple[str, str]]:
        pair = KeyPair("", self.certificate, self.key, changes.pop("password_file", None))  # type: ignore[arg-type]
        with pytest.raises(UnusableTLS) as caught:
            build(TLSSettings(pairs=(pair,), **changes), time.time())  # type: ignore[arg-type]
        return [(problem.option, problem.message) for problem in caught.value.problems]

    def warnings(self, **changes: object) -> list[tuple[str, str]]:
        pair = KeyPair("", self.certificate, self.key, changes.pop("password_file", None))  # type: ignore[arg-type]
        contexts = build(TLSSettings(pairs=(pair,), **changes), time.time())  # type: ignore[arg-type]
        return [(warning.option, warning.message) for warning in contexts.warnings]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.parametrize(
    ("spoil", "option", "told"),
    [
        (lambda f: f.certificate.unlink(), "certificate", "there is no file"),
        (lambda f: f.certificate.write_bytes(b"\x30\x82\x01"), "certificate", "DER form"),
        (lambda f: f.certificate.write_text("-----BEGIN CERTIFICATE-----\nx\n"), "certificate", "cannot be read"),
        (lambda f: f.certificate.write_bytes(bytes(5 << 20)), "certificate", "more than 4 MB"),
        (lambda f: f.key.unlink(), "key", "there is no file"),
        (lambda f: f.key.write_text("x"), "key", "no private key in PEM form"),
        (lambda f: f.key.write_bytes(f.issued.key_pem()[:80] + b"PRIVATE KEY-----"), "key", "cannot be read"),
        (lambda f: f.key.write_bytes(f.other.key_pem()), "key", "is not the key of the first certificate"),
        (lambda f: f.key.write_bytes(f.issued.key_pem(b"secret")), "key", "is encrypted; set key_password_file"),
        (lambda f: (f.key.unlink(), f.key.mkdir()), "key", "cannot be read: Is a directory"),
    ],
)
def test_a_spoiled_file_is_told(folder: Folder, spoil: Callable[[Folder], object], option: str, told: str) -> None:
    spoil(folder)
    ((found, message),) = folder.problems()
    assert found == option
    assert told in message
    assert str(folder.path) in message


def test_all_problems_are_told_at_once(folder: Folder) -> None:
    folder.key.unlink()
    options = folder.problems(client_ca=folder.path / "none.pem", crl=folder.path / "ca.pem")
    assert [option for option, _ in options] == ["key", "client_ca", "crl"]
    assert "no revocation list in PEM form" in options[2][1]


def test_an_encrypted_key_is_used_with_its_password(folder: Folder) -> None:
    folder.key.write_bytes(folder.issued.key_pem(b"secret"))
    assert folder.warnings(password_file=folder.path / "password") == []
    (folder.path / "password").write_text("wrong")
    assert "cannot be decrypted with the password in" in folder.problems(password_file=folder.path / "password")[0][1]
    folder.key.write_bytes(folder.issued.key_pem())
    assert "remove key_password_file" in folder.problems(password_file=folder.path / "password")[0][1]


def test_one_file_may_have_the_certificates_and_the_key(folder: Folder) -> None:
    folder.key.write_bytes(folder.issued.chain + folder.issued.key_pem() + folder.authority.chain)
    folder.certificate = folder.key
    assert folder.warnings() == []


@pytest.mark.parametrize(("mode", "whose"), [(0o644, "every user"), (0o640, "the group")])
def test_a_key_that_others_may_read_is_a_warning(folder: Folder, mode: int, whose: str) -> None:
    folder.key.chmod(mode)
    ((option, message),) = folder.warnings()
    assert option == "key"
    assert message == f"{whose} may use {folder.key}; run: chmod 600 {folder.key}"


def test_an_expired_revocation_list_is_a_warning(folder: Folder) -> None:
    crl = folder.path / "crl.pem"
    crl.write_bytes(folder.authority.revocations(days=-1))
    ((option, message),) = folder.warnings(client_ca=folder.path / "ca.pem", crl=crl)
    assert option == "crl"
    assert "the list of CN=Test CA" in message


def test_a_certificate_that_is_not_valid_yet_is_a_warning(folder: Folder) -> None:
    folder.issued = folder.authority.issue("a.example", since=-2)
    folder.certificate, folder.key = folder.issued.write(folder.path, "server")
    ((option, message),) = folder.warnings()
    assert option == "certificate"
    assert "look at the clock" in message
