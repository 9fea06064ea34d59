"""Every format by the name that the command line knows.  A new one is a new file and a line."""

from collections.abc import Mapping
from types import MappingProxyType

from evener.export.exporter import Exporter
from evener.export.imported import Importer
from evener.export.megatron import Megatron
from evener.export.megatron_reader import MegatronReader
from evener.export.torch_csv import TorchCsv
from evener.export.torchtitan import Torchtitan
from evener.export.torchtitan_reader import TorchtitanReader

EXPORTERS: Mapping[str, Exporter] = MappingProxyType(
    {
        "torch_csv": TorchCsv(),
        "torch_csv_comms": TorchCsv(messages=True),
        "torchtitan": Torchtitan(),
        "megatron": Megatron(),
    }
)

IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {"torchtitan": TorchtitanReader(), "megatron": MegatronReader()}
)
