"""Broken files: every text that a user can meet is pinned here, each in one line."""
# ruff: noqa: E501

import re
from pathlib import Path

import pytest

from evener.errors import SpecError
from evener.spec import ClusterSpec, JobSpec, ModelSpec, Spec, build_spec, load_toml, parse_toml

MODEL = """\
name = "small"
hidden_size = 64
vocabulary_size = 256
pattern = "embedding 2 x (attention mlp) head"
[layer.embedding]
kind = "embedding"
[layer.attention]
kind = "attention"
num_heads = 4
head_dim = 16
[layer.mlp]
kind = "mlp"
intermediate_size = 128
[layer.head]
kind = "head"
"""
CLUSTER = """\
name = "pair"
[[nodes]]
name = "a"
device = "h100-sxm"
count = 2
[[nodes]]
name = "b"
device = "tiny"
[device.tiny]
memory = "8 GiB"
memory_bandwidth = "100 GB/s"
peak.float32 = "1 TFLOP/s"
[between_nodes]
bandwidth = "10 Gbit/s"
latency = "5 us"
"""
JOB = """\
global_batch_sequences = 8
microbatch_size = 2
[optimizer]
kind = "adamw"
betas = [0.9, 0.95]
"""
BYTES = (
    'write an amount of memory such as "80 GiB" or "24 GB" '
    "(units: B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)"
)
RATE = (
    'write a bandwidth such as "400 Gbit/s" or "600 GB/s" (units: B/s, kB/s, MB/s, GB/s, TB/s, '
    "KiB/s, MiB/s, GiB/s, kbit/s, Mbit/s, Gbit/s, Tbit/s)"
)
TIME = 'write a time such as "5 us" or "1.5 ms" (units: ns, us, ms, s, min, h)'
FLOPS = (
    'write a compute rate such as "989 TFLOP/s" or "1.979 PFLOP/s" '
    "(units: FLOP/s, MFLOP/s, GFLOP/s, TFLOP/s, PFLOP/s)"
)
KINDS = "embedding, attention, mlp, moe, mamba, mamba1, block, head, module"

