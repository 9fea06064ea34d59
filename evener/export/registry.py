"""Every exporter by the name that the command line knows.  A new one is a new file and a line."""

from collections.abc import Mapping
from types import MappingProxyType

from evener.export.exporter import Exporter
from evener.export.torch_csv import TorchCsv

EXPORTERS: Mapping[str, Exporter] = MappingProxyType({"torch_csv": TorchCsv()})
