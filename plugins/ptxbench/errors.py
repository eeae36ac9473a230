"""Errors that users meet. Each says what was expected, what was found and what to do."""

from __future__ import annotations


class PtxBenchError(Exception):
    """Base of every error of ours. ``str()`` is a complete message for the user."""


class InputError(PtxBenchError):
    """The user's input is wrong: an unknown name, a broken file, an option out of range."""


class InfrastructureError(PtxBenchError):
    """The machinery failed, through no fault of the candidate. ``kind`` is stable and machine-readable.

    Kinds: ``no_device``, ``device_mismatch``, ``device_disturbed`` (twice, while it measured one thing),
    ``device_quarantined``, ``out_of_device_memory``, ``oracle_died``, ``oracle_timeout``, ``sandbox_failed``,
    ``reference_failed``, ``baseline_unavailable``, ``compiler_missing``, ``compiler_crashed``, ``disk_full``,
    ``busy_device``, ``stopped``, ``turn_missing`` (of a run that is repeated), ``internal_error``. Of a service or a
    cluster that measures: ``service_unavailable``, ``service_refused``, ``build_mismatch`` (its compiler makes other
    device code), ``worker_died``. Of a language model: ``model_rate_limited``, ``model_overloaded``,
    ``model_server_error``, ``model_connection``, ``model_timeout``, ``model_malformed_response`` where it stayed so
    over every attempt; ``model_authentication``, ``model_not_found``, ``model_bad_request``, ``model_quota``,
    ``model_unavailable`` where another attempt would end the same way; ``model_cancelled`` when the run is stopped.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
