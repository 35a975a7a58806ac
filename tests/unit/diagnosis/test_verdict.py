from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.clusters.local.spec import LocalSpec
from scalescope.diagnosis.cause import DOUBTED
from scalescope.diagnosis.partitions import BAG_100, BAG_ROOT, BEAM_128, matching
from scalescope.diagnosis.verdict import diagnose
from scalescope.model.finding import BEYOND_CORES, PERHAPS, PROBABLY, Evidence, Finding, Gain, Place, Severity
from scalescope.model.partition_calls import PartitionCall
from scalescope.model.sweep import ZERO_LENGTH, Sweep
from scalescope.model.trial import TrialState

BEAM, BAG, FUTURES, OWN = Sweep("beam-pardo"), Sweep("bag-map"), Sweep("futures-map"), Sweep("mine.py:run")
ITEMS = [1, 2, 10, 50, 100, 150, 190, 199, 200, 250, 300]
FEW = ["too-few-partitions"]
CREATE, BAG_CALL = "apache_beam.Create", "dask.bag.from_sequence"
HIGH, MEDIUM, INFO = Severity.HIGH, Severity.MEDIUM, Severity.INFO
UNKNOWN = {"items": ...}  # the sweep does not say how many there are


def chunks(items: int, size: int) -> list[int]:
    return [min(size, items - begin) for begin in range(0, items, size)]


def codes(verdict) -> list[str]:
    return [finding.code for finding in verdict.findings]


def of_no_length(trial):
    return replace(trial, point=replace(trial.point, dask_config={ZERO_LENGTH: True}))


def spent(trial, **seconds):
    """The same trial with this worker time, and no other."""
    parts = dict.fromkeys(trial.metrics.worker_time_s, 0.0) | seconds
    return replace(trial, metrics=replace(trial.metrics, worker_time_s=parts))


def asked(trial, call, items, partitions):
    """The same trial, whose code made `partitions` of `items` by one call."""
    made = PartitionCall(call, "my_job.py:14 in run", items, partitions)
    return replace(trial, facts={"asked": [made.to_mapping()]})


def in_environment(trial, environment):
    return replace(trial, point=replace(trial.point, environment=environment))


def by_beam(trial):
    return replace(trial, facts={"imports": ["time", "apache_beam.runners.dask"]})


def merged(trial):
    """The same trial, as if all tasks of its chain were one stage."""
    return replace(trial, metrics=replace(trial.metrics, widest_stage=trial.metrics.tasks))


def remedied(of, **params):
    trials = [of(n, [1] * n, stages=3, params={"npartitions": "items"}) for n in ITEMS]
    return trials + [of(100, [1] * n, stages=3, params={"npartitions": "items"}) for n in ITEMS if n >= 50]


def grown(of, size, environment):
    """A sweep over items on 300 workers, without a number of partitions."""
    trials = [of(300, chunks(n, size(n)), stages=3, params={"npartitions": None}) for n in (200, 300)]
    return [in_environment(trial, environment) for trial in trials]