# (what is described, text replaced, its replacement, the violations after the name of the file)
BROKEN = {
    # Syntax
    "no value": (ModelSpec, "= 64", "=", [":2: not TOML at column 14: invalid value"]),
    "no end of text": (
        ModelSpec,
        '"small"',
        '"small',
        [":1: not TOML at column 14: illegal character '\\n'"],
    ),
    "table twice": (
        ModelSpec,
        "[layer.head]",
        "[layer.mlp]",
        [":14: not TOML at column 11: cannot declare ('layer', 'mlp') twice"],
    ),
    "value twice": (
        ModelSpec,
        "vocabulary_size",
        "hidden_size",
        [":3: not TOML at column 18: cannot overwrite a value"],
    ),
    "endless brackets": (
        JobSpec,
        "= 8",
        "= " + "[" * 9999,
        [": not TOML: is nested too deeply"],
    ),
    "endless": (JobSpec, "= 8", "= " + "9" * 5000, [": not TOML: a number is too long to read"]),
    "deep lists": (JobSpec, "= 8", "= " + "[" * 250 + "]" * 250, [": is nested too deeply"]),
    # Keys
    "misspelt key": (
        ModelSpec,
        "hidden_size",
        "hidden_sise",
        [
            ": hidden_size: is missing and has no default",
            ':2: hidden_sise: unknown key; did you mean "hidden_size"?',
        ],
    ),
    "strange key": (
        ModelSpec,
        'kind = "mlp"',
        'kind = "mlp"\nwidth_factor = 4',
        [
            ":13: layer.mlp.width_factor: unknown key; known: kind, intermediate_size, gated, activation, bias, dropout"
        ],
    ),
    "name of the field instead of the key": (
        ClusterSpec,
        "memory =",
        "memory_bytes =",
        [
            ":9: device.tiny.memory: is missing and has no default",
            ':10: device.tiny.memory_bytes: unknown key; did you mean "memory"?',
        ],
    ),
    "key of another optimizer": (
        JobSpec,
        "adamw",
        "sgd",
        [":5: optimizer.betas: unknown key; known: kind, learning_rate, momentum, weight_decay"],
    ),
    # Kinds of value
    "text for a number": (
        ModelSpec,
        "= 64",
        '= "64"',
        [':2: hidden_size: "64" should be a whole number'],
    ),
    "fraction for a number": (
        ModelSpec,
        "= 64",
        "= 64.5",
        [":2: hidden_size: 64.5 should be a whole number"],
    ),
    "truth for a number": (
        ModelSpec,
        "= 64",
        "= true",
        [":2: hidden_size: true should be a whole number"],
    ),
    "number for a text": (
        ModelSpec,
        '= "small"',
        "= 7",
        [":1: name: 7 should be a text in quotes"],
    ),
    "text for truth": (
        ModelSpec,
        "hidden_size = 64",
        'hidden_size = 64\ntied_embeddings = "yes"',
        [':3: tied_embeddings: "yes" should be true or false'],
    ),
    "blank in a name": (
        ModelSpec,
        '"small"',
        '"a model"',
        [":1: name: \"a model\" should be a name of letters, digits, '_' and '-'"],
    ),
    "number for a table": (
        JobSpec,
        "[optimizer]",
        "dtypes = 3\n[optimizer]",
        [":3: dtypes: 3 should be a table"],
    ),
    "table for a list": (
        ClusterSpec,
        'name = "pair"',
        'name = "pair"\nzone_links = { from = "x" }',
        [':2: zone_links: {"from": "x"} should be a list'],
    ),
    "date for a number": (
        JobSpec,
        "= 8",
        "= 2024-01-01",
        [':1: global_batch_sequences: "2024-01-01" should be a whole number'],
    ),
    # Ranges
    "negative size": (
        ModelSpec,
        "num_heads = 4",
        "num_heads = -4",
        [":9: layer.attention.num_heads: -4 should be greater than 0"],
    ),
    "nothing": (
        ModelSpec,
        "intermediate_size = 128",
        "intermediate_size = 0",
        [":13: layer.mlp.intermediate_size: 0 should be greater than 0"],
    ),
    "too large": (
        JobSpec,
        "= 8",
        "= 9223372036854775808",
        [":1: global_batch_sequences: 9223372036854775808 should be less than 9223372036854775808"],
    ),
    "no number": (
        JobSpec,
        "[0.9, 0.95]",
        "[0.9, nan]",
        [":5: optimizer.betas[1]: NaN should be a finite number"],
    ),
    "endless number": (
        JobSpec,
        "[optimizer]",
        "clip_norm = inf\n[optimizer]",
        [":3: clip_norm: Infinity should be a finite number"],
    ),
    "certain dropout": (
        ModelSpec,
        "head_dim = 16",
        "head_dim = 16\ndropout = 1.0",
        [":11: layer.attention.dropout: 1.0 should be less than 1"],
    ),
    "one of two": (
        JobSpec,
        "[0.9, 0.95]",
        "[0.9]",
        [":5: optimizer.betas[1]: is missing and has no default"],
    ),
    # Choices
    "unknown kind": (
        ModelSpec,
        'kind = "mlp"',
        'kind = "mpl"',
        [':12: layer.mlp.kind: unknown kind "mpl"; did you mean "mlp"?'],
    ),
    "strange kind": (
        ModelSpec,
        'kind = "mlp"',
        'kind = "convolution"',
        [f':12: layer.mlp.kind: unknown kind "convolution"; known: {KINDS}'],
    ),
    "no kind": (
        ModelSpec,
        'kind = "mlp"\n',
        "",
        [f":11: layer.mlp: has no kind; add kind = one of: {KINDS}"],
    ),
    "unknown choice": (
        JobSpec,
        "[optimizer]",
        '[dtypes]\nparameters = "bf16"\n[optimizer]',
        [
            ':4: dtypes.parameters: "bf16" is not one of "float64", "float32", "bfloat16", "float16", "float8"; did you mean "bfloat16"?'
        ],
    ),
    "neither number nor auto": (
        JobSpec,
        "= 2\n",
        '= "many"\n',
        [':2: microbatch_size: "many" should be a whole number greater than 0, or "auto"'],
    ),
    # Units
    "no unit": (
        ClusterSpec,
        '"8 GiB"',
        "8589934592",
        [f":10: device.tiny.memory: 8589934592 has no unit; {BYTES}"],
    ),
    "unknown unit": (
        ClusterSpec,
        '"8 GiB"',
        '"8 Gib"',
        [
            f':10: device.tiny.memory: "8 Gib" has the unknown unit "Gib"; did you mean "GiB"? {BYTES}'
        ],
    ),
    "unit of another kind": (
        ClusterSpec,
        '"100 GB/s"',
        '"100 GB"',
        [
            f':11: device.tiny.memory_bandwidth: "100 GB" is an amount of memory, not a bandwidth; {RATE}'
        ],
    ),
    "negative time": (
        ClusterSpec,
        '"5 us"',
        '"-5 us"',
        [f':15: between_nodes.latency: "-5 us" is negative; {TIME}'],
    ),
    "part of a nanosecond": (
        ClusterSpec,
        '"5 us"',
        '"0.5 ns"',
        [f':15: between_nodes.latency: "0.5 ns" is not a whole number of nanoseconds; {TIME}'],
    ),
    "rate without time": (
        ClusterSpec,
        '"1 TFLOP/s"',
        '"1 TFLOPS"',
        [
            f':12: device.tiny.peak.float32: "1 TFLOPS" has the unknown unit "TFLOPS"; did you mean "TFLOP/s"? {FLOPS}'
        ],
    ),
    "no bandwidth": (
        ClusterSpec,
        '"10 Gbit/s"',
        '"0 GB/s"',
        [":14: between_nodes.bandwidth: 0 should be greater than 0"],
    ),
    # Rules between keys
    "unknown layer": (
        ModelSpec,
        "(attention mlp)",
        "(attentoin mpl)",
        [
            ':4: pattern: names "attentoin", but there is no [layer.attentoin]; did you mean "attention"?',
            ':4: pattern: names "mpl", but there is no [layer.mpl]; did you mean "mlp"?',
        ],
    ),
    "layer left out": (
        ModelSpec,
        "(attention mlp)",
        "attention",
        [":4: pattern: does not name [layer.mlp]; add it to the pattern or remove the table"],
    ),
    "bracket open": (
        ModelSpec,
        "mlp) head",
        "mlp head",
        [':4: pattern: the "(" at position 15 is not closed'],
    ),
    "heads do not divide": (
        ModelSpec,
        "head_dim = 16",
        "head_dim = 16\nnum_kv_heads = 3",
        [":11: layer.attention.num_kv_heads: 3 should divide num_heads = 4"],
    ),
    "more experts than there are": (
        ModelSpec,
        'kind = "mlp"',
        'kind = "moe"\nnum_experts = 4\ntop_k = 5',
        [":14: layer.mlp.top_k: 5 should be at most num_experts = 4"],
    ),
    "no vocabulary": (
        ModelSpec,
        "vocabulary_size = 256\n",
        "",
        [": vocabulary_size: is missing; the embedding and the head need it"],
    ),
    "nothing to tie": (
        ModelSpec,
        'head"\n[',
        'head head"\ntied_embeddings = true\n[',
        [":5: tied_embeddings: needs one embedding and one head in the pattern, which has 1 and 2"],
    ),
    "unknown device type": (
        ClusterSpec,
        "h100-sxm",
        "h100-smx",
        [':4: nodes[0].device: unknown device type "h100-smx"; did you mean "h100-sxm"?'],
    ),
    "name taken": (
        ClusterSpec,
        'name = "b"',
        'name = "a"',
        [':7: nodes[1].name: gives a second node "a", the first is of nodes[0]; rename one'],
    ),
    "no node": (
        ClusterSpec,
        CLUSTER,
        'name = "x"\nnodes = []',
        [":2: nodes: is empty; a cluster has at least one node"],
    ),
    "too many devices": (
        ClusterSpec,
        "count = 2",
        "count = 1000000",
        [":2: nodes: have 1000001 devices together; at most 1000000 are supported"],
    ),
    "no link between nodes": (
        ClusterSpec,
        CLUSTER[CLUSTER.index("[between") :],
        "",
        [": between_nodes: is missing; the 2 nodes of zone default need its bandwidth and latency"],
    ),
    "no link inside": (
        ClusterSpec,
        'device = "tiny"',
        'device = "tiny"\ncount = 2',
        [
            ":6: nodes[1].link: is missing, and device type tiny has no link; add bandwidth and latency"
        ],
    ),
    "no link between zones": (
        ClusterSpec,
        'device = "tiny"',
        'device = "tiny"\nzone = "west"',
        [
            ": between_zones: is missing, and zone_links has no link from default to west; add one of them",
            ": between_zones: is missing, and zone_links has no link from west to default; add one of them",
        ],
    ),
    "unknown zone": (
        ClusterSpec,
        "[between_nodes]",
        '[[zone_links]]\nfrom = "default"\nto = "defualt"\nbandwidth = "1 GB/s"\nlatency = "1 ms"\n[between_nodes]',
        [':15: zone_links[0].to: no node is in zone "defualt"; did you mean "default"?'],
    ),
    "batch given twice": (
        JobSpec,
        "[optimizer]",
        "global_batch_tokens = 8192\n[optimizer]",
        [":3: global_batch_tokens: is given besides global_batch_sequences; keep one of the two"],
    ),
    "sequences do not fill the batch": (
        JobSpec,
        "global_batch_sequences = 8",
        "global_batch_tokens = 1000\nsequence_length = 64",
        [
            ":2: sequence_length: sequences of 64 tokens do not divide global_batch_tokens = 1000; nearest that do: 960 or 1024"
        ],
    ),
    "microbatches do not divide": (
        JobSpec,
        "size = 2",
        "size = 3",
        [
            ":2: microbatch_size: microbatches of 3 do not divide the global batch of 8 sequences; sizes that do: 1, 2, 4, 8"
        ],
    ),
    # All at once, in the order of the file
    "several things": (
        ModelSpec,
        "hidden_size = 64\nvocabulary_size = 256",
        "hidden_size = 0\nvocabulary = 256",
        [
            ":2: hidden_size: 0 should be greater than 0",
            ':3: vocabulary: unknown key; did you mean "vocabulary_size"?',
        ],
    ),
}
WHOLE: dict[type[Spec], str] = {ModelSpec: MODEL, ClusterSpec: CLUSTER, JobSpec: JOB}


