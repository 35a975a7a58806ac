"""Workloads of machine learning, by libraries that hand their work to Dask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.workloads._common import check_close, require, wrong
from scalescope.workloads.dataframes import frame
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client


@workload(
    "sklearn-search",
    version=2,
    stresses="joblib on Dask: fits of uneven length, on data that all need",
    packages=("dask", "joblib", "scikit-learn"),
    extra="suite",
)
def sklearn_search(
    client: Client,
    *,
    items: Annotated[int, Parameter("Values of the searched parameter to try.", minimum=2)] = 12,
    samples: Annotated[int, Parameter("Rows of the data.", minimum=60)] = 600,
    folds: Annotated[int, Parameter("Fits per value.", minimum=2)] = 3,
) -> dict[str, Any]:
    """Search for the best ridge regression by cross-validation, with scikit-learn."""
    joblib = require("joblib", "suite")
    require("sklearn", "suite")
    from sklearn.datasets import make_regression
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV, cross_val_score

    data, target = make_regression(samples, 50, noise=20, random_state=0)
    strengths = [10 ** (number - items / 2) for number in range(items)]
    with joblib.parallel_config(backend="dask", client=client):
        search = GridSearchCV(Ridge(), {"alpha": strengths}, cv=folds).fit(data, target)
    expected = [cross_val_score(Ridge(alpha=each), data, target, cv=folds).mean() for each in strengths]
    check_close(search.cv_results_["mean_test_score"], expected)
    return {"fits": items * folds, "best": float(search.best_params_["alpha"])}


@workload(
    "xgboost-train",
    stresses="a barrier: all workers train together and wait for the slowest",
    packages=("dask", "pandas", "pyarrow", "xgboost-cpu"),  # `xgboost`, which can also use GPUs, works as well
    extra="suite",
)
def xgboost_train(
    client: Client,
    *,
    items: Annotated[int, Parameter("Partitions of the data.", minimum=2)] = 8,
    rows: Annotated[int, Parameter("Rows of each partition.", minimum=100)] = 20_000,
    rounds: Annotated[int, Parameter("Trees.", minimum=1)] = 20,
) -> dict[str, Any]:
    """Train boosted trees on all workers, with XGBoost."""
    xgboost = require("xgboost.dask", "suite")
    with client.as_current():
        data = frame(range(items), rows=rows, groups=97)
        matrix = xgboost.DaskDMatrix(client, data[["key"]], (data["key"] >= 40).astype("int64"))
        asked = {"objective": "binary:logistic", "eval_metric": "error", "tree_method": "hist"}
        trained = xgboost.train(
            client, asked, matrix, num_boost_round=rounds, evals=[(matrix, "train")], verbose_eval=False
        )
    error = float(trained["history"]["train"]["error"][-1])
    if error > 0.001:
        raise wrong(f"{error:.1%} of the rows are misclassified")
    return {"rows": items * rows, "error": error}
