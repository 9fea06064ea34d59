"""Read a Hugging Face ``config.json`` as a ModelSpec.

Parameter counts equal those of transformers 5.24 for the language model with its head. Extra
layers for multi-token prediction (DeepSeek-V3, Nemotron) are not part of that model.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from evener.errors import SpecError, Violation
from evener.spec.hf_families import FAMILIES, Parts
from evener.spec.hf_values import HfValues
from evener.spec.layers import BlockSpec, EmbeddingSpec, HeadSpec, LayerSpec
from evener.spec.model import ModelSpec
from evener.spec.toml import read_text
from evener.units import too_many_digits

SUPPORTED_MODEL_TYPES = tuple(FAMILIES)


def model_from_hf_config(
    config: Mapping[str, Any] | str | Path, *, name: str | None = None, split_blocks: bool = False
) -> ModelSpec:
    """The model that a Hugging Face configuration describes.

    config: the parsed ``config.json``, its path or the folder that holds it. name: of the model;
    by default the folder's, or the model type. split_blocks: make attention (or Mamba) and
    feed-forward layers of their own, which gives a partition twice as many places to cut.

    Raises SpecError with all violations: unreadable, unsupported ``model_type``, missing or
    wrong values.
    """
    file, values = _read(config)
    model_type = values.get("model_type")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        found = Violation(_unsupported(model_type, values), file=file, key="model_type")
        raise SpecError(_header(file), [found])
    given = {key: value for key, value in values.items() if value is not None}
    reader = HfValues(family.defaults | given, file)
    layers = list(family.parts(reader))
    hidden_size, vocabulary_size = reader.count("hidden_size"), reader.count("vocab_size")
    tied = reader.flag("tie_word_embeddings")
    if reader.violations:
        raise SpecError(_header(file), reader.violations)
    configs, order = _named(layers, split_blocks)
    return ModelSpec(
        name=name or _folder_name(file) or str(model_type),
        hidden_size=hidden_size,
        vocabulary_size=vocabulary_size,
        tied_embeddings=tied,
        post_norm=family.post_norm,
        layer_configs={"embedding": EmbeddingSpec(), **configs, "head": HeadSpec()},
        pattern=" ".join(("embedding", *_runs(order), "head")),
    )


def _read(config: Mapping[str, Any] | str | Path) -> tuple[str, Mapping[str, Any]]:
    """The name of the source in messages, and its values."""
    if isinstance(config, Mapping):
        return "config", config
    path = Path(config) / "config.json" if Path(config).is_dir() else Path(config)
    written = read_text(path, ModelSpec)
    try:
        values = json.loads(written)
    except json.JSONDecodeError as error:
        text = f"not JSON at column {error.colno}: {error.msg}"
        raise SpecError(_header(str(path)), [Violation(text, str(path), error.lineno)]) from None
    except ValueError:  # Python reads no number of thousands of digits
        text = str(too_many_digits(written))
        raise SpecError(_header(str(path)), [Violation(text, str(path))]) from None
    except RecursionError:
        text = "not JSON: is nested too deeply"
        raise SpecError(_header(str(path)), [Violation(text, str(path))]) from None
    if not isinstance(values, dict):
        text = "is not a JSON object, as a config.json is"
        raise SpecError(_header(str(path)), [Violation(text, str(path))])
    return str(path), values


def _folder_name(file: str) -> str:
    return Path(file).absolute().parent.name if Path(file).name == "config.json" else ""


def _named(layers: list[Parts], split_blocks: bool) -> tuple[dict[str, LayerSpec], list[str]]:
    """Layer configurations by name, and the name of each layer in order."""
    names: dict[LayerSpec, str] = {}
    order = []
    for parts in layers:
        specs: tuple[LayerSpec, ...] = parts
        if len(parts) == 2 and not split_blocks:
            specs = (BlockSpec(mixer=parts[0], feedforward=parts[1]),)
        for spec in specs:
            if spec not in names:
                alike = sum(other.kind == spec.kind for other in names)
                names[spec] = f"{spec.kind}{alike + 1}" if alike else spec.kind
            order.append(names[spec])
    return {name: spec for spec, name in names.items()}, order


def _runs(order: list[str]) -> Iterator[str]:
    for name, run in groupby(order):
        length = len(list(run))
        yield f"{length} x {name}" if length > 1 else name


def _header(file: str) -> str:
    return f"{file} does not describe a model that Evener can read:"


def _unsupported(model_type: object, values: Mapping[str, Any]) -> str:
    supported = f"supported: {', '.join(SUPPORTED_MODEL_TYPES)}"
    if "text_config" in values:
        return (
            f'"{model_type}" has parts besides its language model; give its text_config alone '
            f"({supported})"
        )
    if model_type is None:
        return f"is missing ({supported})"
    return f'"{model_type}" is not supported ({supported})'