@pytest.mark.parametrize(("spec_type", "text"), WHOLE.items())
def test_the_whole_texts_are_read(spec_type: type[Spec], text: str) -> None:
    assert isinstance(parse_toml(text, spec_type, file="x.toml"), spec_type)


@pytest.mark.parametrize(("spec_type", "old", "new", "expected"), BROKEN.values(), ids=BROKEN)
def test_broken(spec_type: type[Spec], old: str, new: str, expected: list[str]) -> None:
    assert WHOLE[spec_type].count(old) == 1
    text = WHOLE[spec_type].replace(old, new)
    with pytest.raises(SpecError) as caught:
        parse_toml(text, spec_type, file="x.toml")
    assert caught.value.violations == tuple(f"x.toml{text}" for text in expected)
    assert caught.value.header == f"x.toml does not describe a {spec_type.__name__}:"


def test_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    with pytest.raises(SpecError) as caught:
        load_toml(path, JobSpec)
    assert str(caught.value) == (
        f"{path} does not describe a JobSpec:\n  {path}: cannot be read: No such file or directory"
        "; name a text file that describes one"
    )


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=re.escape("cannot be read: Is a directory")):
        load_toml(tmp_path, JobSpec)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b'name = "\xff"')
    with pytest.raises(SpecError) as caught:
        load_toml(path, ModelSpec)
    assert caught.value.violations == (
        f"{path}: is not UTF-8 text: invalid start byte at byte 8; name a text file that describes one",
    )


def test_a_mark_of_the_byte_order_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("seed = 5", "utf-8-sig")
    assert load_toml(path, JobSpec).seed == 5


def test_values_without_a_file_have_no_line() -> None:
    with pytest.raises(SpecError) as caught:
        build_spec({"seed": -1, "memory_cap": 5}, JobSpec, file="command line")
    assert caught.value.violations == (
        f"command line: memory_cap: 5 has no unit; {BYTES}",
        "command line: seed: -1 should be greater than or equal to 0",
    )
