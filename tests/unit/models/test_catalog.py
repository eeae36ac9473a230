"""``models.yaml``, ours and the user's."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from ptxbench.errors import InputError
from ptxbench.models.base import NAME_PATTERN
from ptxbench.models.catalog import load_catalog

ALIASES = ("claude", "gemini", "gpt", "glm", "qwen", "deepseek")


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


def price_map() -> dict[str, dict[str, object]]:
    """litellm's own, read without importing litellm."""
    found = importlib.util.find_spec("litellm")
    assert found is not None
    assert found.origin is not None
    text = Path(found.origin).with_name("model_prices_and_context_window_backup.json").read_text()
    known: dict[str, dict[str, object]] = json.loads(text)
    return known


def test_has_the_usual_aliases():
    catalog = load_catalog()
    assert set(ALIASES) < set(catalog.names)
    assert all(NAME_PATTERN.fullmatch(name) for name in catalog.names)
    assert catalog.entry("claude").name == "claude"


@pytest.mark.parametrize("name", load_catalog().names)
def test_every_model_of_ours_exists(name):
    """Names, limits and prices are those that litellm knows; a model that it no longer knows is to be replaced."""
    entry = load_catalog().entry(name)
    assert entry.provider == "litellm"
    assert entry.model is not None
    provider, _, bare = entry.model.partition("/")
    known = price_map()
    facts = known.get(entry.model) or known[bare]
    assert facts["litellm_provider"] == provider
    assert entry.context == facts["max_input_tokens"]
    assert entry.max_output_tokens is not None
    assert entry.max_output_tokens <= int(str(facts["max_output_tokens"]))
    assert entry.prices is not None
    assert entry.prices.input == pytest.approx(float(str(facts["input_cost_per_token"])) * 1e6)
    assert entry.prices.output == pytest.approx(float(str(facts["output_cost_per_token"])) * 1e6)
    if entry.prices.cached_input is not None:
        assert entry.prices.cached_input == pytest.approx(float(str(facts["cache_read_input_token_cost"])) * 1e6)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", entry.prices.as_of)
    assert entry.prices.source
    assert (entry.temperature, entry.top_p, entry.top_k) == (None, None, None)
    assert entry.api_key_env is not None


def test_an_unknown_name_gets_the_closest():
    with pytest.raises(InputError, match=r"found 'cluade'\. Did you mean 'claude'\? .*--models-file"):
        load_catalog().entry("cluade")


def test_a_users_file_adds_and_replaces_whole(tmp_path):
    path = write(
        tmp_path,
        "models:\n"
        "  claude:\n    provider: openai\n    model: mine\n    api_base: http://127.0.0.1:1/v1\n"
        "  local:\n    provider: exchange\n    folder: box\n"
        "  agent:\n    provider: command\n    command: [bin/agent, --fast]\n"
        "  bare:\n    provider: command\n    command: [agent]\n",
    )
    catalog = load_catalog(path)
    assert catalog.names[-3:] == ("local", "agent", "bare")
    claude = catalog.entry("claude")
    assert (claude.model, claude.prices, claude.max_output_tokens) == ("mine", None, None)
    assert catalog.entry("local").folder == str(tmp_path / "box")
    assert catalog.entry("agent").command == (str(tmp_path / "bin/agent"), "--fast")
    assert catalog.entry("bare").command == ("agent",)
    assert catalog.entry("gpt") == load_catalog().entry("gpt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "models:\n  a:\n    provider: litellm\n    modle: x\n",
            r"mine\.yaml:4: `models\.a\.modle`: .*unknown key 'modle'.*Did you mean 'model'\?",
        ),
        (
            "models:\n  a:\n    provider: openai\n    model: x\n",
            r"mine\.yaml:2: `models\.a\.api_base`: expected a value, .* openai; found none\. .*docs/models\.md",
        ),
        ("models:\n  a:\n    provider: cloud\n    model: x\n", r"mine\.yaml:3: `models\.a\.provider`: .*found 'cloud'"),
        (
            "models:\n  a:\n    provider: litellm\n    model: x/y\n    prices: {input: 1, output: -1}\n",
            r"mine\.yaml:5: `models\.a\.prices\.output`: expected a number greater than or equal to 0; found -1",
        ),
        ("models:\n  'a b':\n    provider: litellm\n    model: x\n", r"mine\.yaml:2: .*a string that matches"),
        (
            "models:\n  reference:\n    provider: litellm\n    model: x\n",
            r"mine\.yaml:2: .*no other form of --model has",
        ),
        ("schema_version: 2\nmodels: {}\n", r"mine\.yaml:1: `schema_version`"),
        ("models:\n  a: &x\n    provider: litellm\n", r"mine\.yaml:\d: .*anchor"),
        (
            "models:\n  a:\n    provider: litellm\n    model: x/y\n    extra:\n      api_key: s3cret\n",
            r"mine\.yaml:6: `models\.a\.extra\.api_key`: expected no credential in a file",
        ),
    ],
)
def test_errors_name_the_line(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as caught:
        load_catalog(write(tmp_path, text))
    assert "s3cret" not in str(caught.value)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(InputError, match=r"none\.yaml: expected a readable file"):
        load_catalog(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ("provider: litellm\n    model: a/b\n    api_key_env: sk-ant-s3cret0123456789", "api_key_env"),
        ("provider: command\n    command: [agent, --api-key=s3cretvalue]", "command[1]"),
        ("provider: command\n    command: [agent, sk-ant-s3cret0123456789]", "command[1]"),
    ],
)
def test_a_credential_in_a_file_is_refused_and_not_quoted(tmp_path, fields, place):
    with pytest.raises(InputError) as caught:
        load_catalog(write(tmp_path, f"models:\n  mine:\n    {fields}\n"))
    assert f"`models.mine.{place}`: expected " in str(caught.value)
    assert "s3cret" not in str(caught.value)
