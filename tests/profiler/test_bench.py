"""One layer of each kind is chosen and fed as in training; a user's module stays as it was."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from evener.errors import ProfileError, UsageError
from evener.modules.describe import describe
from evener.modules.layers import ModuleLayers, SpecLayers, layer_source
from evener.modules.loss import TokenLoss
from evener.modules.values import Microbatch
from evener.profiler.bench import Bench
from evener.profiler.options import MeasureOptions
from evener.spec.job import DtypesSpec, JobSpec
from evener.spec.model import ModelSpec


class SumLoss:
    """The sum of what comes out."""

    def count(self, microbatch: Microbatch) -> int:
        return 1

    def total(self, output: Tensor, microbatch: Microbatch) -> Tensor:
        return output.sum()


def vectors(width: int) -> Callable[[int], Microbatch]:
    return lambda num_sequences: {"inputs": torch.ones(num_sequences, width)}


def bench_of(*blocks: nn.Module, width: int = 8, **options: object) -> Bench:
    source = layer_source(blocks)
    chosen = MeasureOptions(**{"loss": SumLoss(), "make_batch": vectors(width), **options})
    return Bench(describe(source, name="own"), JobSpec(), source, chosen)


def described(model: ModelSpec, job: JobSpec, **options: object) -> Bench:
    dtype = getattr(torch, job.dtypes.parameters)
    return Bench(model, job, SpecLayers(model, dtype), MeasureOptions(**options))


def test_one_layer_of_each_kind(model: ModelSpec, job: JobSpec) -> None:
    bench = described(model, job)
    # embedding, attention, mlp, attention, mlp, head
    assert {i: subject.kind for i, subject in bench.subjects.items()} == {
        0: "embedding",
        1: "attention",
        2: "mlp",
        5: "head",
    }
    assert [subject.loss is None for subject in bench.subjects.values()] == [
        True,
        True,
        True,
        False,
    ]


def test_what_enters_a_described_layer(model: ModelSpec, job: JobSpec) -> None:
    probes = described(model, job).probes(3)
    # 3 sequences of 4 tokens of 8 bytes; vectors of 8 numbers; logits of 11 numbers.
    assert [probe.sizes["input_bytes"] for probe in probes] == [96, 384, 384, 384]
    assert probes[-1].sizes["output_bytes"] == 3 * 4 * 11 * 4
    # Tokens, vectors, and targets that count: the loss is divided by their number.
    assert probes[-1].arrival.scale == 1 / 12


def test_the_first_layer_stands_for_its_kind_only_if_no_other_does(job: JobSpec) -> None:
    model = ModelSpec(
        name="m",
        hidden_size=8,
        vocabulary_size=5,
        layer_configs={
            "mlp": {"kind": "mlp", "intermediate_size": 4},
            "head": {"kind": "head"},
        },
        pattern="3 x mlp head",
    )
    bench = described(model, job)
    assert list(bench.subjects) == [1, 3]
    assert bench.probes(2)[0].sizes["input_bytes"] == 2 * 4 * 8 * 4  # vectors, not tokens


def test_number_formats_are_the_jobs(model: ModelSpec) -> None:
    formats = dict.fromkeys(DtypesSpec.model_fields, "float64")
    job = JobSpec(sequence_length=4, dtypes=DtypesSpec(**formats))
    assert described(model, job).probes(1)[1].sizes["input_bytes"] == 4 * 8 * 8


def test_autocast_computes_in_the_format_of_activations(model: ModelSpec) -> None:
    job = JobSpec(sequence_length=4, dtypes=DtypesSpec(activations="bfloat16"))
    probes = described(model, job).probes(1)
    assert probes[-1].forward_alone().dtype == torch.bfloat16


def test_own_blocks_are_fed_with_what_the_blocks_before_make() -> None:
    bench = bench_of(
        nn.Linear(8, 3), nn.Linear(3, 8), nn.Linear(8, 3), nn.Linear(3, 5), nn.ReLU(), nn.Tanh()
    )
    assert list(bench.subjects) == [1, 2, 3, 4, 5]  # 0 is of the kind of 2
    widths = [probe.sizes["input_bytes"] // 4 for probe in bench.probes(1)]
    assert widths == [3, 8, 3, 5, 5]


def test_own_blocks_do_not_change() -> None:
    blocks = (nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    nn.Sequential(*blocks).eval()
    before = {name: tensor.clone() for name, tensor in nn.Sequential(*blocks).state_dict().items()}
    bench_of(*blocks).probes(4)
    after = nn.Sequential(*blocks).state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert not any(parameter.grad is not None for b in blocks for parameter in b.parameters())
    assert not any(block.training for block in blocks)


def test_the_copies_do_change() -> None:
    """So the test before this one would notice."""
    bench = bench_of(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    bench.probes(4)
    normalisation = bench.subjects[1].module
    assert isinstance(normalisation, nn.BatchNorm1d)
    assert normalisation.num_batches_tracked > 0


def test_a_layer_that_does_not_run_is_named() -> None:
    bench = bench_of(nn.Linear(8, 3), nn.Linear(4, 2))
    with pytest.raises(ProfileError) as caught:
        bench.probes(2)
    assert caught.value.header == 'a layer of "own" cannot be measured'
    (text,) = caught.value.violations
    assert text.startswith('layer 1 of kind "Linear_2" with microbatch size 2: RuntimeError: mat1')


class Uncopyable(nn.Linear):
    def __deepcopy__(self, memo: object) -> None:
        raise TypeError("it has a lock")


def test_a_layer_that_cannot_be_copied_is_named() -> None:
    bench = bench_of(nn.Linear(8, 8), Uncopyable(8, 2))
    with pytest.raises(
        ProfileError, match='layer 1 of kind "Uncopyable": TypeError: it has a lock'
    ):
        bench.probes(1)


def test_own_blocks_must_be_in_the_jobs_format() -> None:
    bench = bench_of(nn.Linear(8, 8), nn.Linear(8, 2).double())
    with pytest.raises(UsageError) as caught:
        bench.probes(1)
    (text,) = caught.value.violations
    assert text == (
        "parameter 1.weight is float64, but the job's dtypes.parameters is float32; convert the "
        "module with `.to(dtype)` or change the job"
    )


def test_the_batch_must_have_the_input() -> None:
    bench = bench_of(nn.Linear(8, 2), input_name="pixels")
    with pytest.raises(UsageError) as caught:
        bench.probes(1)
    assert caught.value.violations == (
        'input_name is "pixels", but make_batch gave inputs; name one of these',
    )


def test_the_batch_must_have_what_the_loss_needs() -> None:
    bench = bench_of(nn.Linear(8, 2), loss=TokenLoss())
    with pytest.raises(ProfileError, match='layer 0 of kind "Linear" with microbatch size 1: KeyE'):
        bench.probes(1)


def test_a_batch_for_own_blocks_must_be_given() -> None:
    with pytest.raises(UsageError) as caught:
        bench_of(nn.Linear(8, 2), make_batch=None)
    assert caught.value.violations == (
        "the input of a user's own blocks is not known; give make_batch",
    )


def test_the_description_must_be_of_the_blocks(model: ModelSpec, job: JobSpec) -> None:
    source = ModuleLayers([nn.Linear(8, 2)])
    with pytest.raises(UsageError) as caught:
        Bench(model, job, source, MeasureOptions())
    assert caught.value.violations == ("6 layers are described, but 1 were given; describe those",)


def test_without_a_vocabulary_there_is_no_batch_and_no_loss(job: JobSpec) -> None:
    model = ModelSpec(
        name="m",
        hidden_size=8,
        layer_configs={"mlp": {"kind": "mlp", "intermediate_size": 4}},
        pattern="2 x mlp",
    )
    with pytest.raises(UsageError) as caught:
        described(model, job)
    no_batch, not_alone = caught.value.violations
    assert no_batch == (
        "without a vocabulary there are no tokens to predict; give make_batch and a loss"
    )
    assert not_alone == (
        'the last layer is measured with the loss, but its kind "mlp" also stands elsewhere; '
        "give the last layer a kind of its own, such as a head"
    )
