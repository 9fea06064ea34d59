"""Help tells everything, shows a call that can be typed, and comes at once."""

import re
import resource
import shlex
import subprocess
import sys

import pytest

from evener import __version__
from evener.cli import main
from evener.cli.main import VERBS, build_parser

WITHOUT_TORCH = """
import sys
from evener.cli import main
try:
    main(sys.argv[1:])
finally:
    assert "torch" not in sys.modules
"""


def help_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
def test_the_example_of_a_verb_is_a_call_of_it(verb: str, capsys) -> None:
    text = help_of(capsys, verb)
    examples = re.findall(r"^  .*\bevener (.*)$", text.partition("\nexample:\n")[2], re.MULTILINE)
    assert examples
    for example in examples:
        assert build_parser().parse_args(shlex.split(example)).verb == verb


@pytest.mark.parametrize("verb", VERBS)
def test_every_flag_is_explained(verb: str) -> None:
    verbs = build_parser()._actions[-1]
    assert all(action.help for action in verbs.choices[verb]._actions)


def test_all_verbs_are_in_the_first_help(capsys) -> None:
    text = help_of(capsys)
    assert not [verb for verb in VERBS if not re.search(rf"^    {verb} +\w+", text, re.MULTILINE)]
    assert "--json" in text


def test_version(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"evener {__version__}\n")


@pytest.mark.parametrize(
    "arguments",
    ["--version", "--help", "measure --help", "simulate --schedule gpipe --stages 2 --json"],
)
def test_what_needs_no_torch_loads_none_and_is_quick(arguments: str) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments.split()],
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.returncode == 0, result.stderr
    # CPU time, as a busy machine slows the clock on the wall; 0.8 s where this was written.
    assert after.ru_utime - before.ru_utime < 3.0
