"""The HTTP client trusts a server by its certificate and its name only."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.ssl import CertificateOptions
from twisted.internet.task import deferLater
from twisted.web.resource import Resource
from twisted.web.server import Site

from holdfast.identity.http_client import Bounds, HTTPClient, RequestFailed, agent_of
from tests.certificates import Authority, Issued
from tests.processes import PATIENCE


class Hello(Resource):
    isLeaf = True

    def __init__(self) -> None:
        Resource.__init__(self)

    def render(self, request: Any) -> bytes:
        return b"hello"


@inlineCallbacks
def asked(server: Issued, ca: Path | None, tmp_path: Path) -> Generator[Deferred[Any], Any, bytes]:
    """Ask an https server that has this certificate; return the body of its answer."""
    options = CertificateOptions(privateKey=cast("Any", server.key), certificate=cast("Any", server.certificate))
    port = cast("Any", reactor).listenSSL(0, Site(Hello()), options, interface="127.0.0.1")
    bounds = Bounds(timeout=PATIENCE)
    agent = agent_of(reactor, bounds, https=True, ca=ca)
    client = HTTPClient(agent, cast("Any", reactor), f"https://localhost:{port.getHost().port}/", bounds)
    try:
        answer = yield client.request(b"GET", {})
        body: bytes = answer.body
        return body
    finally:
        port.stopListening()
        yield cast("Any", agent)._pool.closeCachedConnections()
        yield deferLater(cast("Any", reactor), 0.01)


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def ca(authority: Authority, tmp_path: Path) -> Path:
    """The file of several authorities, one of which is ours."""
    path = tmp_path / "ca.pem"
    path.write_bytes(Authority("Another CA").chain + authority.chain)
    return path


@inlineCallbacks
def test_a_server_with_a_certificate_of_a_trusted_authority(
    authority: Authority, ca: Path, tmp_path: Path
) -> Generator[Deferred[Any], Any, None]:
    body = yield asked(authority.issue("localhost", ["localhost"]), ca, tmp_path)
    assert body == b"hello"


@pytest.mark.parametrize("fault", ["another authority", "another name", "expired", "no authority of the system"])
@inlineCallbacks
def test_a_server_that_is_not_trusted_gets_no_request(
    authority: Authority, ca: Path, tmp_path: Path, fault: str
) -> Generator[Deferred[Any], Any, None]:
    server = authority.issue("localhost", ["localhost"])
    trusted: Path | None = ca
    match fault:
        case "another authority":
            server = Authority("Stranger").issue("localhost", ["localhost"])
        case "another name":
            server = authority.issue("elsewhere", ["elsewhere"])
        case "expired":
            server = authority.issue("localhost", ["localhost"], days=-1, since=10)
        case _:
            trusted = None
    with pytest.raises(RequestFailed, match="no answer"):
        yield asked(server, trusted, tmp_path)


@pytest.mark.parametrize("content", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_file_without_authorities_cannot_be_used(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ca.pem"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="certificate"):
        agent_of(reactor, Bounds(), https=True, ca=path)
