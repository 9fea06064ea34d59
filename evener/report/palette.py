"""The colour and the name of every kind of action, in one table for all pictures.

The hues are those of Okabe and Ito ("Color Universal Design", 2008), chosen to stay apart for
every kind of colour blindness; on dark paper the same hues are a little lighter.
"""

from dataclasses import dataclass

from evener.ir.action import Kind


@dataclass(frozen=True)
class Ink:
    """How one kind is drawn. Colours are ``#rrggbb``.

    words: what the kind does, for legends and tooltips.
    light, dark: the fill on light and on dark paper.
    """

    words: str
    light: str
    dark: str


LIGHT_PAPER, DARK_PAPER = "#ffffff", "#161a20"
NUM_SHADES = 4
"""Stages of a worker that are told apart by the shade; further ones look like the last."""

_PAPER_SHARES = (0.0, 0.3, 0.5, 0.65)

_SEND_F, _SEND_B = ("#56b4e9", "#4aa3d6"), ("#e8a33d", "#d99530")
_STATE = ("#7a6fb0", "#9489cc")

PALETTE: dict[Kind, Ink] = {
    Kind.F: Ink("forward", "#0072b2", "#2a8fd0"),
    Kind.B: Ink("backward", "#e69f00", "#e69f00"),
    Kind.I: Ink("input gradient", "#d55e00", "#e07020"),
    Kind.W: Ink("weight gradient", "#009e73", "#12b085"),
    Kind.R: Ink("recompute", "#cc79a7", "#cc79a7"),
    Kind.SEND_F: Ink("send activations", *_SEND_F),
    Kind.RECV_F: Ink("receive activations", *_SEND_F),
    Kind.SEND_B: Ink("send gradients", *_SEND_B),
    Kind.RECV_B: Ink("receive gradients", *_SEND_B),
    Kind.GATHER: Ink("gather parameters", *_STATE),
    Kind.RELEASE: Ink("release parameters", *_STATE),
    Kind.REDUCE: Ink("reduce gradients", *_STATE),
    Kind.NORM: Ink("gradient norm", *_STATE),
    Kind.STEP: Ink("optimizer step", "#5b6472", "#8a93a3"),
    Kind.SHARE: Ink("share parameters", *_STATE),
    Kind.OFFLOAD: Ink("offload", "#8c6d46", "#b08d5f"),
    Kind.FREE: Ink("let go of what was offloaded", "#8c6d46", "#b08d5f"),
    Kind.RELOAD: Ink("reload", "#8c6d46", "#b08d5f"),
    Kind.X: Ink("side work", "#f0e442", "#f0e442"),
}


def shades(colour: str, paper: str) -> list[str]:
    """The ``#rrggbb`` for the first, second, ... stage of a worker: ever closer to the paper."""
    pairs = list(zip(_channels(colour), _channels(paper), strict=True))
    return [
        "#" + "".join(f"{round(ink + (ground - ink) * share):02x}" for ink, ground in pairs)
        for share in _PAPER_SHARES
    ]


def text_on(colour: str) -> str:
    """Black or white, whichever is read better on this ``#rrggbb`` (WCAG relative luminance)."""
    parts = [channel / 255 for channel in _channels(colour)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if luminance > 0.179 else "#ffffff"


def _channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
