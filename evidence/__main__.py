"""Run what shows a claim of the pages: `python -m evidence NAME [options]`; without a name, say which there are.

Imports are of the repository as it lies here: the folder itself, and `tests`, `tests/causes` and `evidence/cases` for
their modules. Processes that are started find the first two.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from pkgutil import resolve_name

ROOT = Path(__file__).resolve().parents[1]
# Name -> module and function, and what it shows
COMMANDS = {
    "cases": ("evidence.cases.check:main", "that all cases are well formed (seconds)"),
    "check": ("evidence.check:main", "how exact `scalescope check` is about 80 collections (ten minutes)"),
    "outside": ("evidence.diagnosis.outside:main", "how often the cause of others' functions is named first"),
    "scripts": ("evidence.diagnosis.scripts:main", "the same of others' scripts and Prefect flows"),
    "remedies": ("evidence.diagnosis.remedies:main", "how often remedies help, do nothing, or harm (seconds)"),
    "fix": ("evidence.diagnosis.fixes:main", "that others' scripts are patched, and healthy ones left alone"),
    "agent": ("evidence.diagnosis.agent:main", "what an agent gains that does what brief answers say, and no more"),
    "confusion": ("evidence.diagnosis.confusion:main", "the same of our own labelled cases (tests/causes)"),
    "prediction": ("evidence.prediction:main", "how far predictions of larger clusters are off"),
    "size": ("evidence.size:main", "how good the clusters are that size chooses"),
    "peers": ("evidence.peers.peers:main", "that other projects' tests end the same under the recorder"),
    "faults": ("evidence.faults.command:main", "that faults at every stage of a sweep lose and leave nothing"),
    "gpu": ("evidence.gpu.check:main", "what is seen of a card: its busy time, memory and causes"),
    "script": ("evidence.speed.script:main", "what `scalescope run` costs a script"),
    "recorder": ("evidence.speed.recorder:main", "what recording a trial costs the scheduler"),
    "clusters": ("evidence.speed.clusters:main", "how fast emulated clusters are"),
    "analysis": ("evidence.speed.analysis:main", "seconds of the analysis of a million tasks"),
    "report": ("evidence.speed.report:main", "seconds and size of the report of a million tasks"),
    "scale": ("evidence.speed.scale:main", "how the work of Scalescope grows with tasks, trials and runs"),
    "simulated": ("evidence.methods.simulated:main", "how far simulated seconds are from real ones"),
    "knee": ("evidence.methods.knee:main", "how often the knee of a made-up curve is found"),
    "threshold": ("evidence.methods.threshold:main", "how often a search finds the jumps of a made-up curve"),
    "comparison": ("evidence.methods.comparison:main", "how often a comparison of made-up pairs is right"),
    "release": ("evidence.methods.release:main", "how often a bisection of made-up releases is right"),
    "changes": ("evidence.methods.changes:main", "how often a nightly series is judged wrongly"),
    "year": ("evidence.methods.year:main", "what a year of nights tells, and how often wrongly"),
    "pull-requests": ("evidence.methods.pull_requests:main", "how often a pull request is commented wrongly"),
    "known-regressions": ("evidence.methods.known_regressions:main", "that diff names the reason of known regressions"),
    "all": ("evidence.run_all:main", "all that `make bench` measures, one after another (wants a quiet machine)"),
}


def main() -> int | None:
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print("python -m evidence NAME [options]\n")
        print("\n".join(f"  {name:18} {text}" for name, (_, text) in COMMANDS.items()))
        return int(len(sys.argv) > 1 and sys.argv[1] not in ("-h", "--help"))
    own = [str(ROOT), str(ROOT / "tests")]
    sys.path[:0] = [*own, str(ROOT / "tests" / "causes"), str(ROOT / "evidence" / "cases")]
    os.environ["PYTHONPATH"] = os.pathsep.join([*own, *filter(None, [os.environ.get("PYTHONPATH")])])
    name = sys.argv.pop(1)
    sys.argv[0] = f"python -m evidence {name}"
    return resolve_name(COMMANDS[name][0])()


if __name__ == "__main__":
    sys.exit(main())
