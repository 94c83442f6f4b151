"""The options of Home Assistant's add-on *Mosquitto broker*: its logins, certificates and further files.

How it works. The add-on makes a mosquitto.conf of its options at each start. The same text is made here, and read as
any mosquitto.conf, with the files in the customize folder. Its users are the logins of the options, and the two that
the add-on makes for Home Assistant itself (``system_user.json``). The people of Home Assistant can log in to the add-on
as well; their passwords are in Home Assistant only.

A login has its password in plain text, or the hash ``PBKDF2$sha512$ITERATIONS$SALT$HASH``. A plain password is hashed
anew, unless the present password file has a hash of it: so a second run makes the same files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from holdfast.config.toml import ConfigError, ConfigProblem, display_name
from holdfast.identity.hashes import HashParameters, new_hash, verify
from holdfast.moving.mosquitto_conf import MosquittoConf, read_text
from holdfast.moving.mosquitto_mapping import Move, move_mosquitto
from holdfast.moving.report import HIDDEN, Report
from holdfast.moving.users import Users, text_at

_MADE = "the add-on's mosquitto.conf"
_HASH_PREFIX = "PBKDF2$sha512$"
_SYSTEM_USERS = "system_user.json"
#: listeners of the add-on: port, whether WebSocket, whether TLS
_LISTENERS = ((1883, False, False), (1884, True, False), (8883, False, True), (8884, True, True))
_CERTIFICATES = (("certfile", "fullchain.pem"), ("keyfile", "privkey.pem"))
_KNOWN = {"logins", "customize", "certfile", "keyfile", "cafile", "require_certificate", "debug", "anonymous"}


@frozen
class Folders:
    """The folders of the add-on: ``/ssl`` for certificates, ``/share`` for further files."""

    ssl: Path
    share: Path


def move_home_assistant(path: Path, folders: Folders, present: Mapping[str, str]) -> Move:
    """Return Holdfast's files for the options in a file. Raises ConfigError.

    ``present`` are the hashes by user that the folder for the files has already.
    """
    options = _object(path)
    notes = Report("")
    conf = _conf(options, path, folders, notes)
    users = Users()
    name = display_name(path)
    for username, password in _logins(options, path):
        if not users.add(username, _stored(password, present.get(username)), name, notes):
            continue
        notes.taken(name, f"login {username} {HIDDEN}", "authentication.passwords")
    notes.missing(
        name,
        "people of Home Assistant",
        "their passwords are not in the add-on's files: add them with holdfast passwd add passwords USER",
    )
    for key in options:
        if key not in _KNOWN:
            notes.missing(name, key, "is no option that is known here; see the add-on's documentation")
    return move_mosquitto(conf, users, notes, "From Home Assistant's add-on Mosquitto broker to Holdfast")


def _object(path: Path) -> dict[str, Any]:
    name = display_name(path)
    try:
        found = json.loads(text_at(path, name, ""))
        json.dumps(found, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise _problem(path, error.lineno, "", f"this is no JSON: {error.msg}; restore the file") from None
    except (RecursionError, UnicodeEncodeError):
        raise _problem(path, None, "", "this is no JSON in UTF-8, or nested too deeply; restore the file") from None
    if not isinstance(found, dict):
        raise _problem(path, None, "", "this is no JSON object; name /data/options.json of the add-on")
    return found


def _problem(path: Path, line: int | None, key: str, message: str) -> ConfigError:
    return ConfigError([ConfigProblem(display_name(path), line, key, message)])


def _logins(options: Mapping[str, Any], path: Path) -> Iterator[tuple[str, str]]:
    """Yield user names and passwords: of the add-on's own users first, as the add-on does."""
    system = path.parent / _SYSTEM_USERS
    if system.exists():
        for username, entry in _object(system).items():
            if isinstance(entry, dict) and isinstance(entry.get("password"), str):
                yield username, entry["password"]
    logins = options.get("logins", [])
    if not isinstance(logins, list):
        raise _problem(path, None, "logins", "allowed: a list of objects with username and password; correct it")
    for number, login in enumerate(logins):
        valid = isinstance(login, dict) and all(isinstance(login.get(key), str) for key in ("username", "password"))
        if not valid:
            raise _problem(path, None, f"logins[{number}]", "allowed: a username and a password, both texts; add them")
        yield login["username"], login["password"]


def _stored(password: str, present: str | None) -> str:
    """Return the hash of a login's password."""
    if password.startswith(_HASH_PREFIX):
        return f"$7${password.removeprefix(_HASH_PREFIX)}"
    if present is not None and verify(present, password.encode()):
        return present
    return new_hash(password.encode(), HashParameters())


def _conf(options: Mapping[str, Any], path: Path, folders: Folders, notes: Report) -> MosquittoConf:
    """Return what the add-on's mosquitto.conf says."""
    name = display_name(path)

    def text_of(key: str, default: str = "") -> str:
        value = options.get(key, default)
        if value is None:
            return default
        if not isinstance(value, str) or "\n" in value:
            raise _problem(path, None, key, "allowed: the name of a file in the folder of certificates; correct it")
        return value

    certificate, key = (folders.ssl / text_of(each, default) for each, default in _CERTIFICATES)
    has_tls = certificate.is_file() and key.is_file()
    if not has_tls:
        advice = f"no TLS: {certificate} and {key} are not both there; name the folder with --ssl"
        notes.missing(name, "certfile, keyfile", advice)
    authorities = folders.ssl / text_of("cafile")
    lines = ["max_queued_messages 8192", f"log_type {'all' if options.get('debug') is True else 'information'}"]
    for port, is_websocket, is_tls in _LISTENERS:
        if is_tls and not has_tls:
            continue
        lines += [f"listener {port}", f"protocol {'websockets' if is_websocket else 'mqtt'}"]
        if is_tls:
            required = options.get("require_certificate") is True
            lines += [f"cafile {authorities if authorities.is_file() else certificate}", f"certfile {certificate}"]
            lines += [f"keyfile {key}", f"require_certificate {'true' if required else 'false'}"]
    customize = options.get("customize")
    if isinstance(customize, dict) and customize.get("active") is True:
        folder = customize.get("folder", "mosquitto")
        if not isinstance(folder, str) or "\n" in folder:
            raise _problem(path, None, "customize.folder", "allowed: the name of a folder in /share; correct it")
        lines.append(f"include_dir {folders.share / folder}")
    return read_text(path, _MADE, "\n".join(lines))
