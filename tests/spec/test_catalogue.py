import csv
from pathlib import Path

import pytest

from evener.spec import device_catalogue

# Names of the catalogue for those of data/accelerators.csv.
NAMES = {
    "NVIDIA GB200 SXM": "gb200",
    "NVIDIA B200 SXM": "b200",
    "NVIDIA H200 SXM": "h200-sxm",
    "NVIDIA H100 SXM": "h100-sxm",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA GH200 SXM": "gh200-96g",
    "NVIDIA GH200 SXM (1)": "gh200-96g",
    "NVIDIA GH200 SXM (2)": "gh200-144g",
    "NVIDIA A100 SXM": "a100-80g-sxm",
    "NVIDIA A100 PCIe": "a100-80g-pcie",
    "NVIDIA L40S": "l40s",
    "AMD MI325X": "mi325x",
    "AMD MI300X": "mi300x",
    "AMD MI250X": "mi250x",
}
# One data sheet says 144 GB and 4.9 TB/s where the list of others says 141 GB and 4.8 TB/s.
TOLERANCE = 0.025

with (Path(__file__).parent / "data/accelerators.csv").open() as file:
    ROWS = [
        row
        for row in csv.DictReader(line for line in file if not line.startswith("#"))
        if row["accelerator"] in NAMES
    ]


def test_every_name_has_a_peak_or_a_memory() -> None:
    assert {row["accelerator"] for row in ROWS} == set(NAMES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['kind']} {row['accelerator']}")
def test_numbers_agree_with_an_independent_list(row: dict[str, str]) -> None:
    device = device_catalogue()[NAMES[row["accelerator"]]]
    if row["kind"] == "memory":
        # Columns: terabytes per second, gigabytes.
        bandwidth_bytes_per_s = float(row["value"]) * 10**12
        assert device.memory_bandwidth_bytes_per_s == pytest.approx(
            bandwidth_bytes_per_s, rel=TOLERANCE
        )
        assert device.memory_bytes == pytest.approx(int(row["ref"]) * 10**9, rel=TOLERANCE)
    else:
        # Columns: dense bfloat16 and, where there is such a format, float8, in TFLOP/s.
        assert device.flops_per_s("bfloat16") == pytest.approx(
            float(row["value"]) * 10**12, rel=TOLERANCE
        )
        if row["ref"] != "X":
            assert device.peak_flops_per_s["float8"] == pytest.approx(
                float(row["ref"]) * 10**12, rel=TOLERANCE
            )


@pytest.mark.parametrize("name", device_catalogue())
def test_an_entry_is_complete_and_in_order(name: str) -> None:
    device = device_catalogue()[name]
    assert device.source
    assert device.link is not None
    # Narrower formats are at least as fast.
    order = ("float32", "tfloat32", "bfloat16", "float8")
    peaks = [device.peak_flops_per_s[dtype] for dtype in order if dtype in device.peak_flops_per_s]
    assert peaks == sorted(peaks)
    # A link is slower than the memory.
    assert device.link.bandwidth_bytes_per_s < device.memory_bandwidth_bytes_per_s


def test_a_format_that_a_device_lacks_runs_in_float32() -> None:
    v100 = device_catalogue()["v100-32g-sxm2"]
    assert v100.flops_per_s("float16") == 125 * 10**12
    assert v100.flops_per_s("bfloat16") == v100.flops_per_s("float32") == 15_700 * 10**9


def test_a_device_of_unknown_rate() -> None:
    device = device_catalogue()["l4"].model_copy(update={"peak_flops_per_s": {}})
    assert device.flops_per_s("bfloat16") == 0
