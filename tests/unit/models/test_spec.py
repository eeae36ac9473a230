"""The text of ``--model``."""

from pathlib import Path

import pytest

from ptxbench.errors import InputError
from ptxbench.models.base import NAME_PATTERN
from ptxbench.models.catalog import load_catalog
from ptxbench.models.entry import ModelEntry
from ptxbench.models.spec import FixedSource, parse_spec

CATALOG = load_catalog()


def parsed(spec: str) -> ModelEntry:
    found = parse_spec(spec, CATALOG)
    assert isinstance(found, ModelEntry)
    assert NAME_PATTERN.fullmatch(found.name)
    return found


def test_fixed_sources():
    assert parse_spec("reference", CATALOG) == FixedSource("reference")
    assert parse_spec("file:a/b.cu", CATALOG) == FixedSource("file", "a/b.cu")
    assert parse_spec("replay:monday::claude", CATALOG) == FixedSource("replay", "monday::claude")


def test_an_alias_is_its_entry():
    assert parsed("claude") == CATALOG.entry("claude")


def test_litellm_takes_any_provider():
    entry = parsed("litellm:openrouter/anthropic/claude-opus-5")
    assert (entry.provider, entry.model) == ("litellm", "openrouter/anthropic/claude-opus-5")
    assert entry.name == "litellm_openrouter_anthropic_claude-opus-5"


@pytest.mark.parametrize(
    ("spec", "model", "url"),
    [
        ("openai:Qwen/Qwen3.6-27B@http://127.0.0.1:8000/v1", "Qwen/Qwen3.6-27B", "http://127.0.0.1:8000/v1"),
        ("openai:m@ix@https://host/v1/", "m@ix", "https://host/v1"),
    ],
)
def test_openai_is_a_model_at_a_url(spec, model, url):
    entry = parsed(spec)
    assert (entry.provider, entry.model, entry.api_base, entry.api_key_env) == ("openai", model, url, None)


def test_a_command_is_split_as_a_shell_does():
    entry = parsed("command:agent --say 'two words'")
    assert entry.command == ("agent", "--say", "two words")
    assert parsed("command:./bin/agent x").command == (str(Path("bin/agent").absolute()), "x")


def test_an_exchange_is_a_folder():
    entry = parsed("exchange:box/inner")
    assert entry.folder == str(Path("box/inner").absolute())
    assert entry.name == "exchange_box_inner"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gtp", r"unknown model; expected one of: reference .*; file:PATH .*; exchange:FOLDER .*Did you mean 'gpt'\?"),
        ("refrence", r"Did you mean 'reference'\?"),
        ("", r"unknown model"),
        ("openai:", r"unknown model"),
        ("OpenAI:m@http://h/v1", r"--model OpenAI:\.\.\.: unknown model"),
        ("litellm:gpt", r"expected litellm:PROVIDER/MODEL"),
        ("openai:model", r"expected openai:MODEL@URL"),
        ("openai:m@http://me:s3cret@host/v1", r"`api_base`: expected a URL without user, password"),
        ("openai:m@http://host/v1?key=s3cret", r"`api_base`: expected a URL without"),
        ("command:agent 's3cret", r"as a shell reads them; No closing quotation"),
    ],
)
def test_an_error_says_what_is_wrong_and_no_secret(spec, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_spec(spec, CATALOG)
    assert "s3cret" not in str(caught.value)
