from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.clusters.local.spec import LocalSpec
from scalescope.diagnosis.cause import DOUBTED
from scalescope.diagnosis.partitions import BAG_100, BAG_ROOT, BEAM_128, matching
from scalescope.diagnosis.verdict import diagnose
from scalescope.model.finding import Finding, Gain, Severity
from scalescope.model.partition_calls import PartitionCall
from scalescope.model.sweep import ZERO_LENGTH, Sweep
from scalescope.model.trial import TrialState
from scalescope.model.words import percent

BEAM, BAG, FUTURES = Sweep("beam-pardo"), Sweep("bag-map"), Sweep("futures-map")
ITEMS = [1, 2, 10, 50, 100, 150, 190, 199, 200, 250, 300]


def chunks(items: int, size: int) -> list[int]:
    return [min(size, items - begin) for begin in range(0, items, size)]


def codes(verdict) -> list[str]:
    return [finding.code for finding in verdict.findings]


# ------------------------------------------------------------------ healthy


def test_a_healthy_sweep_gets_no_accusation(bag_trial):
    verdict = diagnose(FUTURES, [bag_trial(n, [1] * n) for n in (1, 10, 100)])
    assert codes(verdict) == ["healthy"]
    assert verdict.severity is Severity.INFO
    assert "No fault found: workers are used well at all 3 points" in verdict.line
    assert "Fix" not in verdict.line


def test_the_remedied_beam_sweep_is_healthy(bag_trial):
    params = {"npartitions": "items"}
    trials = [bag_trial(n, [1] * n, stages=3, params=params) for n in ITEMS]
    trials += [bag_trial(100, [1] * n, stages=3, params=params) for n in ITEMS if n >= 50]
    verdict = diagnose(BEAM, trials)
    assert codes(verdict) == ["healthy", "uneven-waves", "fewer-items-than-workers"]
    assert verdict.severity is Severity.INFO


def test_one_item_on_many_workers_is_nobodys_fault(bag_trial):
    verdict = diagnose(BEAM, [bag_trial(100, [1], stages=3)])
    assert codes(verdict) == ["fewer-items-than-workers"]
    assert verdict.findings[0].summary.startswith("1 item on 100 workers: fewer items than workers")
    assert verdict.severity is Severity.INFO


def test_more_tasks_than_threads_in_uneven_waves(bag_trial):
    verdict = diagnose(FUTURES, [bag_trial(100, [1] * 110)])
    (finding,) = verdict.findings
    assert (finding.code, finding.severity) == ("uneven-waves", Severity.INFO)
    assert "110 tasks on 100 threads take 2 waves, and the last one has only 10" in finding.summary


def test_little_work_in_real_time_is_too_short_to_say(bag_trial):
    trial = bag_trial(300, chunks(300, 45))
    metrics = replace(trial.metrics, elapsed_s=1.0)
    long, short = (replace(trial, metrics=replace(metrics, work_s=work_s)) for work_s in (0.6, 0.3))
    local = replace(FUTURES, cluster=LocalSpec())
    assert diagnose(local, [long]).severity is Severity.HIGH
    assert diagnose(FUTURES, [short]).severity is Severity.HIGH  # simulated time has no noise
    verdict = diagnose(local, [short])
    assert codes(verdict)[0] == "too-short"
    assert verdict.severity is Severity.INFO
    failed = replace(trial, state=TrialState.FAILED, reason="the workload raised", metrics=None, repeat=1)
    assert diagnose(local, [short, failed]).findings[0].code == "failed-trials"


# ------------------------------------------------------------------ tasks of no length


def of_no_length(trial):
    return replace(trial, point=replace(trial.point, dask_config={ZERO_LENGTH: True}))


def test_a_point_of_no_length_is_no_point_of_the_sweep(bag_trial):
    trial = bag_trial(10, [3] * 10)
    verdict = diagnose(FUTURES, [trial, of_no_length(bag_trial(10, [1], params={"items": 30}))])
    assert codes(verdict) == ["healthy", "experiments"]
    assert f"with tasks of no length it took 1 s, {percent(1 / 3)} of it" in verdict.findings[1].summary


def test_a_sweep_of_nothing_else_is_judged(bag_trial):
    assert codes(diagnose(FUTURES, [of_no_length(bag_trial(10, [1] * 10))])) == ["healthy"]