HEALTHY = {
    "workers used well": lambda of: [of(n, [1] * n) for n in (1, 10, 100)],
    "tasks of no length alone": lambda of: [of_no_length(of(10, [1] * 10))],
    "idle for another cluster": lambda of: [spent(of(2, [1, 1]), busy=1.0, client=0.2, other_cluster=8.8)],
}
BESIDE = {
    "beside tasks of no length": lambda of: [of(10, [3] * 10), of_no_length(of(10, [1], params={"items": 30}))],
}
# partitions: by a default, or as requested
OF_BEAM = {
    "beam of 2023 left it to the bag": lambda of: [of(n, chunks(n, n // 100), stages=3) for n in (100, 199, 200, 300)],
    "the numbers are nobody's default": lambda of: [of(300, chunks(300, 45))],
    "one point disagrees with the default": lambda of: [of(300, chunks(300, 128)), of(200, chunks(200, 50))],
    "npartitions was asked for": lambda of: [of(300, chunks(300, 100), params={"npartitions": 3})],
    "partition_size was asked for": lambda of: [of(100, chunks(300, 100), params={"partition_size": 100})],
}
OF_BAGS = {
    "about half of the workers idle": lambda of: [of(100, chunks(101, 2))],
    "several threads a worker": lambda of: [of(50, chunks(300, 60), threads=4)],
}
OF_OWN = {
    "one count": lambda of: [of(300, chunks(300, 128))],
    "two counts that agree": lambda of: [of(n, chunks(n, 128)) for n in (200, 300)],
    "own pipeline, beam's default": lambda of: [by_beam(of(300, chunks(300, 128)))],
    "own pipeline, another number": lambda of: [by_beam(of(300, chunks(300, 45)))],
    "a line of beam": lambda of: [asked(of(40, chunks(80, 80), stages=2, params=UNKNOWN), CREATE, 80, 1)],
    "a line of a bag": lambda of: [asked(of(40, chunks(500, 125), params=UNKNOWN), BAG_CALL, 500, 4)],
    "a line that reads a file": lambda of: [asked(of(8, [1], stages=3, params=UNKNOWN), "dask.bag.read_text", None, 1)],
}
NOT_SO_FEW = {
    "a line that made another number": lambda of: [asked(of(100, [1] * 20, params=UNKNOWN), BAG_CALL, 3, 3)],
    "items are not known": lambda of: [of(100, [1] * 20, params=UNKNOWN)],
}
IDLE = {
    "and another cluster": lambda of: [spent(of(2, [1, 1]), busy=1.0, not_assigned=1.0, other_cluster=6.0)],
    "tail": lambda of: [spent(of(2, [1, 1]), busy=1.0, tail=1.0)],
    "transfer": lambda of: [spent(of(2, [1, 1]), busy=1.0, transfer=1.0)],
    "spill": lambda of: [spent(of(2, [1, 1]), busy=1.0, spill=1.0)],
}
NOTHING = {"no trial": lambda of: [], "warm-ups alone": lambda of: [replace(of(1, [1]), warmup=True)]}
SEQUENTIAL = ["sequential-graph"]
CASES = {
    name: (sweep, trials, severity, expected)
    for sweep, severity, expected, rows in [
        (FUTURES, INFO, ["healthy"], HEALTHY),
        (FUTURES, INFO, ["healthy", "experiments"], BESIDE),
        (BEAM, INFO, ["healthy", "uneven-waves", "fewer-items-than-workers"], {"the remedied sweep": remedied}),
        (BEAM, INFO, ["fewer-items-than-workers"], {"one item": lambda of: [of(100, [1], stages=3)]}),
        (FUTURES, INFO, ["uneven-waves"], {"uneven waves": lambda of: [of(100, [1] * 110)]}),
        (BEAM, HIGH, FEW, OF_BEAM),
        (BAG, HIGH, FEW, OF_BAGS),
        (BAG, MEDIUM, FEW, {"less than half of the workers idle": lambda of: [of(100, chunks(150, 2))]}),
        (OWN, HIGH, FEW, OF_OWN),
        (OWN, MEDIUM, FEW, NOT_SO_FEW),
        (FUTURES, MEDIUM, SEQUENTIAL, {"a chain": lambda of: [merged(of(10, [1], stages=100, params={"items": 100}))]}),
        (OWN, MEDIUM, SEQUENTIAL, {"a chain of unknown items": lambda of: [of(10, [1], stages=100, params=UNKNOWN)]}),
        (FUTURES, MEDIUM, ["idle-workers-cause-unknown"], IDLE),
        (BEAM, HIGH, ["nothing-measured"], NOTHING),
    ]
    for name, trials in rows.items()
}


@pytest.mark.parametrize("case", CASES)
def test_a_sweep_gets_its_expected_verdict(bag_trial, golden, case):
    sweep, trials, severity, expected = CASES[case]
    verdict = golden(diagnose(sweep, trials(bag_trial)))
    assert (codes(verdict), verdict.severity) == (expected, severity)


def test_a_trial_with_little_work_is_reported_as_too_short_only_in_real_time(bag_trial):
    trial = bag_trial(300, chunks(300, 45))
    metrics = replace(trial.metrics, elapsed_s=1.0)
    long, short = (replace(trial, metrics=replace(metrics, work_s=work_s)) for work_s in (0.6, 0.3))
    local = replace(FUTURES, cluster=LocalSpec())
    assert diagnose(local, [long]).severity is Severity.HIGH
    assert diagnose(FUTURES, [short]).severity is Severity.HIGH  # simulated time has no noise
    verdict = diagnose(local, [short])
    assert (codes(verdict)[0], verdict.severity) == ("too-short", Severity.INFO)
    failed = replace(trial, state=TrialState.FAILED, reason="the workload raised", metrics=None, repeat=1)
    assert diagnose(local, [short, failed]).findings[0].code == "failed-trials"


def short(bag_trial, elapsed_s, work_s, **findings):
    """A verdict on a trial in real time with findings of these codes and severities."""
    trial = bag_trial(300, chunks(300, 1))
    found = tuple(Finding(code.replace("_", "-"), severity, f"{code}.", "do it") for code, severity in findings.items())
    metrics = replace(trial.metrics, elapsed_s=elapsed_s, work_s=work_s)
    return diagnose(replace(FUTURES, cluster=LocalSpec()), [replace(trial, metrics=metrics, findings=found)])


@pytest.mark.parametrize(("elapsed_s", "work_s"), [(0.3, 0.1), (1.9, 0.4)])
def test_a_very_short_trial_reports_only_findings_that_grow_with_the_work(bag_trial, elapsed_s, work_s):
    verdict = short(bag_trial, elapsed_s, work_s, client_busy=HIGH, transfer_bound=MEDIUM, tiny_tasks=HIGH)
    assert codes(verdict) == ["too-short", "tiny-tasks"]  # the latter grows
    assert verdict.severity is INFO
    assert verdict.findings[0].fix == ""
    assert codes(short(bag_trial, elapsed_s, work_s, client_busy=HIGH, worker_killing_task=HIGH))[0] != "too-short"


@pytest.mark.parametrize("code", ["client_busy", "client_waits", "transfer_bound", "straggler", "late_workers"])
def test_a_loss_below_one_second_per_worker_is_healthy(bag_trial, code):
    verdict = short(bag_trial, 0.9, 40.0, **{code: HIGH})
    assert (codes(verdict)[0], verdict.severity) == ("healthy", INFO)
    assert short(bag_trial, 1.1, 40.0, **{code: HIGH}).severity is HIGH


@pytest.mark.parametrize("code", ["results_awaited_in_loop", "tiny_tasks", "gil_bound"])
def test_findings_that_grow_with_the_work_are_reported_below_one_second_too(bag_trial, code):
    finding, long = (short(bag_trial, elapsed_s, 40.0, **{code: HIGH}).findings[0] for elapsed_s in (0.9, 1.1))
    assert (finding.code, finding.severity) == (long.code, HIGH)
    assert len(finding.summary) > len(long.summary)  # it says that it grows


# ------------------------------------------------------------------ what a remedy would bring


def test_a_remedy_that_another_point_already_uses_shows_its_measured_gain(bag_trial, golden):
    few = bag_trial(10, [30], params={"npartitions": None})
    many = bag_trial(10, [3] * 10, params={"npartitions": 30})
    alone, both = diagnose(BAG, [few]), diagnose(BAG, [few, many])
    assert alone.findings[0].gain == Gain(30.0, 3.0, {"npartitions": 30})
    assert both.findings[0].gain == Gain(30.0, 3.0, {"npartitions": 30}, measured_s=3.0)
    golden(alone, both)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(2, 60))
def test_a_prediction_lies_between_the_best_possible_and_now(bag_trial, sizes, workers):
    trial = bag_trial(workers, sizes)
    for finding in diagnose(BAG, [trial]).findings:
        if finding.gain:
            assert sum(sizes) / workers - 1e-6 <= finding.gain.predicted_s <= finding.gain.now_s


# ------------------------------------------------------------------ partitions


@pytest.mark.parametrize(("known", "place"), [(True, Place("my_job.py", 14, "run")), (False, None)])
def test_the_line_that_makes_partitions_is_kept_as_the_place_of_the_finding(bag_trial, known, place):
    trial = bag_trial(40, chunks(500, 125), params=UNKNOWN)
    trial = asked(trial, "dask.bag.from_sequence", 500, 4) if known else trial
    assert diagnose(OWN, [trial]).findings[0].place == place


def test_too_few_partitions_are_found_where_the_default_of_a_library_drops(bag_trial, golden):
    trials = [bag_trial(n, chunks(n, 128), stages=3, params={"npartitions": None}) for n in ITEMS]
    trials += [bag_trial(100, chunks(n, 128), stages=3, params={"npartitions": None}) for n in ITEMS if n >= 50]
    finding = diagnose(BEAM, trials).findings[0]
    assert (finding.code, finding.severity, finding.confidence) == ("too-few-partitions", Severity.HIGH, 1.0)
    evidence = {item.what: item.value for item in finding.evidence}
    assert evidence["tasks of the widest stage"] == evidence["partitions that this default predicts"] == 3
    assert finding.points[0] == trials[ITEMS.index(300)].point.id
    # Every point but the one with one worker and one item is concerned.
    assert len(finding.points) == len({trial.point.id for trial in trials}) - 1
    concerned = [trial.metrics.worker_time_s for trial in trials if trial.point.id in finding.points]
    assert finding.lost_s == pytest.approx(sum(parts["no_runnable_task"] + parts["tail"] for parts in concerned))
    bags = [bag_trial(w, chunks(n, BAG_ROOT.size(n))) for n, w in [(100, 100), (101, 100), (400, 200), (401, 300)]]
    verdict = diagnose(BAG, bags)
    assert (codes(verdict)[0], verdict.severity, len(verdict.findings[0].points)) == (*FEW, Severity.HIGH, 2)
    golden(diagnose(BEAM, trials), verdict)


def test_each_environment_is_judged_by_its_own_partition_rule(bag_trial, golden):
    old = grown(bag_trial, lambda n: n // 100, environment="2023 = dask==2023.5.0")
    verdict = golden(diagnose(BEAM, [*old, *grown(bag_trial, lambda n: 128, environment="present")]))
    assert len(verdict.findings[0].points) == 4


# ------------------------------------------------------------------ excluded trials


def spoilt(trial, state, reason, **given):
    return replace(trial, state=state, reason=reason, **given)


def test_a_failed_trial_limits_trust_and_hides_no_other_finding(bag_trial, golden):
    raised = "ZeroDivisionError: division by zero\nmore"
    failed = spoilt(bag_trial(7, [1]), TrialState.FAILED, raised, metrics=None)
    verdict = golden(diagnose(BEAM, [bag_trial(300, chunks(300, 128)), failed]))
    assert codes(verdict) == ["too-few-partitions", "failed-trials"]
    assert [finding.code for finding in verdict.trust] == ["failed-trials"]
    assert (verdict.severity, verdict.findings[0].confidence) == (Severity.HIGH, 1.0)  # the failure is elsewhere
    assert codes(diagnose(BEAM, [bag_trial(10, [1] * 10), failed])) == ["failed-trials"]


def test_invalid_trials_are_reported_and_their_times_are_not_used(bag_trial, golden):
    lost = spoilt(bag_trial(100, chunks(300, 128)), TrialState.INVALID, "lost 2 of 100 workers")
    verdict = golden(diagnose(BEAM, [bag_trial(10, [1] * 10), lost]))
    assert codes(verdict) == ["too-few-partitions", "invalid-trials"]
    assert verdict.trust[0].severity is Severity.MEDIUM
    cause = verdict.findings[0]  # the graph is known, its times are not
    assert (cause.confidence, cause.gain) == (DOUBTED, None)
    assert diagnose(BEAM, [bag_trial(100, chunks(300, 128))]).findings[0].gain is not None
    assert codes(diagnose(BEAM, [bag_trial(10, [1] * 10), replace(lost, metrics=None)])) == ["invalid-trials"]


def test_beside_a_valid_trial_invalid_ones_show_their_faults_but_no_mere_information(bag_trial):
    found = (Finding("uneven-waves", Severity.INFO, "waves.", ""), Finding("deadly-task", Severity.HIGH, "died.", ""))
    lost = replace(spoilt(bag_trial(4, [1] * 4), TrialState.INVALID, "lost a worker"), findings=found)
    assert "uneven-waves" in codes(diagnose(BEAM, [lost]))
    both = codes(diagnose(BEAM, [lost, bag_trial(2, [1] * 4)]))
    assert ("uneven-waves" in both, "deadly-task" in both) == (False, True)


def test_a_sweep_with_only_invalid_trials_has_a_severe_verdict(bag_trial, golden):
    trials = [spoilt(bag_trial(n, chunks(300, 128)), TrialState.INVALID, "host overloaded") for n in (1, 2)]
    verdict = golden(diagnose(BEAM, trials))
    assert codes(verdict) == ["invalid-trials"]
    assert (verdict.severity, verdict.trust, verdict.text) == (Severity.HIGH, (), verdict.line)


# ------------------------------------------------------------------ busy hosts


FEW_CORES = (Evidence(BEYOND_CORES, 6, "facts host.load"),)


def told(code, lost_s=10.0, severity=HIGH, **given):
    return Finding(code, severity, f"{code}.", "a remedy", lost_s=lost_s, **given)


@pytest.mark.parametrize(
    "limit", [told("host-overloaded", 90.0, MEDIUM), told("oversubscribed-threads", 90.0, evidence=FEW_CORES)]
)
@pytest.mark.parametrize(
    ("code", "doubted"), [("straggler", True), ("tiny-tasks", True), ("memory-spill", False), ("late-workers", False)]
)
def test_causes_based_on_task_times_are_doubted_when_cores_are_few(bag_trial, limit, code, doubted):
    trial = replace(bag_trial(10, [1] * 10), findings=(limit, told(code)))
    verdict = diagnose(BEAM, [trial])
    assert codes(verdict) == [code, limit.code]
    assert verdict.trust[0].code == limit.code
    assert verdict.line.startswith(PERHAPS) is doubted
    assert verdict.findings[0].severity is (MEDIUM if doubted else HIGH)
    alone = diagnose(BEAM, [replace(trial, findings=(told(code),))])
    assert (alone.findings[0].severity, alone.line.startswith(PERHAPS)) == (HIGH, False)


@pytest.mark.parametrize(("for_core", "doubted"), [(0.0, True), (0.3, False), (3.0, True)])
def test_times_of_tasks_that_had_their_cores_are_not_doubted(bag_trial, for_core, doubted):
    """Tasks are busy for 10 s, `for_core` of them without a core; 0 means unknown."""
    trial = replace(bag_trial(10, [1] * 10), findings=(told("host-overloaded", 90.0, MEDIUM), told("straggler")))
    busy = {"computing": 0.0, "for_core": for_core, "waiting": 10.0 - for_core, "unknown": 0.0}
    verdict = diagnose(BEAM, [replace(trial, metrics=replace(trial.metrics, busy_time_s=busy))])
    assert verdict.line.startswith(PERHAPS) is doubted


@pytest.mark.parametrize(
    ("confidence", "others", "names"),
    [
        (0.6, (), ""),
        (0.5, (), "the cause is unknown"),
        (0.5, (told("client-busy", 1.0, MEDIUM),), "`client-busy`"),
        (0.7, (told("host-overloaded", 90.0, MEDIUM),), "`host-overloaded`"),
        (0.7, (told("host-overloaded", 90.0, MEDIUM), told("tiny-tasks", 1.0, MEDIUM)), "`tiny-tasks`"),
    ],
)
def test_an_uncertain_first_cause_is_shown_with_the_next_one_and_the_test_that_tells_them_apart(
    bag_trial, confidence, others, names
):
    trial = replace(bag_trial(10, [1] * 10), findings=(told("gil-bound", confidence=confidence), *others))
    verdict = diagnose(BEAM, [trial])
    assert codes(verdict)[0] == "gil-bound"
    assert verdict.line.startswith(PROBABLY) == bool(names)
    assert names in verdict.line
    free = bool(others) and others[0].code == "host-overloaded"
    assert not names or (("on an idle host" if free else "threads_per_worker=1") in verdict.line)


def test_a_finding_that_limits_trust_is_the_verdict_if_no_cause_is_known(bag_trial):
    found = told("oversubscribed-threads", evidence=FEW_CORES)
    assert codes(diagnose(BEAM, [replace(bag_trial(10, [1] * 10), findings=(found,))])) == ["oversubscribed-threads"]


# ------------------------------------------------------------------ all


def test_findings_survive_json_unchanged(bag_trial):
    for finding in diagnose(BEAM, [bag_trial(300, chunks(300, 128))]).findings:
        assert Finding.from_mapping(finding.to_mapping()) == finding


@given(
    st.integers(1, 12),
    st.lists(st.integers(1, 4), min_size=1, max_size=30),
    st.integers(1, 3),
    st.sampled_from(["beam-pardo", "bag-map", "m:f"]),
)
def test_a_verdict_has_one_line_and_is_never_severe_without_idle_workers(bag_trial, workers, sizes, stages, name):
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
    ("rule", "counts"),
    [
        (BEAM_128, {100: 1, 200: 2, 1000: 8}),
        (BAG_ROOT, {100: 100, 101: 51, 400: 200, 401: 134}),
        (BAG_100, {199: 199, 200: 100, 1000: 100, 0: 1}),
    ],
)
def test_the_default_partition_rules_give_the_measured_numbers(rule, counts):
    assert {items: rule.partitions(items) for items in counts} == counts


def test_the_default_rule_for_bags_agrees_with_the_installed_dask():
    bag = pytest.importorskip("dask.bag")
    for items in [1, 99, 100, 101, 199, 200, 399, 400, 401, 900, 901, 5000]:
        assert BAG_ROOT.partitions(items) == bag.from_sequence(range(items)).npartitions


@given(st.sets(st.integers(1, 5000), min_size=1, max_size=5))
def test_a_partition_rule_matches_its_own_predictions(items):
    for rule in (BEAM_128, BAG_ROOT, BAG_100):
        found = matching((n, rule.partitions(n)) for n in items)
        assert found is not None
        assert all(found.partitions(n) == rule.partitions(n) for n in items)
    assert matching([]) is None
    assert matching([(300, 7)]) is None
