"""All work over all workers, which may be of different speed."""

from functools import lru_cache
from importlib import import_module

import numpy as np

from evener.planner.bounds.instance import Instance, Times, quotient_up

_SCALE = 1 << 20


def load_ns(instance: Instance) -> int:
    """No worker does two things at a time."""
    equal_ns = quotient_up(instance.total_work_ns, instance.num_workers)
    if instance.worker_work_ns is None:
        return equal_ns
    return max(equal_ns, _unequal_ns(instance.worker_work_ns, instance.num_microbatches))


def _unequal_ns(worker_work_ns: Times, num_microbatches: int) -> int:
    """By prices of the workers' time: every layer costs no less than where it is cheapest."""
    rows_ns, num_of_row = np.unique(worker_work_ns, axis=0, return_counts=True)
    rows = tuple(tuple(row) for row in rows_ns.tolist())
    cheapest, price_of_all = _priced(rows, tuple(num_of_row.tolist()))
    return quotient_up(cheapest * num_microbatches, price_of_all)


@lru_cache(maxsize=64)  # it is asked again for every number of microbatches and of workers
def _priced(rows_ns: tuple[tuple[int, ...], ...], num_of_row: tuple[int, ...]) -> tuple[int, int]:
    """All layers where each is cheapest, and a nanosecond of all workers.

    Any prices prove a bound; those of the linear program prove the best one, up to rounding.
    """
    prices = [round(max(0.0, price) * _SCALE) for price in _prices(rows_ns, num_of_row)]
    price_of_all = sum(n * price for n, price in zip(num_of_row, prices, strict=True))
    layers_ns = zip(*rows_ns, strict=True)
    cheapest = sum(
        min(price * work_ns for price, work_ns in zip(prices, layer_ns, strict=True))
        for layer_ns in layers_ns
    )
    return cheapest, max(1, price_of_all)


def _prices(rows: tuple[tuple[int, ...], ...], num_of_row: tuple[int, ...]) -> list[float]:
    """Per kind of worker, the dual of its row in: min T, layers in parts, no worker above T."""
    highspy = import_module("highspy")  # takes a tenth of a second, and few clusters need it
    rows_ns = np.array(rows, dtype=np.int64)
    num_rows, num_layers = rows_ns.shape
    num_parts = num_rows * num_layers
    unit = max(1, int(rows_ns.max()))
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = num_parts + 1, num_layers + num_rows
    model.col_cost_ = np.append(np.zeros(num_parts), 1.0)
    model.col_lower_ = np.zeros(num_parts + 1)
    model.col_upper_ = np.full(num_parts + 1, np.inf)
    model.row_lower_ = np.append(np.ones(num_layers), np.full(num_rows, -np.inf))
    model.row_upper_ = np.append(np.full(num_layers, np.inf), np.zeros(num_rows))
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kColwise
    part = np.arange(num_parts)
    entries = np.column_stack([part % num_layers, num_layers + part // num_layers]).ravel()
    values = np.column_stack([np.ones(num_parts), rows_ns.ravel() / unit])
    matrix.start_ = np.append(2 * part, [2 * num_parts, 2 * num_parts + num_rows]).astype(np.int32)
    matrix.index_ = np.append(entries, num_layers + np.arange(num_rows)).astype(np.int32)
    matrix.value_ = np.append(values.ravel(), [-float(number) for number in num_of_row])
    solver = highspy._Highs()  # highspy.Highs prints a banner that cannot be silenced
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(model)
    solver.run()
    return [-float(dual) for dual in solver.getSolution().row_dual[num_layers:]]