# ------------------------------------------------------------------ what a remedy would bring


def test_a_remedy_that_a_point_has_is_shown_as_measured(bag_trial):
    few = bag_trial(10, [30], params={"npartitions": None})
    many = bag_trial(10, [3] * 10, params={"npartitions": 30})
    alone = diagnose(BAG, [few]).findings[0]
    assert alone.gain == Gain(30.0, 3.0, {"npartitions": 30})
    assert alone.fix == f"{alone.remedy} (predicted 3 s instead of 30 s)"
    both = diagnose(BAG, [few, many]).findings[0]
    assert both.gain == Gain(30.0, 3.0, {"npartitions": 30}, measured_s=3.0)
    assert diagnose(BAG, [few, many]).line.endswith("(predicted 3 s instead of 30 s; measured 3 s).")


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(2, 60))
def test_a_prediction_lies_between_the_best_possible_and_now(bag_trial, sizes, workers):
    trial = bag_trial(workers, sizes)
    for finding in diagnose(BAG, [trial]).findings:
        if finding.gain:
            assert sum(sizes) / workers - 1e-6 <= finding.gain.predicted_s <= finding.gain.now_s


# ------------------------------------------------------------------ partitions


def test_beam_puts_128_items_in_a_partition(bag_trial):
    trials = [bag_trial(n, chunks(n, 128), stages=3, params={"npartitions": None}) for n in ITEMS]
    trials += [bag_trial(100, chunks(n, 128), stages=3, params={"npartitions": None}) for n in ITEMS if n >= 50]
    verdict = diagnose(BEAM, trials)
    finding = verdict.findings[0]
    assert (finding.code, finding.severity, finding.confidence) == ("too-few-partitions", Severity.HIGH, 1.0)
    assert verdict.line == (
        "300 workers asked for, 3 used: Apache Beam puts 128 items in a partition, so 300 items are 3 partitions. "
        "Fix: pass Beam --dask_npartitions=<number of items> (in a sweep: params: {npartitions: items}) "
        "(predicted 3 s instead of 384 s)."
    )
    evidence = {item.what: item.value for item in finding.evidence}
    assert evidence["tasks of the widest stage"] == 3
    assert evidence["partitions that this default predicts"] == 3
    assert finding.points[0] == trials[ITEMS.index(300)].point.id
    # Every point but the one with one worker and one item is concerned.
    assert len(finding.points) == len({trial.point.id for trial in trials}) - 1
    assert finding.lost_s == pytest.approx(
        sum(
            trial.metrics.worker_time_s["no_runnable_task"] + trial.metrics.worker_time_s["tail"]
            for trial in trials
            if trial.point.id in finding.points
        )
    )


