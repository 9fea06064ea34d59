import pytest

from evener.errors import SpecError, UsageError
from evener.spec import AdamSpec, FreezeSpec, JobSpec, SgdSpec, SideWorkSpec, parse_toml

DO_NOT_DIVIDE = "do not divide the global batch of 12 sequences; sizes that do"


def job_of(text: str) -> JobSpec:
    return parse_toml(text, JobSpec, file="job.toml")


def refusal(text: str) -> str:
    """What is wrong with a file, without the header."""
    with pytest.raises(SpecError) as caught:
        job_of(text)
    header, _, found = str(caught.value).partition("\n")
    assert header == "job.toml does not describe a JobSpec:"
    return found


def test_an_empty_file_is_the_default_job() -> None:
    assert parse_toml("", JobSpec, file="empty.toml") == JobSpec()


def test_every_field_has_a_default() -> None:
    assert not [name for name, field in JobSpec.model_fields.items() if field.is_required()]


def test_global_batch() -> None:
    # 8 sequences of 1024 by default; 4096 tokens are 8 sequences of 512.
    assert (JobSpec().num_sequences, JobSpec().num_tokens) == (8, 8 * 1024)
    job = JobSpec(global_batch_tokens=4096, sequence_length=512)
    assert (job.num_sequences, job.num_tokens) == (8, 4096)
    assert JobSpec(global_batch_sequences=3).num_sequences == 3


def test_num_microbatches() -> None:
    assert JobSpec(microbatch_size=2).num_microbatches() == 4
    assert JobSpec().num_microbatches(8) == 1


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (None, 'microbatch_size is "auto": give the size that the planner chose'),
        (5, f"microbatches of 5 {DO_NOT_DIVIDE}: 2, 3, 4, 6"),
        (8, f"microbatches of 8 {DO_NOT_DIVIDE}: 3, 4, 6, 12"),
        (0, f"microbatches of 0 {DO_NOT_DIVIDE}: 1, 2, 3, 4"),
    ],
)
def test_num_microbatches_refused(size: int | None, message: str) -> None:
    job = JobSpec(global_batch_sequences=12)
    with pytest.raises(UsageError) as caught:
        job.num_microbatches(size)
    assert str(caught.value) == message


def test_a_huge_batch_is_refused_at_once() -> None:
    job = JobSpec(global_batch_sequences=2**61 - 1)  # a prime
    with pytest.raises(UsageError, match=r"sizes that do: 1$"):
        job.num_microbatches(10**15)


def test_memory_limit() -> None:
    assert JobSpec().memory_limit_bytes(1000) == 1000
    assert JobSpec(memory_fraction=0.9).memory_limit_bytes(1000) == 900
    assert JobSpec(memory_fraction=0.9, memory_cap_bytes=800).memory_limit_bytes(1000) == 800
    assert JobSpec(memory_cap_bytes=800).memory_limit_bytes(500) == 500


def test_states_of_the_optimizers() -> None:
    assert SgdSpec().states_per_parameter == 0
    assert SgdSpec(momentum=0.9).states_per_parameter == 1
    assert AdamSpec().states_per_parameter == AdamSpec(kind="adam").states_per_parameter == 2


def test_json_round_trip() -> None:
    job = JobSpec(optimizer=SgdSpec(momentum=0.9), memory_cap_bytes=800, clip_norm=1.0)
    assert JobSpec.model_validate_json(job.model_dump_json()) == job


def test_freeze() -> None:
    job = job_of("[freeze]\nmax_share = 0.3\nwarmup_steps = 2")
    assert job.freeze == FreezeSpec(max_share=0.3, warmup_steps=2)
    assert job.freeze.max_share_ppm == 300_000
    assert job_of("[freeze]").freeze == FreezeSpec()


def test_a_share_that_would_freeze_nothing_is_refused() -> None:
    assert refusal("[freeze]\nmax_share = 1e-9") == (
        "  job.toml:2: freeze.max_share: 1e-09 rounds to 0 parts per million; give 0.000001 or "
        "more, or leave freeze out"
    )
    assert FreezeSpec(max_share=0.000001).max_share_ppm == 1


def test_freeze_refused() -> None:
    text = "[freeze]\nmax_share = 1.5\nmonitor_steps = -1\nramp = 3"
    assert refusal(text) == (
        "  job.toml:2: freeze.max_share: 1.5 should be less than or equal to 1\n"
        "  job.toml:3: freeze.monitor_steps: -1 should be greater than or equal to 0\n"
        "  job.toml:4: freeze.ramp: unknown key; known: max_share, warmup_steps, monitor_steps, "
        "ramp_steps"
    )


