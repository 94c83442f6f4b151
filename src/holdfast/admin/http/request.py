"""A request over HTTP: its limits, its caller, and its call."""

from __future__ import annotations

from collections.abc import Callable, Collection
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from urllib.parse import parse_qsl

from attrs import evolve
from twisted.web import http
from twisted.web.server import Request

from holdfast.admin.call import (
    ANYONE,
    MISDIRECTED,
    Call,
    Caller,
    Head,
    RefusedCall,
    Scope,
    Via,
    bad_request,
    head_of,
    host_and_port,
    place_of,
    unauthorized,
)
from holdfast.identity.addresses import Peer, TrustedProxies, plain

# The client behind a trusted reverse proxy: its address, and whether it has TLS.
#
# How it works. Each proxy adds the address that it sees to the end of ``X-Forwarded-For``; the beginning may be a
# client's own words. So the list is read from its end: past the addresses of trusted proxies, the first other one is
# the client. A proxy that is not trusted is believed nothing. Its requests then count for its own address, but not as
# requests from this machine (:class:`~holdfast.admin.call.Head`).


#: addresses of the list that are looked at
_MOST = 16


class Forwarding:
    """Finds the clients of trusted proxies; ``proxies`` returns the ones that are trusted now."""

    def __init__(self, proxies: Callable[[], TrustedProxies]) -> None:
        self._proxies = proxies

    def unwrap(self, head: Head) -> Head:
        """Return a head with the address of the client. Raises RefusedCall if a trusted proxy tells none."""
        proxies = self._proxies()
        if not head.peer.proxied or head.forwarded_for is None or head.peer not in proxies:
            return head
        for text in reversed(head.forwarded_for.rsplit(",", _MOST)[-_MOST:]):
            peer = Peer(_address_of(text.strip()), 0, proxied=True)
            if peer not in proxies:
                break
        secure = head.secure or (head.forwarded_proto or "").strip().lower() == "https"
        return evolve(head, peer=peer, secure=secure)


def _address_of(text: str) -> IPv4Address | IPv6Address:
    """Return an address that may have a port, as some proxies write it. Raises RefusedCall."""
    place = host_and_port(text)
    try:
        return plain(ip_address(text if place is None else place[0]))
    except ValueError:
        raise bad_request(
            f"the proxy has sent {text[:60]!a} in X-Forwarded-For", "X-Forwarded-For", "IP addresses with commas"
        ) from None


# Protects operators whose browsers visit hostile web pages: checks host names and origins of requests.
#
# A page elsewhere can lead a browser to this broker in two ways. It can send requests to the broker's address: these
# have the page's origin, and are refused where they may change something or use a cookie. Or the page's own name can be
# made to mean the broker's address (DNS rebinding): then the origin looks right, but the Host is a name that the
# operator has not allowed. An IP address as Host cannot be such a name.


class Guards:
    """Checks Host and Origin. ``hosts`` returns the allowed names, in lower case."""

    def __init__(self, hosts: Callable[[], Collection[str]]) -> None:
        self._hosts = hosts

    def check(self, head: Head) -> None:
        """Refuse a request for another host, or from a page of another origin. Raises RefusedCall."""
        by_browser = not head.is_without_host  # each browser names the host; a health check with HTTP/1.0 need not
        if by_browser and (head.peer.ip is not None or head.peer.proxied):  # no browser reaches a UNIX domain socket
            self._check_host(head)
        if head.origin is not None and (head.changes or head.cookie is not None):
            _check_origin(head)

    def _check_host(self, head: Head) -> None:
        name = _host_of(head)
        if is_loopback_name(name) or _is_address(name) or name in self._hosts():
            return
        raise RefusedCall(
            MISDIRECTED, "MISDIRECTED_REQUEST",
            f"the host {name[:100]!a} is not one of this API; add it to admin.hosts, or use an IP address",
            field="Host", allowed="localhost, an IP address, or a name in admin.hosts",
        )  # fmt: skip


