"""A training program that reports only what the Kubeflow callback of Hugging Face's Trainer reports, and in the same way.

kubeflow_program.py [FILE]: sends reports at the beginning, in the middle and at the end. Before the last report, it
waits until FILE exists.
"""

import json
import os
import pathlib
import sys
import time
import urllib.request
from datetime import datetime, timezone


def post(progress, remaining=None, metrics=None):
    """Sends a report and returns the status of the answer."""
    token = pathlib.Path(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read_text(encoding="utf-8").strip()
    status = {"lastUpdatedTime": datetime.now(timezone.utc).isoformat(), "progressPercentage": progress}
    if remaining is not None:
        status["estimatedRemainingSeconds"] = remaining
    if metrics:
        status["metrics"] = [{"name": str(name), "value": str(value)} for name, value in metrics.items()]
    request = urllib.request.Request(
        os.environ["KUBEFLOW_TRAINER_SERVER_URL"], data=json.dumps({"trainerStatus": status}).encode(), method="POST",
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.status


def main():
    logged = {"loss": 0.2347, "grad_norm": 1.5, "learning_rate": 5e-05, "epoch": 0.25}
    print("begin", post(0, metrics={"total_steps": 100}), flush=True)
    more = {"current_step": 29, "total_steps": 100, "current_epoch": 0.29}
    print("middle", post(29, 795, {**logged, **more}), flush=True)
    while len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    # The program ends immediately after its last report.
    print("end", post(100, 0, {**logged, "loss": 0.1, "epoch": 1.0, "train_loss": 0.3}), flush=True)


if __name__ == "__main__":
    main()
