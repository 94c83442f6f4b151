"""The endpoint and the TLS of one listener of mosquitto.

Certificates stay where they are, and are named by their absolute paths. Only the authorities in a folder (``capath``)
are copied, into one file: Holdfast has no such folders. A listener never gets more addresses than it had.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from holdfast.core.terminal import counted
from holdfast.moving.files import Value
from holdfast.moving.mosquitto_conf import Listener, MosquittoConf, Setting, located
from holdfast.moving.report import Report
from holdfast.moving.users import unusable_file

LOOPBACK = "127.0.0.1"
_PEM = b"-----BEGIN CERTIFICATE-----"
#: files of one capath
_MOST_AUTHORITIES = 1000


class ListenerParts:
    """Works out the parts of listeners. ``names`` are those of their tables; copies of files are added to ``files``."""

    def __init__(
        self, conf: MosquittoConf, report: Report, files: dict[str, str], names: Mapping[Listener, str]
    ) -> None:
        self._conf = conf
        self._report = report
        self._files = files
        self._names = names

    def endpoint(self, listener: Listener) -> tuple[str, bool]:
        """Return the endpoint string, and whether only this machine reaches it."""
        settings = listener.settings
        if listener.is_unix:
            return f"unix:{_escaped(listener.address)}", True
        address = self._address(listener)
        if "bind_interface" in settings:
            setting = settings["bind_interface"]
            advice = f"listens on {LOOPBACK} only, for now: write the address of {setting.text} as interface="
            self._report.missing(setting.origin, str(setting), advice)
            address = LOOPBACK
        if "socket_domain" in settings:
            setting = settings["socket_domain"]
            self._report.taken(setting.origin, str(setting), "in the endpoint")
            if not address and setting.value == "ipv6":
                address = "::"
        elif not address:
            advice = r"listens on every IPv4 address; for IPv6 too, write interface=\:\: if the machine has IPv6"
            self._report.missing(listener.origin, f"{listener}, every address", advice)
        endpoint = f"tcp:{listener.port}" + (f":interface={_escaped(address)}" if address else "")
        is_loopback = address in (LOOPBACK, "::1") or address.startswith("127.")
        if "enable_proxy_protocol" in settings:
            setting = settings["enable_proxy_protocol"]
            endpoint, is_loopback = f"haproxy:{endpoint}", False
            advice = (
                "haproxy: in the endpoint; only proxies on this machine are believed: name others in trusted_proxies"
            )
            self._report.taken(setting.origin, str(setting), advice)
        return endpoint, is_loopback

    def _address(self, listener: Listener) -> str:
        """Return the IP address of a listener; that of a name is looked up."""
        name = listener.address
        if not name:
            return ""
        kind = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}.get(
            str(listener.settings["socket_domain"].value) if "socket_domain" in listener.settings else "", 0
        )
        try:
            found = sorted({(int(family), str(address[0])) for family, *_, address in _lookup(name, kind)})
        except OSError:
            found = []
        if not found:
            advice = f"no address is known for {name}, so it listens on {LOOPBACK}: write the address as interface="
            self._report.missing(listener.origin, str(listener), advice)
            return LOOPBACK
        address = found[0][1]
        if address != name:
            self._report.taken(listener.origin, f"{listener}, the address of {name}", f"interface={address}")
        return address

    # TLS.

    def tls(self, listener: Listener) -> dict[str, Value] | None:
        """Return the table tls; None for a listener without. Raises ConfigError for files that are not there."""
        settings = listener.settings
        if "certfile" not in settings:
            for keyword in ("keyfile", "cafile", "capath", "crlfile", "require_certificate", "tls_version"):
                if keyword in settings and settings[keyword].value is not False:
                    advice = "has no effect without certfile; give the listener a certificate, or remove the line"
                    self._report.missing(settings[keyword].origin, str(settings[keyword]), advice)
            return None
        name = f"listeners.{self._names[listener]}.tls"
        values: dict[str, Value] = {"certificate": self._file(settings["certfile"], f"{name}.certificate")}
        if "keyfile" in settings:
            values["key"] = self._file(settings["keyfile"], f"{name}.key")
        version = settings.get("tls_version")
        if version is not None:
            if version.value == "tlsv1.3":
                values["minimum"] = "1.3"
                self._report.taken(version.origin, str(version), f"{name}.minimum")
            elif version.value == "tlsv1.2":
                self._report.same(version.origin, str(version), "TLS 1.2 is the lowest version")
            else:
                self._report.missing(version.origin, str(version), "TLS 1.2 is the lowest version: renew old clients")
        required = settings.get("require_certificate")
        if self.names_users(listener) or (required is not None and required.value):
            if required is not None:
                self._report.taken(required.origin, str(required), f"{name}.client")
            values["client"] = "required"
            values["client_ca"] = self._authorities(listener, name)
            if "crlfile" in settings:
                values["crl"] = self._file(settings["crlfile"], f"{name}.crl")
        else:
            for keyword in ("cafile", "capath", "crlfile", "require_certificate"):
                if keyword in settings:
                    advice = "clients are not asked for certificates, so it had no effect"
                    self._report.same(settings[keyword].origin, str(settings[keyword]), advice)
        return values

    def _file(self, setting: Setting, option: str) -> str:
        """Return the place of a file, which must be there."""
        path = located(Path(setting.text), self._conf.path)
        if not path.is_file():
            raise unusable_file(path, setting.origin, setting.keyword, "there is no such file")
        self._report.taken(setting.origin, str(setting), f"{option}, read where it is")
        return str(path)

    def _authorities(self, listener: Listener, name: str) -> str:
        """Return the file with the authorities of clients. Those of a folder are copied into one."""
        settings = listener.settings
        if "cafile" in settings:
            if "capath" in settings:
                advice = "only those of cafile are taken; add these to that file"
                self._report.missing(settings["capath"].origin, str(settings["capath"]), advice)
            return self._file(settings["cafile"], f"{name}.client_ca")
        setting = settings.get("capath")
        if setting is None:
            origin = settings.get("require_certificate", settings["certfile"]).origin
            place = Path(settings["certfile"].text)
            raise unusable_file(place, origin, "cafile", "clients need certificates, and no cafile or capath is given")
        folder = located(Path(setting.text), self._conf.path)
        try:
            paths = sorted(path for path in folder.iterdir() if path.is_file())[:_MOST_AUTHORITIES]
            contents = dict.fromkeys(path.read_bytes() for path in paths)
        except OSError as error:
            raise unusable_file(folder, setting.origin, setting.keyword, error.strerror or str(error)) from None
        found = [content.decode("ascii", "replace") for content in contents if _PEM in content]
        if not found:
            raise unusable_file(folder, setting.origin, setting.keyword, "has no certificate in PEM form")
        copy = f"authorities-{self._names[listener]}.pem"
        self._files[copy] = "".join(f"{text.rstrip()}\n" for text in found)
        self._report.taken(
            setting.origin, str(setting), f"{name}.client_ca; {counted(len(found), 'certificate')} copied"
        )
        return copy

    def names_users(self, listener: Listener) -> str:
        """Return the part of a certificate that names the users of a listener; empty for none."""
        if "certfile" in listener.settings:
            if is_set(listener, "use_identity_as_username", True):
                return "common_name"
            if is_set(listener, "use_subject_as_username", True):
                return "subject"
        return ""


def is_set(listener: Listener, keyword: str, value: object) -> bool:
    """Tell whether a listener has a setting with this value."""
    return keyword in listener.settings and listener.settings[keyword].value == value


def _lookup(name: str, kind: int) -> list[tuple[socket.AddressFamily, int, int, str, tuple[object, ...]]]:
    return [*socket.getaddrinfo(name, None, kind, socket.SOCK_STREAM)]


def _escaped(text: str) -> str:
    """Return a value for an endpoint string."""
    return text.replace("\\", "\\\\").replace(":", "\\:")