def is_loopback_name(name: str) -> bool:
    """Tell whether a host is this machine, for every caller."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def is_on_loopback(head: Head) -> bool:
    """Tell whether a request comes from this machine, and asks for this machine.

    The requests of a reverse proxy on this machine are not from this machine. They have its headers, such as
    X-Forwarded-For, or another name.
    """
    if head.is_without_host or not head.peer.is_local:
        return False
    return head.peer.ip is None or is_loopback_name(_host_of(head))


def _host_of(head: Head) -> str:
    """Return the host without its port, in lower case. Raises RefusedCall."""
    place = host_and_port(head.host)
    if place is None:
        raise bad_request(
            "the request needs one header Host: a name or an IP address, with or without a port",
            "Host", "the name or the address of the API",
        )  # fmt: skip
    return place[0].rstrip(".")


def _check_origin(head: Head) -> None:
    place = place_of(head.origin or "")
    # A reverse proxy that ends TLS passes the Host on, and the page's origin has another scheme.
    schemes = ("https",) if head.secure else ("http", "https")
    if place is not None and place in [place_of(f"{scheme}://{head.host}") for scheme in schemes]:
        return
    raise RefusedCall(
        http.FORBIDDEN, "FORBIDDEN", "a web page of another origin may not make this call",
        field="Origin", allowed=f"the origin of {(head.host or '')[:100]!a}",
    )  # fmt: skip


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


#: bytes of the longest body of a caller who may change nothing: enough for a login
STRANGERS_BODY = 1 << 16
#: bytes of the longest request target of a stranger: decoding a long one takes milliseconds
STRANGERS_TARGET = 1 << 14
_MOST_ARGUMENTS = 20


class LimitedRequest(Request):
    """A request whose caller is known before its body arrives, and whose body has a limit.

    A longer body than ``most_bytes`` is refused while it arrives, and the long target of a stranger when its head has
    arrived; then ``is_too_long``. ``refused`` is the refusal of a caller.
    """

    caller: Caller = ANYONE
    head: Head | None = None
    refused: RefusedCall | None = None
    most_bytes = STRANGERS_BODY
    _received = 0
    _target = b""
    is_too_long = False

    def gotLength(self, length: int | None) -> None:
        """Identify the caller, and refuse a body with an announced length above the limit."""
        channel: Any = self.channel
        try:
            self.head = channel.site.unwrap(head_of(self, channel.method))
            self.caller = channel.site.identify(channel, self.head)
        except RefusedCall as refused:
            self.refused = refused
        if self._may_change:
            self.most_bytes = channel.site.most_bytes(channel.method.decode("ascii", "replace"), channel.path)
        if self.refused is None and self.caller.via is Via.NOTHING and len(channel.target) > STRANGERS_TARGET:
            self._refuse(long_target(STRANGERS_TARGET))
        if length is not None and length > self.most_bytes:
            self._refuse(self._long_body())
            length = 0
        Request.gotLength(self, length)

    def handleContentChunk(self, data: bytes) -> None:
        """Receive a piece of the body."""
        self._received += len(data)
        if self._received > self.most_bytes:
            self._refuse(self._long_body())
        if not self.is_too_long:
            Request.handleContentChunk(self, data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Process the request, unless it is too long. Then its client has been told, and is ready to read it."""
        if self.is_too_long:
            self.channel.loseConnection()
        else:
            # Twisted would decode the query string before anybody is asked: call_of decodes it, within limits.
            self._target = path
            Request.requestReceived(self, command, path.partition(b"?")[0], version)

    def process(self) -> None:
        """Process the request with its whole target."""
        self.uri = self._target
        Request.process(self)

    @property
    def _may_change(self) -> bool:
        return bool(self.caller.scopes - {Scope.OPEN, Scope.READ})

    def _refuse(self, refused: RefusedCall) -> None:
        if not self.is_too_long:
            self.is_too_long = True
            channel: Any = self.channel
            channel.refuse_early(refused)

    def _long_body(self) -> RefusedCall:
        who = "" if self._may_change else " of a caller who may only read, or without an API key or a login,"
        most = f"{self.most_bytes} bytes"
        message = f"the body of this call{who} has at most {most}"
        return RefusedCall(http.REQUEST_ENTITY_TOO_LARGE, "BAD_REQUEST", message, allowed=most)


def call_of(request: Any) -> Call:
    """Return the call in a request. Raises :class:`RefusedCall`."""
    if request.refused is not None:
        raise request.refused
    if not request.uri.startswith(b"/"):
        raise bad_request("the target of a request to this API is a path, without a scheme and a host")
    try:
        path, _, query = request.uri.decode("ascii").partition("?")
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_ARGUMENTS)
    except ValueError:  # UnicodeDecodeError among them
        raise bad_request("the query string has too many arguments, or is not percent-encoded UTF-8") from None
    arguments = dict(pairs)
    if len(arguments) < len(pairs):
        raise bad_request("an argument occurs twice in the query string")
    method = request.method.decode("ascii", "replace")
    accept = request.getHeader("accept") or ""
    body, is_current = request.content.read(), _asking_again(request)
    if body and not is_current():
        raise unauthorized("the API key or the session of this call has ended while its body arrived")
    channel = request.channel
    return Call(
        method, path, arguments, body, request.caller, accept, request.head, is_current,
        prove=lambda: channel.site.proven(channel),
    )  # fmt: skip


def long_target(most: int) -> RefusedCall:
    """Return the refusal of a request whose path and query string are too long."""
    message = f"path and query string have at most {most} bytes"
    return RefusedCall(http.REQUEST_URI_TOO_LONG, "BAD_REQUEST", message, allowed=f"{most} bytes")


def _asking_again(request: Any) -> Callable[[], bool]:
    """Return a function that tells whether the caller of a request may still make it."""
    channel, caller, head = request.channel, request.caller, request.head
    return lambda: bool(channel.site.goes_on(channel, head, caller))
