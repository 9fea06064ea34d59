"""The command line grows by decision, not by accident: what is not listed here fails."""

import argparse

import pytest

from evener.cli.main import VERBS, build_parser

SHAPE = "schedule stages workers microbatches slices updates forward backward weight latency split"
FLAGS = {
    "measure": "model cluster job microbatch-sizes out dry-run json",
    "plan": "model cluster job profile planner time-limit out dry-run json",
    "simulate": f"PLAN profile cluster model {SHAPE} out json",
    "compare": (
        "model cluster job profile"
        " workers microbatches slices updates forward backward weight latency memory freeze chunks"
        " out json"
    ),
    "train": (
        "PLAN model data suffix steps out replan cluster profile planner time-limit dry-run json"
    ),
    "emulate": f"PLAN profile cluster model {SHAPE} unit clock steps out json",
    "verify": "PLAN all json",
    "report": "TIMELINE MEASURED plan model cluster losses out trace json",
    "export": "PLAN model to out dry-run json",
}


def parsers() -> dict[str, argparse.ArgumentParser]:
    (verbs,) = (
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return dict(verbs.choices)


def flags_of(parser: argparse.ArgumentParser) -> list[str]:
    """All but help, as a person types them; the names of files as help shows them."""
    names = [
        action.option_strings[-1].removeprefix("--")
        if action.option_strings
        else str(action.metavar)
        for action in parser._actions
    ]
    return sorted(set(names) - {"help"})


def test_the_verbs_are_the_known_ones() -> None:
    assert list(parsers()) == list(FLAGS) == list(VERBS)


@pytest.mark.parametrize("verb", FLAGS)
def test_a_verb_has_the_known_flags_and_no_other(verb: str) -> None:
    assert flags_of(parsers()[verb]) == sorted(FLAGS[verb].split())


def test_top_level_has_only_version() -> None:
    parser = build_parser()
    options = {text for action in parser._actions for text in action.option_strings}
    assert options == {"-h", "--help", "--version"}
