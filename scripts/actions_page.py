"""Write docs/design/actions.md from the table of legal moves, so that the page cannot lie.

Usage: python scripts/actions_page.py
"""

from pathlib import Path

from evener.ir.action import Kind
from evener.ir.rules import RULES, Need, Resource, Rule, Where, Which

PAGE = Path(__file__).parent.parent / "docs" / "design" / "actions.md"

DOES = {
    Kind.F: "forward",
    Kind.B: "whole backward",
    Kind.I: "gradient of the inputs",
    Kind.W: "gradient of the weights",
    Kind.R: "forward again, because its activations were not kept",
    Kind.SEND_F: "send an activation to the next stage",
    Kind.RECV_F: "receive an activation from the stage before",
    Kind.SEND_B: "send a gradient to the stage before",
    Kind.RECV_B: "receive a gradient from the next stage",
    Kind.GATHER: "unshard the parameters of a stage",
    Kind.RELEASE: "drop the unsharded parameters of a stage",
    Kind.REDUCE: "add up the gradients of a stage over its gradient group",
    Kind.NORM: "add up the squared gradient norm over all workers, for clipping",
    Kind.STEP: "optimizer step of a stage",
    Kind.SHARE: "hand the new weights of a stage on to all workers that hold it",
    Kind.OFFLOAD: "copy saved activations to host memory",
    Kind.FREE: "wait for that copy and let go of the originals",
    Kind.RELOAD: "copy them back",
    Kind.X: "side work in a gap",
}

HEAD = """# Actions

<!-- Written by scripts/actions_page.py from evener/ir/rules.py. Do not edit. -->

An action prints as `<stage><KIND><microbatch>[.<slice>][><peer>]`: `0F3` is the forward of
microbatch 3 at stage 0, `2I1.0` the input gradient of its first slice, `1REDUCE` an action on a
whole stage; in a schedule of several updates it names its own, `1REDUCE2`. This is the form of
torch's schedule CSV. `X` carries a name: `0X:factor2`.

## What an action does, where it runs, what it waits for

*If present* means: only if the worker's list has such an action.

![A matrix: one row per kind of action, one column per kind that it may wait for](rules.svg)

"""

MEMORY = """
## What memory it takes and gives

Effects at the start count when the action is issued, effects at the end when the next action of
the worker is issued. So the peak of a worker follows from its list alone, whatever the times are.
A forward that is recomputed later takes a checkpoint in place of the activation.

"""


def describe(need: Need) -> str:
    """One need as words."""
    text = " or ".join(need.kinds)
    if need.where is not Where.SAME:
        text += f" of {need.where.value}"
    if need.which is Which.ALL:
        text += ", all microbatches of the worker" if need.where is not Where.HOLDERS else ""
    elif need.which not in (Which.SAME, Which.STAGE):
        text += f", {need.which.value.removeprefix('same microbatch, ')}"
    if need.until is not None:
        text += f" (until {need.until} is written out)"
    return f"{text} (if present)" if need.optional else text


def row(cells: list[str]) -> str:
    """One row of a Markdown table."""
    return f"| {' | '.join(cells)} |\n"


def names(resources: tuple[Resource, ...]) -> str:
    """Resources as words."""
    return ", ".join(resource.value for resource in resources)


def effects(rule: Rule) -> list[str]:
    """The four memory columns."""
    return [
        names(rule.takes_at_start),
        names(rule.gives_at_start),
        names(rule.takes_at_end),
        names(rule.gives_at_end),
    ]


def page() -> str:
    """The whole page."""
    text = HEAD + row(["kind", "does", "stream", "waits for"]) + row(["---"] * 4)
    for kind, rule in RULES.items():
        needs = "; ".join(describe(need) for need in rule.needs)
        text += row([kind.value, DOES[kind], rule.stream.value, needs])
    columns = ["kind", "takes at start", "gives at start", "takes at end", "gives at end"]
    text += MEMORY + row(columns) + row(["---"] * len(columns))
    for kind, rule in RULES.items():
        if any(effects(rule)):
            text += row([kind.value, *effects(rule)])
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
