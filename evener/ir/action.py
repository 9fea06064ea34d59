"""The atom of every plan: one action of one worker.

Text form ``<stage><KIND><microbatch>[.<slice>][><peer>]``, as in torch's schedule CSV:
``0F3``, ``2SEND_B1``, ``1I4.2``.  Actions on a whole stage have no microbatch: ``0REDUCE``; in a
schedule of several optimizer updates they name theirs: ``0STEP2``.
"""

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What an action does; ``ir.rules`` says what each kind needs, occupies, takes and gives."""

    F = "F"
    B = "B"
    I = "I"  # noqa: E741 - the letter that torch's schedule CSV uses
    W = "W"
    R = "R"
    SEND_F = "SEND_F"
    RECV_F = "RECV_F"
    SEND_B = "SEND_B"
    RECV_B = "RECV_B"
    GATHER = "GATHER"
    RELEASE = "RELEASE"
    REDUCE = "REDUCE"
    NORM = "NORM"
    STEP = "STEP"
    SHARE = "SHARE"
    OFFLOAD = "OFFLOAD"
    FREE = "FREE"
    RELOAD = "RELOAD"
    X = "X"


class Action(NamedTuple):
    """One action of one worker.

    stage: global index of the stage that acts (for RECV_F the consumer, for RECV_B the producer
        of the activation: always the stage of the worker whose list holds the action).
    microbatch: global index within the schedule; for actions on a whole stage the index of the
        update, None in a schedule of one update.
    slice: index of a run of tokens of the microbatch; None means the whole microbatch.
    peer: the other stage, written only where the stage alone does not tell: a message of a stage
        with several neighbours in that direction, or ``REDUCE`` of parameters that two stages
        share.
    name: what an X action runs (letters, underscore and hyphen).
    """

    stage: int
    kind: Kind
    microbatch: int | None = None
    slice: int | None = None
    peer: int | None = None
    name: str | None = None

    def __str__(self) -> str:
        text = f"{self.stage}{self.kind}"
        if self.name is not None:
            text += f":{self.name}"
        if self.microbatch is not None:
            text += str(self.microbatch)
        if self.slice is not None:
            text += f".{self.slice}"
        if self.peer is not None:
            text += f">{self.peer}"
        return text
