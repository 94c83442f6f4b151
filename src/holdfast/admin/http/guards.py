"""Protects operators whose browsers visit hostile web pages: checks host names and origins of requests.

A page elsewhere can lead a browser to this broker in two ways. It can send requests to the broker's address: these have
the page's origin, and are refused where they may change something or use a cookie. Or the page's own name can be made
to mean the broker's address (DNS rebinding): then the origin looks right, but the Host is a name that the operator has
not allowed. An IP address as Host cannot be such a name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from ipaddress import ip_address

from twisted.web import http

from holdfast.admin.calls.head import Head
from holdfast.admin.calls.hosts import host_and_port, place_of
from holdfast.admin.calls.problems import MISDIRECTED, RefusedCall, bad_request


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
