"""The legal moves, in one table.

Checker, interpreter, simulator, passes and the picture in the docs read ``RULES``; nobody else
knows what an action needs, which stream it occupies, or what memory it takes and gives.

Streams.  Every worker issues its actions in list order.  An action on the COMPUTE stream holds the
worker until it ends; actions on the other streams are issued and run beside it, in list order
within their stream.  Messages are rendezvous: for every pair of workers, the messages of both
directions form one ordered stream, so both workers must list them in the same order.  That is what
a single NCCL communicator per pair does, the strictest transport that we run on; a schedule that
is free of deadlock under this rule is so under every looser one.

Memory.  A worker's memory is a function of its list order alone: effects at START count when the
action is issued, effects at END when the next action is issued.  So the peak can be proven without
knowing any time.
"""

from dataclasses import dataclass
from enum import Enum

from evener.ir.action import Kind


class Stream(Enum):
    """The queue of a worker on which an action runs."""

    COMPUTE = "compute"
    MESSAGE = "message"  # one per pair of workers
    COLLECTIVE = "collective"
    D2H = "d2h"
    H2D = "h2d"


class Where(Enum):
    """At which stage the needed action is looked for."""

    SAME = "same stage"
    PREDECESSORS = "every stage that feeds it"
    SUCCESSORS = "every stage that it feeds"
    EVERY_STAGE = "every stage of its worker"
    EVERYWHERE = "every stage of every worker"
    HOLDERS = "same stage, every worker that holds it"
    OWNER = "same stage, the first worker that holds it"


class Which(Enum):
    """For which microbatches and slices the needed action is looked for."""

    SAME = "same microbatch, same slice"
    SLICE_BEFORE = "same microbatch, the slice before"
    SLICE_AFTER = "same microbatch, the slice after"
    ALL = "all of the update that its worker runs"
    STAGE = "no microbatch: the whole stage, the same update"


@dataclass(frozen=True)
class Need:
    """One thing that must have ended before an action starts.

    kinds: any one of these fulfils it.
    optional: only if the worker's list holds such an action.
    until: not once the worker lists such an action of the stage, which then stands for it.
    """

    kinds: tuple[Kind, ...]
    where: Where = Where.SAME
    which: Which = Which.SAME
    optional: bool = False
    until: Kind | None = None


class Resource(Enum):
    """What memory is taken for."""

    ACTIVATION = "activation"  # everything saved by the forward for the backward
    OFFLOADED = "offloaded part"  # of the activation: what is in host memory for a while
    CHECKPOINT = "checkpoint"  # the stage input alone, when the forward is recomputed
    WEIGHT_GRADIENT = "weight gradient"  # what I leaves behind for W
    INPUT = "input"  # buffer of a received activation
    OUTPUT_GRADIENT = "output gradient"  # buffer of a received gradient
    PARAMETERS = "parameters"  # the unsharded parameters of a stage


@dataclass(frozen=True)
class Rule:
    """What the world knows about one kind of action."""

    stream: Stream
    needs: tuple[Need, ...] = ()
    takes_at_start: tuple[Resource, ...] = ()
    gives_at_start: tuple[Resource, ...] = ()
    takes_at_end: tuple[Resource, ...] = ()
    gives_at_end: tuple[Resource, ...] = ()
    whole_stage: bool = False  # the action has no microbatch


_GATHERED = Need((Kind.GATHER,), which=Which.STAGE, optional=True)
_RELOADED = Need((Kind.RELOAD,), optional=True)
_RECOMPUTED = Need((Kind.R,), optional=True)
_FORWARD = Need((Kind.F,))
_GRADIENT_OF_SUCCESSORS = Need((Kind.B, Kind.I), where=Where.SUCCESSORS)
_BACKWARD_OF_NEXT_SLICE = Need((Kind.B, Kind.I), which=Which.SLICE_AFTER)
_ALL_GRADIENTS = Need((Kind.B, Kind.W), which=Which.ALL)

_BACKWARD_NEEDS = (
    _FORWARD,
    _GRADIENT_OF_SUCCESSORS,
    _BACKWARD_OF_NEXT_SLICE,
    _RECOMPUTED,
    _RELOADED,
    _GATHERED,
)