def test_beam_of_2023_left_it_to_the_bag(bag_trial):
    verdict = diagnose(BEAM, [bag_trial(n, chunks(n, max(1, n // 100)), stages=3) for n in (100, 199, 200, 300)])
    assert verdict.findings[0].severity is Severity.HIGH
    assert "300 workers asked for, 100 used: Apache Beam leaves it to dask.bag.from_sequence" in verdict.line
    assert "so 300 items are 100 partitions" in verdict.line
    assert "upgrade Apache Beam to 2.63" in verdict.line


def test_the_bag_sawtooth(bag_trial):
    trials = [bag_trial(w, chunks(n, BAG_ROOT.size(n))) for n, w in [(100, 100), (101, 100), (400, 200), (401, 300)]]
    verdict = diagnose(BAG, trials)
    finding = verdict.findings[0]
    assert (finding.code, finding.severity) == ("too-few-partitions", Severity.HIGH)
    assert verdict.line.startswith("300 workers asked for, 134 used: dask.bag.from_sequence groups more than 100 items")
    assert "npartitions= to dask.bag.from_sequence" in verdict.line
    assert len(finding.points) == 2


def test_about_half_of_the_workers_idle_is_severe(bag_trial):
    assert diagnose(BAG, [bag_trial(100, chunks(101, 2))]).severity is Severity.HIGH
    assert diagnose(BAG, [bag_trial(100, chunks(150, 2))]).severity is Severity.MEDIUM


def test_a_rule_is_not_named_where_the_numbers_say_otherwise(bag_trial):
    # 7 partitions of 300 items are nobody's default.
    verdict = diagnose(BEAM, [bag_trial(300, chunks(300, 45))])
    assert codes(verdict) == ["too-few-partitions"]
    assert "Beam" not in verdict.line
    assert "the widest stage of the graph has 7 tasks for 300 threads and 300 items" in verdict.line
    assert "at least 300 partitions" in verdict.line


def test_one_point_that_disagrees_takes_the_rule_away(bag_trial):
    trials = [bag_trial(300, chunks(300, 128)), bag_trial(200, chunks(200, 50))]
    assert "Beam" not in diagnose(BEAM, trials).line


def test_each_environment_has_rules_of_its_own(bag_trial):
    def trials(environment, size):
        found = [bag_trial(300, chunks(n, size(n)), stages=3, params={"npartitions": None}) for n in (200, 300)]
        return [replace(trial, point=replace(trial.point, environment=environment)) for trial in found]

    verdict = diagnose(BEAM, [*trials("2023 = dask==2023.5.0", lambda n: n // 100), *trials("present", lambda n: 128)])
    assert "300 workers asked for, 2 used: Apache Beam puts 128 items in a partition" in verdict.line
    assert len(verdict.findings[0].points) == 4


def test_partitions_that_were_asked_for_are_not_a_librarys_fault(bag_trial):
    verdict = diagnose(BEAM, [bag_trial(300, chunks(300, 100), params={"npartitions": 3})])
    assert "npartitions=3 was asked for, so the widest stage has 3 tasks" in verdict.line
    assert "set npartitions to at least 300" in verdict.line
    verdict = diagnose(BEAM, [bag_trial(100, chunks(300, 100), params={"partition_size": 100})])
    assert "set partition_size to at most 3" in verdict.line


def test_a_users_own_workload_needs_two_agreeing_counts(bag_trial):
    own = Sweep("mine.py:run")
    one = diagnose(own, [bag_trial(300, chunks(300, 128))])
    assert "Beam" not in one.line
    several = diagnose(own, [bag_trial(n, chunks(n, 128)) for n in (200, 300)])
    assert "Apache Beam puts 128 items in a partition" in several.line
    assert several.findings[0].confidence == 0.7
    assert "in a sweep" not in several.line


def test_a_users_own_pipeline_is_told_of_beams_option(bag_trial):
    def line(size):
        trial = bag_trial(300, chunks(300, size))
        return diagnose(
            Sweep("mine.py:run"), [replace(trial, facts={"imports": ["time", "apache_beam.runners.dask"]})]
        ).line

    assert "Apache Beam puts 128 items in a partition" in line(128)
    assert "the widest stage of the graph has 7 tasks" in line(45)
    assert "pass Beam --dask_npartitions=300" in line(45)


def asked(trial, call, items, partitions):
    where = "my_job.py:14 in run"
    return replace(trial, facts={"asked": [PartitionCall(call, where, items, partitions).to_mapping()]})


def test_the_line_that_made_the_partitions_is_named(bag_trial):
    """One trial is enough, whatever else the file imports."""
    unknown = {"params": {"items": ...}}
    own = Sweep("mine.py:run")
    beam = diagnose(own, [asked(bag_trial(40, chunks(80, 80), stages=2, **unknown), "apache_beam.Create", 80, 1)])
    assert "Apache Beam puts 128 items in a partition, so 80 items are 1 partition" in beam.line
    assert "(`apache_beam.Create` at my_job.py:14 in run). Fix: pass Beam --dask_npartitions" in beam.line
    assert (beam.findings[0].code, beam.findings[0].confidence) == ("too-few-partitions", 1.0)
    bag = diagnose(own, [asked(bag_trial(40, chunks(500, 125), **unknown), "dask.bag.from_sequence", 500, 4)])
    assert "`dask.bag.from_sequence` at my_job.py:14 in run makes 4 partitions out of 500 items." in bag.line
    assert "Fix: pass `npartitions=` for at least 40 partitions at my_job.py:14" in bag.line
    file = diagnose(own, [asked(bag_trial(8, [1], stages=3, **unknown), "dask.bag.read_text", None, 1)])
    assert file.findings[0].code == "too-few-partitions"
    assert "`dask.bag.read_text` at my_job.py:14 in run makes 1 partition." in file.line


def test_calls_that_made_another_number_of_partitions_are_not_blamed(bag_trial):
    trial = asked(bag_trial(100, [1] * 20, params={"items": ...}), "dask.bag.from_sequence", 3, 3)
    assert "my_job.py" not in diagnose(Sweep("mine.py:run"), [trial]).line


def test_without_items_the_structure_alone_is_no_severe_accusation(bag_trial):
    verdict = diagnose(Sweep("mine.py:run"), [bag_trial(100, [1] * 20, params={"items": ...})])
    assert (verdict.findings[0].code, verdict.severity) == ("too-few-partitions", Severity.MEDIUM)
    assert "20 tasks for 100 threads." in verdict.findings[0].summary


def test_threads_are_named_where_workers_have_several(bag_trial):
    verdict = diagnose(BAG, [bag_trial(50, chunks(300, 60), threads=4)])
    assert verdict.line.startswith("50 workers of 4 threads asked for, 2 used: ")


# ------------------------------------------------------------------ other causes


def test_a_chain_of_many_tasks_is_sequential(bag_trial):
    trial = bag_trial(10, [1], stages=100, params={"items": 100})
    merged = replace(trial, metrics=replace(trial.metrics, widest_stage=100))
    verdict = diagnose(FUTURES, [merged])
    assert codes(verdict) == ["sequential-graph"]
    assert verdict.severity is Severity.MEDIUM
    assert "no more than 1 threads can be busy" in verdict.line
    verdict = diagnose(Sweep("mine.py:run"), [bag_trial(10, [1], stages=100, params={"items": ...})])
    assert codes(verdict) == ["sequential-graph"]


@pytest.mark.parametrize(
    ("part", "hint"), [("not_assigned", "scheduler_us"), ("tail", "longest task"), ("transfer", "larger inputs")]
)
def test_lost_time_without_visible_cause_names_the_next_experiment(bag_trial, part, hint):
    trial = bag_trial(2, [1, 1])
    spent = dict.fromkeys(trial.metrics.worker_time_s, 0.0) | {"busy": 1.0, part: 1.0}
    verdict = diagnose(FUTURES, [replace(trial, metrics=replace(trial.metrics, worker_time_s=spent))])
    assert codes(verdict) == ["idle-workers-cause-unknown"]
    assert verdict.severity is Severity.MEDIUM
    assert "50 % of the worker time is not busy at 2 workers, 2 items" in verdict.line
    assert hint in verdict.line


def spent_elsewhere(trial, **spent):
    return replace(
        trial, metrics=replace(trial.metrics, worker_time_s=dict.fromkeys(trial.metrics.worker_time_s, 0.0) | spent)
    )


def test_workers_that_are_idle_while_the_script_waits_for_another_cluster_are_healthy(bag_trial):
    verdict = diagnose(FUTURES, [spent_elsewhere(bag_trial(2, [1, 1]), busy=1.0, client=0.2, other_cluster=8.8)])
    assert codes(verdict) == ["healthy"]
    assert "83 %" in verdict.line
    assert "88 %" in verdict.line


def test_idle_time_without_visible_cause_is_that_of_the_one_cluster(bag_trial):
    verdict = diagnose(FUTURES, [spent_elsewhere(bag_trial(2, [1, 1]), busy=1.0, not_assigned=1.0, other_cluster=6.0)])
    assert codes(verdict) == ["idle-workers-cause-unknown"]
    [finding] = verdict.findings
    assert finding.lost_s == 1.0
    assert "50 %" in finding.summary
    assert "not assigned` (50 %)" in finding.summary


# ------------------------------------------------------------------ excluded trials


def test_a_failed_trial_limits_trust_and_hides_no_cause(bag_trial):
    failed = replace(
        bag_trial(7, [1]), state=TrialState.FAILED, reason="ZeroDivisionError: division by zero\nmore", metrics=None
    )
    verdict = diagnose(BEAM, [bag_trial(300, chunks(300, 128)), failed])
    assert codes(verdict) == ["too-few-partitions", "failed-trials"]
    assert [finding.code for finding in verdict.trust] == ["failed-trials"]
    assert verdict.text.splitlines() == [
        "1 of 2 trials failed, first at 7 workers, 1 item: ZeroDivisionError: division by zero.",
        verdict.findings[0].line,
    ]
    assert (verdict.severity, verdict.findings[0].confidence) == (Severity.HIGH, 1.0)  # the failure is elsewhere
    assert codes(diagnose(BEAM, [bag_trial(10, [1] * 10), failed])) == ["failed-trials"]


def test_invalid_trials_are_reported_and_never_measured(bag_trial):
    spoilt = replace(bag_trial(100, chunks(300, 128)), state=TrialState.INVALID, reason="lost 2 of 100 workers")
    verdict = diagnose(BEAM, [bag_trial(10, [1] * 10), spoilt])
    assert codes(verdict) == ["too-few-partitions", "invalid-trials"]
    assert verdict.trust[0].severity is Severity.MEDIUM
    assert "lost 2 of 100 workers" in verdict.text
    cause = verdict.findings[0]  # the graph is known, its times are not
    assert (cause.confidence, cause.gain) == (DOUBTED, None)
    assert diagnose(BEAM, [bag_trial(100, chunks(300, 128))]).findings[0].gain is not None
    sound = replace(spoilt, metrics=None)
    assert codes(diagnose(BEAM, [bag_trial(10, [1] * 10), sound])) == ["invalid-trials"]


def test_nothing_measured_is_severe(bag_trial):
    assert "no trial was run" in diagnose(BEAM, []).line
    spoilt = [
        replace(bag_trial(n, chunks(300, 128)), state=TrialState.INVALID, reason="host overloaded") for n in (1, 2)
    ]
    verdict = diagnose(BEAM, spoilt)
    assert codes(verdict) == ["invalid-trials"]
    assert (verdict.severity, verdict.trust, verdict.text) == (Severity.HIGH, (), verdict.line)
    assert "2 of 2 trials did not count, first at 1 worker" in verdict.text


def test_warmups_alone_are_nothing(bag_trial):
    assert codes(diagnose(BEAM, [replace(bag_trial(1, [1]), warmup=True)])) == ["nothing-measured"]


# ------------------------------------------------------------------ all


def test_findings_travel_as_json(bag_trial):
    for finding in diagnose(BEAM, [bag_trial(300, chunks(300, 128))]).findings:
        assert Finding.from_mapping(finding.to_mapping()) == finding


@given(
    st.integers(1, 12),
    st.lists(st.integers(1, 4), min_size=1, max_size=30),
    st.integers(1, 3),
    st.sampled_from(["beam-pardo", "bag-map", "m:f"]),
)
def test_there_is_always_one_line_and_no_severe_finding_without_idle_workers(bag_trial, workers, sizes, stages, name):
    trial = bag_trial(workers, sizes, stages=stages)
    verdict = diagnose(Sweep(name), [trial])
    assert verdict.line
    assert "\n" not in verdict.line
    spent = trial.metrics.worker_time_s
    if verdict.severity is Severity.HIGH:
        assert spent["no_runnable_task"] + spent["tail"] >= 0.45 * sum(spent.values())
        assert trial.metrics.peak_runnable < min(workers, sum(sizes))
    if spent["busy"] >= 0.91 * sum(spent.values()):
        assert codes(verdict) == ["healthy"]


@pytest.mark.parametrize(
    ("rule", "items", "partitions"),
    [
        (BEAM_128, 100, 1),
        (BEAM_128, 200, 2),
        (BEAM_128, 1000, 8),
        (BAG_ROOT, 100, 100),
        (BAG_ROOT, 101, 51),
        (BAG_ROOT, 400, 200),
        (BAG_ROOT, 401, 134),
        (BAG_100, 199, 199),
        (BAG_100, 200, 100),
        (BAG_100, 1000, 100),
        (BAG_100, 0, 1),
    ],
)
def test_the_defaults_as_measured(rule, items, partitions):
    assert rule.partitions(items) == partitions


def test_the_bags_default_is_that_of_the_dask_installed_here():
    bag = pytest.importorskip("dask.bag")
    for items in [1, 99, 100, 101, 199, 200, 399, 400, 401, 900, 901, 5000]:
        assert BAG_ROOT.partitions(items) == bag.from_sequence(range(items)).npartitions


@given(st.sets(st.integers(1, 5000), min_size=1, max_size=5))
def test_a_rule_matches_what_it_predicts(items):
    for rule in (BEAM_128, BAG_ROOT, BAG_100):
        found = matching((n, rule.partitions(n)) for n in items)
        assert found is not None
        assert all(found.partitions(n) == rule.partitions(n) for n in items)
    assert matching([]) is None
    assert matching([(300, 7)]) is None
