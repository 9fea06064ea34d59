from evener.sim import kernel


def test_compiled_functions_are_kept_on_disk_and_do_not_hold_the_interpreter() -> None:
    assert kernel.run.targetoptions["nogil"]
    assert kernel.run.stats.cache_path is not None
