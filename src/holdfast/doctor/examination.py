"""The examination: all checks, one after the other. A check that itself fails is a finding too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import evolve

from holdfast.config import Config
from holdfast.doctor import certificates, clock, disk, exposure, file_modes, open_files, start
from holdfast.doctor.finding import Check, Finding, problem

CHECKS: Sequence[Check] = (
    exposure.open_to_everyone,
    exposure.plain_text,
    exposure.plain_api,
    exposure.unlimited_rights,
    exposure.unlimited_connections,
    exposure.unlimited_users,
    exposure.unlimited_memory,
    certificates.certificates,
    file_modes.configuration_file,
    file_modes.data_directory,
    file_modes.files_of_users,
    file_modes.named_files,
    open_files.open_files,
    open_files.backlog,
    disk.room,
    disk.kind,
    disk.sync_time,
    start.sqlite_version,
    start.database,
    start.ports,
    clock.synchronised,
    clock.not_set_back,
)

#: what a running broker has passed, and what it has taken
OF_A_START: Sequence[Check] = (start.database, start.ports)


def examine(config: Config, checks: Sequence[Check] = CHECKS) -> Iterator[Finding]:
    """Yield the findings of the checks. The same finding about several subjects is one finding."""
    found: dict[tuple[object, ...], Finding] = {}
    for finding in _found(config, checks):
        key = finding.weight, finding.message, finding.remedy
        before = found.get(key)
        found[key] = finding if before is None else evolve(before, subject=f"{before.subject}, {finding.subject}")
    yield from found.values()


def _found(config: Config, checks: Sequence[Check]) -> Iterator[Finding]:
    for check in checks:
        try:
            yield from check(config)
        except Exception as error:  # noqa: BLE001 - the other checks are made all the same
            name = f"{check.__module__.rpartition('.')[2]}.{check.__name__}"
            yield problem(name, f"this check failed: {error!r}", "run this as the broker's user, or report it")
