import argparse
from pathlib import Path

import pytest

from ptxbench.arguments import TOKEN_VARIABLE
from ptxbench.errors import InputError
from ptxbench.service.command import add_options, settings_of
from ptxbench.service.settings import Settings


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)

    def reading(*arguments: str) -> Settings:
        parser = argparse.ArgumentParser()
        add_options(parser)
        return settings_of(parser.parse_args(arguments), tmp_path)

    return reading


def test_by_default_only_this_machine_is_served(read, tmp_path) -> None:
    settings = read()
    assert (settings.host, settings.token) == ("127.0.0.1", None)
    assert settings.store == tmp_path / "generated" / "serve"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org"])
def test_a_network_needs_a_token(read, host, tmp_path, monkeypatch) -> None:
    with pytest.raises(InputError, match="expected a token"):
        read("--host", host)
    assert read("--host", host, "--no-token").token is None
    (tmp_path / "token").write_text("secret\n")
    assert read("--host", host, "--token-file", "token").token == "secret"
    monkeypatch.setenv(TOKEN_VARIABLE, "other")
    assert read("--host", host).token == "other"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_this_machine_needs_none(read, host) -> None:
    assert read("--host", host).host == host


@pytest.mark.parametrize("text", ["", "two words", "ünicode"])
def test_a_token_is_one_word(read, tmp_path, text) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(InputError, match="--token-file"):
        read("--token-file", "token")


def test_a_token_of_the_environment_is_one_too(read, monkeypatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "two words")
    with pytest.raises(InputError, match=f"{TOKEN_VARIABLE}: expected a token of one word"):
        read()


def test_no_token_is_none(read, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "of the shell, for another service")
    assert read("--host", "0.0.0.0", "--no-token").token is None
    (tmp_path / "token").write_text("secret")
    with pytest.raises(InputError, match="expected one of them, found both"):
        read("--no-token", "--token-file", "token")


def test_folders_of_evidence_are_there(read, tmp_path) -> None:
    with pytest.raises(InputError, match="--evidence none: expected a folder with evidence"):
        read("--evidence", ".", "--evidence", "none")
    assert read("--evidence", ".").evidence == (tmp_path,)


@pytest.mark.parametrize("port", ["-1", "65536", "http", "1e3"])
def test_a_port_is_a_number(read, port) -> None:
    with pytest.raises(SystemExit):
        read(f"--port={port}")
