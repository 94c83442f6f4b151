"""Which configured methods may tell groups of users."""

from __future__ import annotations

import pytest

from holdfast.config.sections.authentication import METHODS, AuthenticationConfig
from holdfast.config.sections.remote_methods import HTTPConfig, JWTConfig


@pytest.mark.parametrize("kind", METHODS)
def test_only_tokens_with_groups_and_services_give_groups(kind: str) -> None:
    method = METHODS[kind]()
    assert AuthenticationConfig(methods={"m": method}).gives_groups is isinstance(method, HTTPConfig)
    assert not AuthenticationConfig().gives_groups


def test_a_token_has_groups_in_a_claim_that_is_named() -> None:
    assert AuthenticationConfig(methods={"m": JWTConfig(groups_claim="roles")}).gives_groups
