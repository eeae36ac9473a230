"""What reports that are compared do not have in common: where their numbers differ, this may be why. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptxbench.records import Record
from ptxbench.report.document import Environment, RunReport

SHORT_HASH = 12
NOT_SAID = "not said"


class SettingDifference(Record):
    """A setting that is not the same in all reports."""

    setting: str
    values: tuple[str, ...]
    """One for each report, in their order."""

    def text(self, names: Sequence[str]) -> str:
        """One sentence with the reports' names."""
        listed = "; ".join(f"{name}: {value}" for name, value in zip(names, self.values, strict=True))
        return f"{self.setting} differs: {listed}"


def differing_settings(reports: Sequence[RunReport]) -> tuple[SettingDifference, ...]:
    """Return every setting in which the reports differ. What only one of them has is no difference but no model call.

    Baselines count where two reports have the same case and architecture.
    """
    columns = [(name, [_texts(report, read) for report in reports]) for name, read in _SETTINGS]
    columns.append(("baseline library", _baselines(reports)))
    return tuple(
        SettingDifference(setting=name, values=tuple(value or NOT_SAID for value in values))
        for name, values in columns
        if len({value for value in values if value}) > 1 or (name in _ALWAYS and any(values) and not all(values))
    )


_SETTINGS: tuple[tuple[str, Callable[[Environment], list[str]]], ...] = (
    ("device", lambda found: [device.name for device in found.devices]),
    ("driver", lambda found: [device.driver for device in found.devices]),
    ("CUDA runtime", lambda found: [device.cuda_runtime for device in found.devices]),
    ("libraries", lambda found: [f"{name} {', '.join(versions)}" for name, versions in found.libraries.items()]),
    ("compiler", lambda found: [f"nvcc {used.nvcc} {' '.join(used.flags)}" for used in found.compilers]),
    ("knowledge pack", lambda found: [f"{used.pack} {used.pack_sha256[:SHORT_HASH]}" for used in found.prompts]),
    ("knowledge level", lambda found: [used.level for used in found.prompts]),
    ("prompt template", lambda found: [used.template for used in found.prompts]),
    ("harness", lambda found: list(found.harnesses)),
    ("suite", lambda found: [f"{name} {sha[:SHORT_HASH]}" for name, sha in found.suites.items()]),
)
_ALWAYS = ("device", "driver")
"""Settings that every measured report has, so that one which does not say them is worth a word."""


def _texts(report: RunReport, read: Callable[[Environment], list[str]]) -> str:
    if report.environment is not None:
        return ", ".join(sorted(set(read(report.environment))))
    if read is _SETTINGS[0][1]:  # version 1 has the devices' names in its cells
        return ", ".join(sorted({device for cell in report.cells for device in cell.devices}))
    return ""


def _baselines(reports: Sequence[RunReport]) -> list[str]:
    """The library calls of cells that are in all reports, whatever the model."""
    shared = set.intersection(*({(cell.case, cell.arch) for cell in report.cells} for report in reports))
    return [
        ", ".join(
            sorted(
                {
                    f"{used.library} {used.version} ({used.call})"
                    for cell in report.cells
                    if (cell.case, cell.arch) in shared
                    for used in cell.baselines
                }
            )
        )
        for report in reports
    ]
