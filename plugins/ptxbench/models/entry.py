"""One model as a catalogue or ``--model`` describes it: who answers, with which settings, at what price."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, JsonValue, model_validator

from ptxbench.models.credentials import credential_in, is_variable_name, secrets_in
from ptxbench.records import Record
from ptxbench.trace.base import Text, broken

Provider = Literal["litellm", "openai", "command", "exchange"]
Tokens = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]

TIMEOUT_S = 3600.0
EXCHANGE_TIMEOUT_S = 30 * 86400.0
"""An exchange's replies may take days."""

HAS_MODEL = frozenset({"litellm", "openai"})
"""Providers that are asked over a network for a model by its name."""

OWN_PARAMETERS = frozenset(
    {"model", "messages", "stream", "stream_options", "n", "timeout", "num_retries", "max_retries", "drop_params"}
    | {"api_base", "base_url", "additional_drop_params", "modify_params", "mock_response", "fallbacks", "cache"}
)
"""Request parameters that ``thinking`` and ``extra`` may not hold: we set them, or they would change what is sent."""

_DECODING = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k"}


def _is_plain_url(value: str) -> str:
    """The value is never quoted: what is refused here may be a password."""
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise broken((), "a URL such as http://127.0.0.1:8000/v1", "another text")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        expected = "a URL without user, password, query and fragment, since credentials come from the environment only"
        raise broken((), expected, "one with them")
    return value.rstrip("/")


def _is_variable(value: str) -> str:
    """The value is never quoted: what is refused here may be the key itself."""
    if not is_variable_name(value):
        raise broken((), "the name of an environment variable, which holds the key", "a text that is none")
    return value


Url = Annotated[str, AfterValidator(_is_plain_url)]
Variable = Annotated[str, AfterValidator(_is_variable)]


class Prices(Record):
    """US dollars per million tokens."""

    input: Price
    cached_input: Price | None = None
    """Of input tokens that the provider had cached; None: as ``input``."""
    cache_write: Price | None = None
    """Of input tokens that the provider was told to cache; None: as ``input``."""
    output: Price
    """Of all generated tokens, reasoning included."""
    as_of: str = ""
    """Day on which the prices were looked up, ISO 8601."""
    source: str = ""
    """Where."""


class EntryFields(Record):
    """An entry as a models file holds it. None means: not sent, the provider's own default holds."""

    provider: Provider
    model: Text | None = None
    """In the provider's words: ``PROVIDER/MODEL`` for litellm, the served name for openai."""
    api_base: Url | None = None
    """Root of the API, up to and with ``/v1``. Required for openai."""
    api_key_env: Variable | None = None
    """Environment variable that holds the key. None: no key (openai), or litellm's own variable of the provider."""
    context: Tokens | None = None
    """Tokens that prompt and answer may have together. For estimates; never sent."""
    max_output_tokens: Tokens | None = None
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    thinking: dict[str, JsonValue] = Field(default_factory=dict)
    """Request parameters for reasoning, named and shaped as the provider wants them."""
    extra: dict[str, JsonValue] = Field(default_factory=dict)
    """Further request parameters, passed through whole."""
    prices: Prices | None = None
    stream: bool = True
    """Whether the answer is read as it is generated: a broken connection then shows early."""
    timeout_s: Seconds = Field(default_factory=lambda fields: _default_timeout_s(fields))
    """Of one whole call, in seconds: by default TIMEOUT_S, and EXCHANGE_TIMEOUT_S for an exchange."""
    connect_timeout_s: Seconds = 30.0
    first_byte_timeout_s: Seconds = 900.0
    """From the request to the first byte of a streamed answer: prompt processing and the provider's queue."""
    between_bytes_timeout_s: Seconds = 900.0
    """Between two pieces of a streamed answer. Thinking that the provider keeps to itself is silence."""
    command: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None
    """Program and arguments of a coding agent."""
    folder: Text | None = None
    """Folder of an exchange."""

    @model_validator(mode="after")
    def _fits_the_provider(self) -> EntryFields:
        required = {"litellm": ("model",), "openai": ("model", "api_base")}.get(self.provider)
        for field in required or ({"command": "command", "exchange": "folder"}[self.provider],):
            if getattr(self, field) is None:
                raise broken((field,), f"a value, since the provider is {self.provider}", "none")
        for field, provider in (("command", "command"), ("folder", "exchange")):
            if getattr(self, field) is not None and self.provider != provider:
                raise broken((field,), f"no value, since the provider is {self.provider}", "one")
        if self.command is not None and (place := credential_in(self.command)) is not None:
            expected = "no credential in a command; let the program read it from its environment"
            raise broken(("command", place), expected, "what looks like one")
        if self.provider not in HAS_MODEL:
            self._refuse_what_only_networks_have()
        return self

    def _refuse_what_only_networks_have(self) -> None:
        names = ("api_base", "api_key_env", "max_output_tokens", *_DECODING, "thinking", "extra")
        for field in names:
            if getattr(self, field) not in (None, {}):
                expected = f"no value, since the provider {self.provider} has no way to pass it on"
                raise broken((field,), expected, "one")

    @model_validator(mode="after")
    def _keeps_to_its_parameters(self) -> EntryFields:
        taken = {_DECODING[name] for name in _DECODING if getattr(self, name) is not None}
        if self.max_output_tokens is not None:
            taken |= {"max_tokens", "max_completion_tokens"}
        for field, mapping in (("thinking", self.thinking), ("extra", self.extra)):
            for name in mapping:
                if name in OWN_PARAMETERS:
                    raise broken((field, name), "a parameter that is not ours to set", repr(name))
                if name in taken:
                    raise broken((field, name), "each parameter once", f"{name!r}, which the entry sets elsewhere too")
            taken |= set(mapping)
            for loc in secrets_in(mapping):
                expected = "no credential in a file; name its environment variable as api_key_env"
                raise broken((field, *loc), expected, f"the key {loc[-1]!r}")
        return self


class ModelEntry(EntryFields):
    """An entry with its name: an alias, or a slug of the ``--model`` text."""

    name: str

    def parameters(self, limit: str = "max_tokens") -> dict[str, JsonValue]:
        """Everything that a request carries beside model, messages and transport. ``limit`` names the output limit."""
        own = {name: getattr(self, name) for name in _DECODING} | {limit: self.max_output_tokens}
        return {name: value for name, value in own.items() if value is not None} | self.thinking | self.extra

    def chat_parameters(self) -> dict[str, JsonValue]:
        """The same with model and transport, as OpenAI's chat completions and litellm take them."""
        fixed: dict[str, JsonValue] = {"model": self.model, **self.parameters(), "stream": False}
        return fixed | {"stream": True, "stream_options": {"include_usage": True}} if self.stream else fixed


def _default_timeout_s(fields: Mapping[str, object]) -> float:
    return EXCHANGE_TIMEOUT_S if fields.get("provider") == "exchange" else TIMEOUT_S
