"""The device types that Evener knows by name, from ``catalogue.toml``."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from pydantic import Field

from evener.spec.device import DeviceSpec
from evener.spec.fields import Name, Spec
from evener.spec.toml import parse_toml


class _CatalogueSpec(Spec):
    device_types: dict[Name, DeviceSpec] = Field(validation_alias="device")


@cache
def device_catalogue() -> Mapping[str, DeviceSpec]:
    """All known device types by name."""
    text = files("evener.spec").joinpath("catalogue.toml").read_text("utf-8")
    return parse_toml(text, _CatalogueSpec, file="catalogue.toml").device_types
