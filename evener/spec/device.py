"""A type of device: what it holds and how fast it is."""

from typing import Literal

from evener.spec.fields import Bytes, BytesPerS, Dtype, FlopsPerS, Ns, Spec

PeakFormat = Literal[Dtype, "tfloat32"]


class LinkSpec(Spec):
    """One direction of the link between two devices."""

    bandwidth_bytes_per_s: BytesPerS
    latency_ns: Ns


class DeviceSpec(Spec):
    """A type of device.

    memory_bytes: of one device. memory_bandwidth_bytes_per_s: to its own memory.
    peak_flops_per_s: dense matrix products by number format, accumulated in float32 or wider.
    link: between two such devices of one node, where the node does not say otherwise.
    host: to the memory of the device's host, and as fast from there.
    source: where the numbers come from.
    """

    memory_bytes: Bytes
    memory_bandwidth_bytes_per_s: BytesPerS
    peak_flops_per_s: dict[PeakFormat, FlopsPerS]
    link: LinkSpec | None = None
    host: LinkSpec | None = None
    source: str = ""

    def flops_per_s(self, dtype: Dtype) -> int:
        """Peak rate of matrix products in a format.

        A format that the device lacks is computed in float32. Zero when neither is known.
        """
        return self.peak_flops_per_s.get(dtype) or self.peak_flops_per_s.get("float32", 0)
