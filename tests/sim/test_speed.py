"""The benchmark still runs; how fast it is depends on what else the machine does."""

import pytest

from benchmarks import simulator_speed


def test_the_benchmark_prints_every_rate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"NUM_WORKERS": 2, "NUM_MICROBATCHES": 4, "ROUNDS": 1, "CALLS": 2, "BATCH": 3}
    for name, size in sizes.items():
        monkeypatch.setattr(simulator_speed, name, size)
    simulator_speed.main()
    text = capsys.readouterr().out
    # 1F1B has 2 x 4 x 2 actions, interleaved 4 times as many; messages come on top.
    assert "one_f_one_b, 16 actions\n" in text
    assert "interleaved_one_f_one_b, 64 actions\n" in text
    assert text.count(" M/s ") == 4 * len(simulator_speed.CASES)
