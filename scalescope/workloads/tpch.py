"""Two queries of TPC-H with dask.dataframe, on data of the same shape, which the workers generate.

All partitions have equal lines, except for keys of orders, and for prices, which are doubled in the last partition.
Hence pandas can compute the expected result from single partitions. Orders refer to customers of all partitions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.workloads._common import check_close, fresh, require
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client

EXTRA = "arrays"
# Lines per order; prime step between successive customers and days; number of days in the data
LINES, STEP, DAYS = 4, 7919, 2_400

# First day of the data; the day of query 3; the last day of query 1
BEGIN, MIDDLE, END = "1992-01-01", "1995-03-15", "1998-05-01"
Partitions = Annotated[int, Parameter("Partitions.", minimum=1)]
Orders = Annotated[int, Parameter("Orders of each partition, of 4 lines each.", minimum=1_000)]
made = partial(workload, packages=("dask", "pandas", "pyarrow"), extra=EXTRA)


@made("tpch-q1", stresses="a scan, and many sums of few groups")
def tpch_q1(client: Client, *, items: Partitions = 12, orders: Orders = 20_000) -> dict[str, Any]:
    """Query 1 of TPC-H, the pricing summary, with dask.dataframe."""
    with client.as_current():
        got = client.gather(client.compute(q1(_table(lines, items, orders)))).sort_index()
    one = q1(lines(0, items=0, orders=orders)).sort_index()
    check_close(got[["quantity", "count"]], one[["quantity", "count"]] * items)
    check_close(got[["price", "charge"]] / one[["price", "charge"]], [[items + 1] * 2] * len(one))
    return {"lines": items * orders * LINES}


@made("tpch-q3", version=2, stresses="joins of three tables, and the largest of many groups")
def tpch_q3(client: Client, *, items: Partitions = 12, orders: Orders = 20_000) -> dict[str, Any]:
    """Query 3 of TPC-H, the ten orders with the highest revenue, with dask.dataframe."""
    with client.as_current():
        tables = [_table(table, items, orders) for table in (customers, bought, lines)]
        revenues = client.persist(q3(*tables))
        largest, total, count = client.gather(client.compute([revenues.nlargest(10), revenues.sum(), revenues.count()]))
    everyone = customers(0, items=1, orders=items * (orders // 10) * 10)
    parts = ([table(index, items=items, orders=orders) for table in (bought, lines)] for index in range(items))
    expected = [q3(everyone, *part) for part in parts]  # possible because an order and its lines are in one partition
    check_close(sorted(largest), sorted(expected[-1].nlargest(10)))
    check_close([total, count], [sum(each.sum() for each in expected), sum(map(len, expected))])
    return {"lines": items * orders * LINES}


def q1(line: Any) -> Any:
    old = line[line["ship"] <= END]
    net = old["price"] * (1 - old["discount"])
    sums = {"quantity": ("quantity", "sum"), "price": ("net", "sum"), "charge": ("charge", "sum")}
    groups = old.assign(net=net, charge=net * (1 + old["tax"])).groupby(["flag", "status"])
    return groups.agg(**sums, count=("order", "count"))


def q3(customer: Any, order: Any, line: Any) -> Any:
    """Query 3 without its limit to ten orders: the revenue of each order."""
    building = customer[customer["segment"] == "BUILDING"].merge(order[order["date"] < MIDDLE], on="customer")
    joined = building.merge(line[line["ship"] > MIDDLE], on="order")
    joined = joined.assign(revenue=joined["price"] * (1 - joined["discount"]))
    return joined.groupby(["order", "date"])["revenue"].sum()


def lines(index: int, *, items: int, orders: int, token_of_run: str = "") -> Any:
    """A partition of the lines of orders. `token_of_run` keeps task keys apart from other runs."""
    import numpy as np
    import pandas as pd

    number = np.arange(orders * LINES)
    return pd.DataFrame(
        {
            "order": number // LINES + index * orders,
            "quantity": number % 50 + 1,
            "price": (10_000.0 + number % 977) * (2 if index == items - 1 else 1),
            "discount": number % 5 / 100,
            "tax": number % 9 / 100,
            "flag": np.array(["A", "N", "R"])[number % 3],
            "status": np.array(["F", "O"])[number % 2],
            "ship": _day(number),
        }
    )


def bought(index: int, *, items: int, orders: int, token_of_run: str = "") -> Any:
    import numpy as np
    import pandas as pd

    order = np.arange(index * orders, (index + 1) * orders)
    return pd.DataFrame({"order": order, "customer": order * STEP % (items * (orders // 10)), "date": _day(order * 13)})


def customers(index: int, *, items: int, orders: int, token_of_run: str = "") -> Any:
    import numpy as np
    import pandas as pd

    customer = np.arange(index * (orders // 10), (index + 1) * (orders // 10))
    segments = np.array(["AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"])
    return pd.DataFrame({"customer": customer, "segment": segments[customer % 5]})


def _day(number: Any) -> Any:
    import numpy as np

    return np.datetime64(BEGIN, "ns") + (number * STEP % DAYS).astype("timedelta64[D]")


def _table(partition: Any, items: int, orders: int) -> Any:
    for module in ("pandas", "pyarrow"):
        require(module, EXTRA)
    dd = require("dask.dataframe", EXTRA)
    given = {"items": items, "orders": orders, "token_of_run": fresh()}
    return dd.from_map(partition, range(items), meta=partition(0, items=items, orders=1_000).iloc[:0], **given)
