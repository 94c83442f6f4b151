"""The owners and the modes of the files: who else on this machine can read secrets, or change what the broker does."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from holdfast.config import Config
from holdfast.config.named_files import file_states
from holdfast.doctor.finding import Finding, problem

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def configuration_file(config: Config) -> Iterator[Finding]:
    """Yield a finding if others than its owner can change the configuration file, or a folder above it."""
    if config.file is None:
        return
    for path in (config.file, config.file.parent):
        status = path.stat()
        sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_mode & _WRITABLE_BY_OTHERS and not sticky:
            yield problem(path, f"others than its owner can write to it ({_mode(status)})", f"chmod go-w {path}")


def data_directory(config: Config) -> Iterator[Finding]:
    """Yield a finding for the data directory and each file in it that others than its owner can read or write."""
    folder = config.data_dir
    if not folder.is_dir():
        return
    owner = folder.stat().st_uid
    if os.geteuid() not in (0, owner):
        yield problem(
            folder,
            f"it belongs to user {owner}, and this is user {os.geteuid()}: a broker of this user cannot use it",
            f"run this as the broker's user, or chown -R {os.geteuid()} {folder}",
        )
    for path in (folder, *sorted(folder.iterdir())):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            continue
        if status.st_mode & _OPEN_TO_OTHERS:
            yield problem(path, f"others than its owner can use it ({_mode(status)})", f"chmod go= {path}")
        if status.st_uid != owner:
            yield problem(
                path,
                f"it belongs to user {status.st_uid}, and the data directory to user {owner}: the broker may not be"
                " able to use it",
                f"chown {owner} {path}",
            )


def files_of_users(config: Config) -> Iterator[Finding]:
    """Yield findings for the files of users and passwords."""
    authentication = config.authentication
    for path in dict.fromkeys([*authentication.password_files, *authentication.scram_files]):
        yield from secret_file(config.absolute(path), "users and their passwords")


def named_files(config: Config) -> Iterator[Finding]:
    """Yield a finding for the configuration and each file named in it that the data directory's owner cannot read.

    The owner is the broker's user. It matters for root, who can read all files.
    """
    if not config.data_dir.is_dir():
        return
    status = config.data_dir.stat()
    user = status.st_uid
    if os.geteuid() != 0 or user == 0:  # the checks of each kind of file find this for the present user
        return
    groups = {status.st_gid, *_groups(user)}
    for path in (*([] if config.file is None else [config.file]), *file_states(config, os.environ)):
        if path.is_file() and not _may_read(path.stat(), user, groups):
            yield problem(
                path, f"user {user}, to whom the data directory belongs, cannot read it", f"chown {user} {path}"
            )


def _groups(user: int) -> list[int]:
    try:
        entry = pwd.getpwuid(user)
    except KeyError:  # a user that exists only while the service runs
        return []
    return os.getgrouplist(entry.pw_name, entry.pw_gid)


def _may_read(status: os.stat_result, user: int, groups: set[int]) -> bool:
    needed = stat.S_IRUSR if status.st_uid == user else stat.S_IRGRP if status.st_gid in groups else stat.S_IROTH
    return bool(status.st_mode & needed)


def secret_file(path: Path, content: str) -> Iterator[Finding]:
    """Yield a finding if the file with this secret content is open to others than its owner and its group's readers."""
    try:
        status = path.stat()
    except OSError as error:
        yield problem(path, f"{content}: it cannot be read: {error.strerror}", "create it, or correct its path")
        return
    if status.st_mode & (stat.S_IRWXO | stat.S_IWGRP):
        yield problem(path, f"{content}: others can use it ({_mode(status)})", f"chmod g-w,o= {path}")
    if not os.access(path, os.R_OK):
        yield problem(
            path, f"{content}: this user cannot read it", "run this as the broker's user, or change its owner"
        )


def _mode(status: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(status.st_mode):04o}"