RULES: dict[Kind, Rule] = {
    # A forward whose cell is recomputed (R) takes a CHECKPOINT instead of the ACTIVATION; R then
    # takes the ACTIVATION and gives the CHECKPOINT back.
    Kind.F: Rule(
        Stream.COMPUTE,
        needs=(
            Need((Kind.F,), where=Where.PREDECESSORS),
            Need((Kind.F,), which=Which.SLICE_BEFORE),
            _GATHERED,
        ),
        takes_at_start=(Resource.ACTIVATION,),
        gives_at_start=(Resource.INPUT,),
    ),
    Kind.B: Rule(
        Stream.COMPUTE,
        needs=_BACKWARD_NEEDS,
        gives_at_end=(Resource.ACTIVATION, Resource.OUTPUT_GRADIENT),
    ),
    Kind.I: Rule(
        Stream.COMPUTE,
        needs=_BACKWARD_NEEDS,
        takes_at_end=(Resource.WEIGHT_GRADIENT,),
        gives_at_end=(Resource.ACTIVATION, Resource.OUTPUT_GRADIENT),
    ),
    Kind.W: Rule(
        Stream.COMPUTE,
        needs=(Need((Kind.I,)), _GATHERED),
        gives_at_end=(Resource.WEIGHT_GRADIENT,),
    ),
    Kind.R: Rule(
        Stream.COMPUTE,
        needs=(_FORWARD, Need((Kind.F,), which=Which.SLICE_BEFORE), _RELOADED, _GATHERED),
        takes_at_start=(Resource.ACTIVATION,),
        gives_at_end=(Resource.CHECKPOINT,),
    ),
    Kind.SEND_F: Rule(Stream.MESSAGE, needs=(_FORWARD,)),
    Kind.RECV_F: Rule(
        Stream.MESSAGE,
        needs=(Need((Kind.SEND_F,), where=Where.PREDECESSORS),),
        takes_at_start=(Resource.INPUT,),
    ),
    Kind.SEND_B: Rule(Stream.MESSAGE, needs=(Need((Kind.B, Kind.I)),)),
    Kind.RECV_B: Rule(
        Stream.MESSAGE,
        needs=(Need((Kind.SEND_B,), where=Where.SUCCESSORS),),
        takes_at_start=(Resource.OUTPUT_GRADIENT,),
    ),
    Kind.GATHER: Rule(Stream.COLLECTIVE, takes_at_start=(Resource.PARAMETERS,), whole_stage=True),
    # RELEASE waits for the stage's compute actions that stand before it in the worker's list.
    Kind.RELEASE: Rule(Stream.COLLECTIVE, gives_at_end=(Resource.PARAMETERS,), whole_stage=True),
    Kind.REDUCE: Rule(Stream.COLLECTIVE, needs=(_ALL_GRADIENTS,), whole_stage=True),
    Kind.NORM: Rule(
        Stream.COLLECTIVE,
        needs=(
            Need((Kind.B, Kind.W), where=Where.EVERY_STAGE, which=Which.ALL),
            Need((Kind.REDUCE,), where=Where.EVERY_STAGE, which=Which.STAGE, optional=True),
        ),
        whole_stage=True,
    ),
    Kind.STEP: Rule(
        Stream.COMPUTE,
        needs=(
            _ALL_GRADIENTS,
            Need((Kind.REDUCE,), which=Which.STAGE, optional=True),
            Need((Kind.NORM,), where=Where.EVERY_STAGE, which=Which.STAGE, optional=True),
            Need((Kind.B, Kind.W), where=Where.HOLDERS, which=Which.ALL, until=Kind.REDUCE),
            Need((Kind.STEP,), where=Where.OWNER, which=Which.STAGE, until=Kind.REDUCE),
            Need((Kind.SHARE,), where=Where.OWNER, which=Which.STAGE, optional=True),
        ),
        whole_stage=True,
    ),
    # The first worker of a stage hands its new weights on; the STEP of the others takes them over.
    Kind.SHARE: Rule(
        Stream.COLLECTIVE,
        needs=(Need((Kind.STEP,), where=Where.OWNER, which=Which.STAGE),),
        whole_stage=True,
    ),
    # The copy runs beside the worker, so only the action that waits for it can give memory back.
    # Of a cell that is recomputed, the CHECKPOINT goes in place of the OFFLOADED part.
    Kind.OFFLOAD: Rule(Stream.D2H, needs=(_FORWARD,)),
    Kind.FREE: Rule(
        Stream.COMPUTE, needs=(Need((Kind.OFFLOAD,)),), gives_at_end=(Resource.OFFLOADED,)
    ),
    Kind.RELOAD: Rule(
        Stream.H2D, needs=(Need((Kind.FREE,)),), takes_at_start=(Resource.OFFLOADED,)
    ),
    Kind.X: Rule(Stream.COMPUTE),
}