def test_side_work() -> None:
    text = (
        '[[side_work]]\nname = "factor"\ntime = "3 ms"\nafter = "forward"\n'
        '[[side_work]]\nname = "inverse"\ntime = "1 us"\nafter = "factor"'
    )
    assert job_of(text).side_work == (
        SideWorkSpec(name="factor", time_ns=3_000_000, after="forward"),
        SideWorkSpec(name="inverse", time_ns=1_000, after="factor"),
    )


def test_side_work_refused() -> None:
    one = "[[side_work]]\n"
    text = f'{one}name = "a1"\ntime = 3\n{one}name = "forward"\n{one}time = "1 us"'
    assert refusal(text) == (
        "  job.toml:2: side_work[0].name: \"a1\" should be a name of letters, '_' and '-', and "
        'neither "forward" nor "backward"\n'
        '  job.toml:3: side_work[0].time: 3 has no unit; write a time such as "5 us" or "1.5 ms" '
        "(units: ns, us, ms, s, min, h)\n"
        "  job.toml:4: side_work[1].time: is missing and has no default\n"
        "  job.toml:5: side_work[1].name: \"forward\" should be a name of letters, '_' and '-', "
        'and neither "forward" nor "backward"\n'
        "  job.toml:6: side_work[2].name: is missing and has no default"
    )
    text = "".join(
        f'{one}name = "{name}"\ntime = "1 us"\nafter = "{after}"\n'
        for name, after in (("factor", "inverse"), ("factor", "foward"), ("inverse", "factor"))
    )
    assert refusal(text) == (
        '  job.toml:4: side_work[0].after: there is no side work "inverse" above, and it is '
        'neither "forward" nor "backward"; known: forward, backward\n'
        '  job.toml:6: side_work[1].name: "factor" is the name of side_work[0] as well; take '
        "another\n"
        '  job.toml:8: side_work[1].after: there is no side work "foward" above, and it is neither '
        '"forward" nor "backward"; did you mean "forward"?'
    )


def test_asynchronous() -> None:
    assert JobSpec().num_updates == 1
    # 16 updates between two flushes, unless the job makes fewer.
    assert JobSpec(asynchronous=True).num_updates == 10
    assert JobSpec(asynchronous=True, steps=100).num_updates == 16
    assert JobSpec(asynchronous=True, updates_per_flush=4).num_updates == 4


def _of_one_update(other: str) -> str:
    return (
        f"job.toml:1: asynchronous: is true, but the job also has {other}, which is planned for "
        "one update between two flushes; take one of the two out of the job"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "updates_per_flush = 4",
            (
                "job.toml:1: updates_per_flush: is given, but asynchronous is false; set "
                "asynchronous = true, or leave it out"
            ),
        ),
        (
            "asynchronous = true\nupdates_per_flush = 4\nsteps = 3",
            (
                "job.toml:2: updates_per_flush: is 4, but the job makes 3 steps; give 3 at most, "
                "or raise steps"
            ),
        ),
        ("asynchronous = true\n[freeze]", _of_one_update("freeze")),
        (
            'asynchronous = true\nrecompute = "full"',
            (
                'job.toml:1: asynchronous: is true, but the job also has recompute = "full", and a '
                "forward cannot be repeated once its weights have changed; take one of the two out "
                "of the job"
            ),
        ),
        (
            'asynchronous = true\n[[side_work]]\nname = "f"\ntime = "1 us"\nafter = "forward"',
            _of_one_update("side_work"),
        ),
    ],
)
def test_asynchronous_refused(text: str, message: str) -> None:
    assert refusal(text) == f"  {message}"


@pytest.mark.parametrize("other", ["freeze", "side_work", "asynchronous", "offload"])
def test_a_spread_head_goes_alone(other: str) -> None:
    lines = {
        "freeze": "[freeze]",
        "side_work": '[[side_work]]\nname = "f"\ntime = "1 us"\nafter = "forward"',
        "asynchronous": "asynchronous = true",
        "offload": "offload = true",
    }
    assert refusal(f"spread_head = true\n{lines[other]}") == (
        f"  job.toml:1: spread_head: is true, but the job also has {other}, which is planned for "
        "a head on one worker; take one of the two out of the job"
    )
