"""The generated files: up to date, complete and correct."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import evolve

from holdfast.config import Config, default, load
from holdfast.config.options import (
    Flag,
    Form,
    Integer,
    InvalidValue,
    Option,
    Section,
    Subsection,
    described,
    option,
    variants_of,
)
from holdfast.config.reference import render_markdown, render_toml
from holdfast.config.sections.retainer import PolicyConfig, TopicQuotaConfig
from holdfast.config.toml import written

ROOT = Path(__file__).parents[2]
ETC = ROOT / "etc"
#: examples of rules, which are no configurations; tests/identity/rules/test_rule_files.py reads them
RULES = {"rules.toml", "home-rules.toml", "fleet-rules.toml", "mosquitto.acl"}

#: the forms of tables whose name has no part that the operator chooses
ONE_NAME = (Form.TABLE, Form.LISTED)


def options(section: type[Section] = Config, prefix: str = "") -> Iterator[tuple[str, str, Option]]:
    """Yield the table, the key and the description of every option."""
    for key, entry in described(section).items():
        if isinstance(entry, Option):
            yield prefix, key, entry
        elif isinstance(entry, Subsection) and entry.form is not Form.PARTIAL:
            name = f"{prefix}.{key}" if prefix else key
            yield from options(entry.section, name if entry.form in ONE_NAME else f"{name}.NAME")


def options_of_page(section: type[Section] = Config, prefix: str = "") -> Iterator[tuple[str, str, Option]]:
    """Yield every option, also those of the tables with a type, in the order of the page."""
    tables = []
    for key, entry in described(section).items():
        if isinstance(entry, Option):
            yield prefix, key, entry
        elif isinstance(entry, Subsection) and entry.form is not Form.PARTIAL:
            name = f"{prefix}.{key}" if prefix else key
            tables.append((entry.section, name if entry.form in ONE_NAME else f"{name}.NAME"))
    variants = variants_of(section)
    for variant in variants[1].types.values() if variants is not None else ():
        yield from options_of_page(variant, f"{prefix}.NAME")
    for table, name in tables:
        yield from options_of_page(table, name)


def uncommented(text: str) -> str:
    return re.sub(r"(?m)^# ", "", text)


@pytest.mark.parametrize(
    ("path", "rendered", "form"),
    [("etc/holdfast.toml", render_toml, "toml"), ("docs/operator/configure.md", render_markdown, "markdown")],
)
def test_the_generated_file_is_fresh(path: str, rendered: Callable[[], str], form: str) -> None:
    assert (ROOT / path).read_text() == rendered(), f"run: holdfast config reference --format {form} > {path}"


def test_the_unchanged_file_gives_the_defaults() -> None:
    assert load(ETC / "holdfast.toml") == default(ETC)


def test_the_file_with_all_keys_uncommented_gives_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.toml"
    text = re.sub(r"(?ms)^# \[(?:listeners\.default|admin)\.tls.*?(?=^\[)", "", render_toml())  # needs a certificate
    text = re.sub(r"(?ms)^# \[\[hooks\]\].*?(?=^\[)", "", text)  # needs a name, a URL and events
    text = re.sub(r"(?ms)^# \[bridges\.NAME.*?(?=^\[)", "", text)  # needs an address
    path.write_text(uncommented(text))
    defaults = default(tmp_path)
    # a quota that limits nothing, and a policy that changes nothing
    retainer = evolve(defaults.retainer, topic_quotas={"NAME": TopicQuotaConfig()}, policies=(PolicyConfig(),))
    assert load(path) == evolve(defaults, retainer=retainer)


def test_the_file_has_every_option_once_with_its_default_and_allowed_values() -> None:
    text = render_toml()
    table = ""
    found = []
    for line in text.splitlines():
        if line.startswith(("[", "# [")):
            table = line.strip("# []").replace("listeners.default", "listeners.NAME")
        elif line.startswith("# "):
            key, _, value = line.removeprefix("# ").partition(" = ")
            found.append((table, key, value))
    assert found == [(table, key, written(entry.default)) for table, key, entry in options()]
    flowing = " ".join(text.replace("\n## ", " ").split())
    assert all(" ".join(f"Allowed: {entry.kind.allowed}.".split()) in flowing for _, _, entry in options_of_page())
    of_types = [(key, entry) for table, key, entry in options_of_page() if (table, key, entry) not in list(options())]
    assert of_types
    assert all(f"\n##     {key} = {written(entry.default)}\n" in text for key, entry in of_types)


def test_the_page_has_every_option_with_its_whole_description() -> None:
    page = render_markdown()
    sections = re.findall(r"(?ms)^### `([^`]+)`\n(.*?)(?=^##|\Z)", page)
    expected = list(options_of_page())
    assert [name for name, _ in sections] == [f"{table}.{key}" for table, key, _ in expected]
    for (_, section), (_, key, entry) in zip(sections, expected, strict=True):
        assert f"- Default: `{written(entry.default)}`" in section
        assert "- Allowed: " in section
        assert "- Effect of a change: " in section
        assert (f"- Example: `{key} = {written(entry.example)}`" in section) is (entry.example is not None)
        assert entry.help
        assert entry.effect


def test_the_page_tells_the_precedence() -> None:
    page = render_markdown()
    assert "## Precedence" in page
    assert page.index("1. `[zones.X.mqtt]`") < page.index("2. `[mqtt]`") < page.index("3. the defaults")


def test_the_generated_files_can_be_read_in_any_terminal() -> None:
    assert render_toml().isascii()
    assert render_markdown().isascii()


@pytest.mark.parametrize(
    ("table", "key", "entry"), list(options()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_example_of_an_option_can_be_used_and_changes_something(
    write: Callable[[str], Path], tmp_path: Path, table: str, key: str, entry: Option
) -> None:
    if entry.example is None:
        assert entry.kind.allowed.startswith("only ")
        return
    text = f"[{table}]\n{key} = {written(entry.example)}\n"
    if table == "retainer.policies":
        text = f"[{text.replace(']', ']]', 1)}" + ("" if key == "filter" else 'filter = "#"\n')
    if table == "hooks":
        needed = {"name": '"a"', "url": '"https://a.example"', "alarms": "true"}
        given = {key, "url" if key == "secret_url" else key}
        text = f"[{text.replace(']', ']]', 1)}" + "".join(
            f"{name} = {value}\n" for name, value in needed.items() if name not in given
        )
    elif table == "bridges.NAME.topics":
        text = f'[bridges.NAME]\naddresses = ["broker"]\n[{text.replace("]", "]]", 1)}'
    elif table == "bridges.NAME":
        text += "" if key == "addresses" else 'addresses = ["localhost"]\n'
        text += 'topics = [{ filter = "#" }]\n'
    elif table == "bridges.NAME.tls":
        text = f'[bridges.NAME]\naddresses = ["broker"]\ntopics = [{{ filter = "#" }}]\n{text}'
        text += "" if key == "certificate" else 'certificate = "bridge.pem"\n'
    if key == "zone":
        text += f"[zones.{entry.example}]\n"
    if key == "sources":
        text += '[authorization.rules]\ntype = "file"\npath = "rules.toml"\n'
    if key == "trusted_proxies" and table != "admin":
        text += 'endpoint = "haproxy:tcp:1883"\nallow_anonymous = true\n'
    if key == "authentication":
        text += '[authentication.passwords]\ntype = "scram"\npath = "users.scram"\n'
    if key == "record_acknowledge":
        text += 'record = "all"\n'
    if key in ("path", "origins"):
        text += 'transport = "websocket"\n'
    if ".tls" in table and not table.startswith("bridges") and key != "certificate":
        text += 'certificate = "cert.pem"\n'
    if table.endswith(".certificates.NAME"):
        text += f'[{table.removesuffix(".certificates.NAME")}]\ncertificate = "cert.pem"\n'
    if (table, key) == ("admin", "endpoint"):
        text += "allow_plaintext = true\n"
    if key in ("client", "crl"):
        text += 'client_ca = "ca.pem"\n'
    if key in ("client_ca", "crl"):
        text += 'client = "required"\n'
    if key == "flush_interval":
        text += 'durability = "async"\n'
    if table == "cluster" and key != "name":
        text += 'name = "plant"\n'
    if (table, key) == ("cluster", "bus"):
        text += 'secret = "file:cluster-secret"\n'
    if (table, key) == ("cluster", "secret"):
        text += 'bus = "nats://nats.example.org"\n'
    if table == "cluster.tls":
        text += '[cluster]\nname = "plant"\nbus = "nats://nats.example.org"\nsecret = "file:cluster-secret"\n'
    assert load(write(text)) != default(tmp_path)


@pytest.mark.parametrize("name", sorted({path.name for path in (ETC / "examples").glob("*.toml")} - RULES))
def test_the_examples_can_be_used(name: str) -> None:
    config = load(ETC / "examples" / name)
    assert config.listeners
    assert all(config.zone(listener.zone) != config.zone("") for listener in config.listeners.values() if listener.zone)


def test_there_are_examples() -> None:
    assert {path.name for path in (ETC / "examples").iterdir()} - RULES == {"fleet.toml", "home.toml", "internet.toml"}


def test_an_option_cannot_have_a_default_that_it_refuses() -> None:
    with pytest.raises(InvalidValue):
        option(Integer(1, 5), 6, help="", effect="", example=1)


def test_an_option_cannot_have_its_default_as_example() -> None:
    with pytest.raises(ValueError, match="the example true is the default"):
        option(Flag(), True, help="", effect="", example=True)
