"""Side work: what a job wants done in the bubbles, besides the training."""

import json
import re
from collections.abc import Iterator, Sequence

from pydantic import field_validator

from evener.spec.complaints import closest
from evener.spec.fields import Ns, Problem, Spec

AFTER_FORWARD, AFTER_BACKWARD = "forward", "backward"

_NAME = re.compile(r"[A-Za-z_-]+", re.ASCII)


class SideWorkSpec(Spec):
    """One kind of side work.

    name: as in ``X:<name>``; letters, ``_`` and ``-``. time_ns: of one piece of it.
    after: "forward" or "backward": one piece for every microbatch on every stage, once that has
        run; the name of side work listed before: one piece for every stage and worker that holds
        it, once all of that is done on the stage; None: one such piece, at any time.
    """

    name: str
    time_ns: Ns
    after: str | None = None

    @field_validator("name")
    @classmethod
    def _is_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value) or value in (AFTER_FORWARD, AFTER_BACKWARD):
            raise ValueError(_no_name(value))
        return value


def side_work_problems(side_work: Sequence[SideWorkSpec]) -> Iterator[Problem]:
    """All that is wrong with several kinds together: names twice, and others that are not there."""
    names = [each.name for each in side_work]
    for place, each in enumerate(side_work):
        before = names[:place]
        if each.name in before:
            yield ("side_work", place, "name"), _twice(each.name, before.index(each.name))
        known = (AFTER_FORWARD, AFTER_BACKWARD, *before)
        if each.after is not None and each.after not in known:
            yield ("side_work", place, "after"), _unknown(each.after, known)


def _no_name(value: str) -> str:
    return (
        f"{json.dumps(value)} should be a name of letters, '_' and '-', and neither "
        f'"{AFTER_FORWARD}" nor "{AFTER_BACKWARD}"'
    )


def _twice(name: str, first: int) -> str:
    return f'"{name}" is the name of side_work[{first}] as well; take another'


def _unknown(after: str, known: Sequence[str]) -> str:
    return (
        f'there is no side work "{after}" above, and it is neither "{AFTER_FORWARD}" nor '
        f'"{AFTER_BACKWARD}"{closest(after, known)}'
    )
