import pytest

from ptxbench.arguments import TOKEN_VARIABLE
from ptxbench.client.retrying import LONGEST_WAIT_S, Attempts, ServiceError, settings_of


@pytest.fixture
def settings():
    return settings_of("http://127.0.0.1:1/", None, 1000.0)


def test_waits_double_up_to_a_bound_and_are_not_all_the_same(settings) -> None:
    attempts = Attempts(settings)
    waits = [attempts.after_failure(ConnectionResetError("gone")) for _ in range(12)]
    bounds = [min(LONGEST_WAIT_S, 0.1 * 2**number) for number in range(12)]
    assert all(bound / 2 <= wait <= bound for wait, bound in zip(waits, bounds, strict=True))
    assert len({round(wait / bound, 3) for wait, bound in zip(waits, bounds, strict=True)}) > 6


def test_a_busy_service_is_taken_at_its_word(settings) -> None:
    assert 7.0 <= Attempts(settings).after_answer(429, {"retry-after": "7"}, "{}") <= 7.2


@pytest.mark.parametrize("status", [400, 401, 404, 409, 413, 422, 500])
def test_what_would_end_the_same_way_is_not_tried_again(settings, status) -> None:
    with pytest.raises(ServiceError, match="the reason") as caught:
        Attempts(settings).after_answer(status, {}, '{"detail": "the reason"}')
    assert caught.value.status == status


def test_patience_ends() -> None:
    attempts = Attempts(settings_of("http://127.0.0.1:1", None, 0.0))
    with pytest.raises(ServiceError, match="expected a PTXBench service there, found ConnectionResetError: gone"):
        attempts.after_failure(ConnectionResetError("gone"))


def test_token_comes_from_the_environment(monkeypatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    assert settings_of("http://a", None, 1.0).headers["authorization"] == "Bearer secret"
    assert settings_of("http://a", "own", 1.0).headers["authorization"] == "Bearer own"


@pytest.mark.parametrize("token", ["ü", "a b", "a\nb", " a", "a "])
def test_what_no_header_can_hold_is_no_token(monkeypatch, token: str) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    with pytest.raises(ServiceError, match=f"{TOKEN_VARIABLE}: expected a token of one word"):
        settings_of("http://a", None, 1.0)


@pytest.mark.parametrize(
    "url",
    [
        *("", "localhost:8600", "ftp://a", "http://", "http://:1", "http://a:99999", "http://a:0x1", "http://[::1"),
        *("http://a b", "http://a\n", "http://a/?q=1", "http://a/#f"),
    ],
)
def test_an_address_is_a_url(url: str) -> None:
    with pytest.raises(ServiceError, match="expected the URL"):
        settings_of(url, None, 1.0)


@pytest.mark.parametrize("url", ["http://a", "HTTP://a:1/", "https://[::1]:8600/below", "http://ü.example"])
def test_addresses(url: str) -> None:
    assert settings_of(url, None, 1.0).url == url.rstrip("/")


def test_patience_is_a_number() -> None:
    with pytest.raises(ServiceError, match="expected seconds, found nan"):
        settings_of("http://a", None, float("nan"))
