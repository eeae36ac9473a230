"""What looks like a credential."""

import pytest
from pydantic import JsonValue

from ptxbench.models.credentials import credential_in, is_variable_name, secrets_in


def test_finds_the_names_of_credentials_wherever_they_are():
    value: JsonValue = {
        "a": [{"api-key": 1}, {"headers": {"Proxy-Authorization": "x"}}],
        "client_secret": 2,
        "max_tokens": 3,
    }
    assert list(secrets_in(value)) == [
        ("a", 0, "api-key"),
        ("a", 1, "headers", "Proxy-Authorization"),
        ("client_secret",),
    ]


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["agent", "--model", "x", "--api-key-env", "MY_KEY"], None),
        (["agent", "--api-key", "$MY_KEY", "--password-file", "/run/p", "--max-tokens=5"], None),
        (["bash", "-c", 'curl -H "Authorization: Bearer $TOKEN" http://h'], None),
        (["agent", "--no-secret", "--verbose"], None),
        (["sk-learn-agent", "risk-free"], None),
        (["agent", "sk-ant-0123456789abcdefghij"], 1),
        (["agent", "--api-key", "plainvalue"], 1),
        (["agent", "--api_key=plainvalue"], 1),
        (["env", "OPENAI_API_KEY=plainvalue", "agent"], 1),
        (["agent", "--token", "plainvalue"], 1),
        (["bash", "-c", "curl -H 'x-api-key: plainvalue'"], 2),
        (["bash", "-c", "curl -H 'Authorization: Bearer abcdefghi'"], 2),
        (["agent", "--url=http://me:plain@host/v1"], 1),
    ],
)
def test_a_credential_in_a_command_line(words, place):
    assert credential_in(words) == place


@pytest.mark.parametrize(
    ("text", "can_be"),
    [
        ("OPENAI_API_KEY", True),
        ("_k2", True),
        ("myProviderKeyForTheBenchmark", True),
        ("sk-ant-0123456789abcdefghij", False),
        ("hf_AbCdEfGhIjKlMnOpQrStUvWx", False),
        ("AIzaSyA0123456789abcdefghijk", False),
        ("a94a8fe5ccb19ba61c4c0873d391e987982fbbd3", False),
        ("MY KEY", False),
        ("", False),
    ],
)
def test_a_name_of_a_variable_and_a_key(text, can_be):
    assert is_variable_name(text) is can_be
