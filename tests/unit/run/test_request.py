from __future__ import annotations

import pickle
from pathlib import Path

from support.requests import asked

WORKLOAD = "def run(client, *, items: int = 3):\n    client.gather(client.map(abs, range(items)))\n"


def test_a_request_can_be_sent_to_another_process(tmp_path: Path, address: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(WORKLOAD)
    sweep = {"workload": f"{path}:run", "axes": {"workers": [1, 2]}}
    request = asked(sweep, store=address, refine=3, verify=True, budget={"hours": 1})
    again = pickle.loads(pickle.dumps(request))
    assert again == request
    assert again.workload.run.__name__ == "run"
