"""What the user describes: a model, a cluster and a job."""

from evener.spec.catalogue import device_catalogue
from evener.spec.cluster import ClusterSpec, Device, Link, NodeSpec, ZoneLinkSpec
from evener.spec.device import DeviceSpec, LinkSpec
from evener.spec.fields import DTYPE_BYTES, Dtype, Spec
from evener.spec.job import AdamSpec, DtypesSpec, FreezeSpec, JobSpec, OptimizerSpec, SgdSpec
from evener.spec.layers import (
    AttentionSpec,
    BlockSpec,
    EmbeddingSpec,
    HeadSpec,
    LatentSpec,
    LayerSpec,
    Mamba1Spec,
    MambaSpec,
    MlpSpec,
    MoeSpec,
    OpaqueSpec,
)
from evener.spec.model import Layer, ModelSpec
from evener.spec.parameters import num_parameters
from evener.spec.side_work import SideWorkSpec
from evener.spec.toml import build_spec, load_toml, parse_toml

__all__ = [
    "DTYPE_BYTES",
    "AdamSpec",
    "AttentionSpec",
    "BlockSpec",
    "ClusterSpec",
    "Device",
    "DeviceSpec",
    "Dtype",
    "DtypesSpec",
    "EmbeddingSpec",
    "FreezeSpec",
    "HeadSpec",
    "JobSpec",
    "LatentSpec",
    "Layer",
    "LayerSpec",
    "Link",
    "LinkSpec",
    "Mamba1Spec",
    "MambaSpec",
    "MlpSpec",
    "ModelSpec",
    "MoeSpec",
    "NodeSpec",
    "OpaqueSpec",
    "OptimizerSpec",
    "SgdSpec",
    "SideWorkSpec",
    "Spec",
    "ZoneLinkSpec",
    "build_spec",
    "device_catalogue",
    "load_toml",
    "num_parameters",
    "parse_toml",
]
