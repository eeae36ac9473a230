"""Keys from the environment, and text without them."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.errors import InputError
from ptxbench.models.secrets import Scrubber, Secret, environment_secrets, read_key
from tests.unit.models.parts import entry

VALUE = 'k3y/with+odd=chars&"quote'


def test_reads_a_key(monkeypatch):
    monkeypatch.setenv("MY_KEY", f"  {VALUE}\n")
    key = read_key(entry("litellm", model="a/b", api_key_env="MY_KEY"))
    assert key is not None
    assert key.reveal() == VALUE
    assert VALUE not in f"{key} {key!r} {[key]}"
    assert read_key(entry("litellm", model="a/b")) is None


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_key_names_its_variable(monkeypatch, value):
    monkeypatch.delenv("MY_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(
        InputError, match=r"model subject: expected its API key in .* MY_KEY; found none\. .*export MY_KEY="
    ):
        read_key(entry("litellm", model="a/b", api_key_env="MY_KEY"))


def test_a_key_that_no_header_can_hold_is_not_quoted(monkeypatch):
    monkeypatch.setenv("MY_KEY", "s3cret\u2026")
    with pytest.raises(InputError, match=r"printable ASCII .* MY_KEY") as caught:
        read_key(entry("litellm", model="a/b", api_key_env="MY_KEY"))
    assert "s3cret" not in str(caught.value)


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_form_of_a_key_stays(before, after):
    scrub = Scrubber(Secret(VALUE))
    forms = (VALUE, quote(VALUE, safe=""), json.dumps(VALUE), base64.b64encode(VALUE.encode()).decode())
    for form in forms:
        found = scrub(f"{before}{form}{after}")
        assert VALUE not in found
        assert form.strip('"') not in found


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abc.s3cret",
        "authorization': 'Bearer s3cret'",
        "x-api-key: s3cret",
        '{"api-key": "s3cret"}',
        "Proxy-Authorization: Basic dXNlcjpzM2NyZXQ= s3cret"[:45],
        "sent Bearer abcdefs3cret",
        "Incorrect API key provided: sk-proj-abcdefgs3cret.",
        "http://user:s3cret@host/v1 refused",
        "https://s3cret@host:80/",
        "GET https://host/v1?key=s3cret&x=1 failed",
        "gsk_s3cretabcdefghij",
    ],
)
def test_unknown_credentials_are_found_by_where_they_stand(text):
    assert "s3cret" not in Scrubber()(text)


@pytest.mark.parametrize(
    "text",
    [
        "HTTP 429: Rate limit reached for requests. Limit: 30000 tokens, please try again in 6.2 s",
        "prompt is too long: 209000 tokens > 200000 maximum",
        "This model's maximum context length is 4096 tokens (see https://host/docs).",
        "the sk-learn package; risk-free",
    ],
)
def test_other_words_stay(text):
    assert Scrubber()(text) == text


def test_the_environments_secrets_are_known(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "plainlongvalue")
    monkeypatch.setenv("DB_PASSWORD", "short")
    monkeypatch.setenv("KEYBOARD_LAYOUT", "plainotherword")
    assert Scrubber()("plainlongvalue short plainotherword") == "[hidden] short plainotherword"
    assert "plainlongvalue" not in repr(Scrubber())


@given(st.integers(0, 900))
def test_a_cut_leaves_no_half_of_a_key(length):
    scrub = Scrubber(Secret(VALUE))
    text = "x" * length + VALUE + "y" * 900
    for found in (scrub.bounded(text, 800), scrub.end(text[::-1].replace(VALUE[::-1], VALUE), 800)):
        assert len(found) <= 803
        assert not any(VALUE[:size] in found for size in range(4, len(VALUE)))
        assert not any(VALUE[-size:] in found for size in range(4, len(VALUE)))


def test_an_answer_loses_the_key_and_nothing_else(monkeypatch):
    monkeypatch.setenv("OTHER_API_KEY", "plainlongvalue")
    scrub = Scrubber(Secret(VALUE), None)
    text = f"api_key = 5; bearer abcdefghijk; http://h/?q=1 plainlongvalue {VALUE}"
    assert scrub.answer(text) == text.replace(VALUE, "[hidden]")
    assert Scrubber(Secret("EMPTY")).answer("EMPTY barrier") == "EMPTY barrier"
    assert Scrubber(*environment_secrets()).answer("plainlongvalue") == "[hidden]"


def test_a_known_credential_is_found_in_any_form(monkeypatch):
    monkeypatch.setenv("OTHER_API_KEY", "plainlongvalue")
    scrub = Scrubber()
    assert scrub.knows_one_in("// plainlongvalue\n")
    assert scrub.knows_one_in(f"// {base64.b64encode(b'plainlongvalue').decode()}\n")
    assert not scrub.knows_one_in("// Authorization: Bearer abcdefghijk\n")
