"""`scalescope find-threshold`, `find-release` and `compare`."""

from __future__ import annotations

from scalescope.cli.carrying import carry_out, open_store
from scalescope.cli.commands.show import show_study
from scalescope.cli.options import GivenOptions, Json, Prefect, Verbose, options
from scalescope.model.study import StudyKind
from scalescope.run.parameters import Reported
from scalescope.studies.comparison.parameters import ComparisonParameters
from scalescope.studies.release.parameters import ReleaseParameters
from scalescope.studies.threshold.parameters import ThresholdParameters


@options(ThresholdParameters, Reported)
def find_threshold(
    asked: GivenOptions, as_json: Json = False, prefect: Prefect = None, verbose: Verbose = False
) -> None:
    """Find the exact value of an axis at which a metric jumps, with few trials instead of a grid.

    For example: scalescope find-threshold -w beam-pardo -a items=50..400 -a workers=300 --metric tasks
    """
    _carry_out(StudyKind.THRESHOLD, asked, as_json=as_json, prefect=prefect, verbose=verbose)


@options(ReleaseParameters, Reported)
def find_release(asked: GivenOptions, as_json: Json = False, prefect: Prefect = None, verbose: Verbose = False) -> None:
    """Find the release of a package that moved a metric or brought a finding; or the package of two lock files.

    For example: scalescope find-release apache-beam --good 2.50.0 -w beam-pardo -a items=199 -a workers=199 -m
    workers_used
    """
    _carry_out(StudyKind.RELEASE, asked, as_json=as_json, prefect=prefect, verbose=verbose)


@options(ComparisonParameters, Reported)
def compare(asked: GivenOptions, as_json: Json = False, prefect: Prefect = None, verbose: Verbose = False) -> None:
    """Compare B with A in interleaved pairs of trials, until the answer is clear.

    For example: scalescope compare -w beam-pardo -a items=100 -a workers=100 --a partition_size=1 --b partition_size=4
    """
    _carry_out(StudyKind.COMPARISON, asked, as_json=as_json, prefect=prefect, verbose=verbose)


def _carry_out(kind: StudyKind, asked: GivenOptions, *, as_json: bool, prefect: bool | None, verbose: bool) -> None:
    """Carry a study out, and show its answer."""
    from functools import partial

    from scalescope.studies import STUDIES, running

    given = asked.over()
    result = carry_out(
        STUDIES[kind].flow,
        given,
        partial(running.run_study, kind),
        check=partial(running.check, kind),
        prefect=prefect,
        verbose=verbose,
    )
    with open_store(str(given.get("store", ""))) as opened:
        study = opened.studies.get(result.study_id)
        show_study(study, [opened.run(run) for run in study.runs], as_json=as_json)
