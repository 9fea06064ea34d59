"""Plans and timelines in the formats of other systems."""

from evener.export.exporter import Exporter, Reason
from evener.export.perfetto import chrome_trace, write_trace
from evener.export.torch_csv import TorchCsv
from evener.export.torch_csv_reader import read_schedule

__all__ = ["Exporter", "Reason", "TorchCsv", "chrome_trace", "read_schedule", "write_trace"]
