"""The report as a page that people read, and its figures as files."""

from ptxbench.report.page.figure_files import write_figures
from ptxbench.report.page.html import write_page

__all__ = ["write_figures", "write_page"]
