"""Tests the validator while operators are stopped or replaced, and while its certificate is being renewed.

$ADAPTDL_VALIDATOR_RENEWALS is the number of renewals (default: 2), each of which takes two minutes.
"""

import concurrent.futures
import json
import os
import time

import cluster_support
from operator_support import DEPLOYMENT, OPERATOR_LABEL, OperatorTest

RENEWALS = int(os.environ.get("ADAPTDL_VALIDATOR_RENEWALS", "2"))
LIFETIME = 180  # seconds; the shortest that is allowed
NAME = "adaptdl-validator"
CLIENTS = 4


class ValidatorTest(OperatorTest):
    settings = {"validatorFailurePolicy": "Fail", "validatorCertificateLifetime": f"{LIFETIME}s"}

    def setUp(self):
        super().setUp()
        self.wait_for_validator()
        self.right = json.dumps(self.job_document("right", "true"))

    def create_dry(self):
        return self.kubectl("create", "--dry-run=server", "-f", "-", text=self.right, check=False)

    def deep_job(self, name):
        job = json.dumps(self.job_document(name, "true", container={"deep": "DEEP"}))
        return job.replace('"DEEP"', "[" * 500 + "]" * 500)

    def certificate(self):
        done = self.kubectl_in(self.operator_namespace, "get", "secret", NAME, "-o", "json")
        return json.loads(done)["data"]["tls.crt"]

    def set_policy(self, policy):
        patch = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": policy}]
        for kind in ("validatingwebhookconfiguration", "mutatingwebhookconfiguration"):
            self.kubectl_in("default", "patch", kind, NAME, "--type=json", "-p", json.dumps(patch))

    def scale(self, replicas):
        self.kubectl_in(self.operator_namespace, "scale", f"deployment/{DEPLOYMENT}", f"--replicas={replicas}")
        if replicas:
            self.wait_for_operator()
            return
        pods = ("get", "pods", "-l", OPERATOR_LABEL, "-o", "name")
        self.wait_for("the operators are gone", lambda: not self.kubectl_in(self.operator_namespace, *pods).strip())

    def test_without_an_operator_jobs_are_accepted_or_rejected_according_to_the_failure_policy(self):
        self.addCleanup(self.scale, 2)
        self.addCleanup(self.set_policy, "Fail")
        self.scale(0)
        refused = self.create_dry()
        self.assertNotEqual(refused.returncode, 0)
        self.assertRegex(refused.stderr, 'webhook "(validator|submitter).adaptdl.petuum.com"')
        # Other objects are not affected.
        self.kubectl("create", "configmap", "other", "--dry-run=server")
        self.set_policy("Ignore")
        self.wait_for("jobs are accepted", lambda: self.create_dry().returncode == 0)
        # A job that operators cannot parse completely is stored, but does not block them.
        self.kubectl("create", "-f", "-", text=self.deep_job("before"))
        self.scale(2)
        self.wait_for_validator()
        self.create_program_job("after", "true")
        self.wait_for_phase("after", "Succeeded")
        # If an operator responds, it still rejects the job: only failed calls of the validator are ignored.
        self.assertIn("the job is nested deeper than 200 levels", self.apply_refused(self.deep_job("refused")))

    def test_jobs_are_validated_without_the_mutating_webhook(self):
        kind = "mutatingwebhookconfiguration"
        stored = json.loads(self.kubectl_in("default", "get", kind, NAME, "-o", "json"))
        for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields", "generation"):
            stored["metadata"].pop(field, None)
        self.addCleanup(self.kubectl_in, "default", "create", "-f", "-", text=json.dumps(stored))
        self.addCleanup(self.scale, 2)
        self.scale(0)
        self.kubectl_in("default", "delete", kind, NAME)
        self.kubectl_in(self.operator_namespace, "delete", "secret", NAME)
        self.scale(2)
        self.wait_for_validator()
        self.assertEqual(self.create_dry().returncode, 0)

    def during(self, action):
        """Returns how many requests succeeded while `action` was running, and the messages of those that failed."""
        ended = False

        def client():
            succeeded, failed = 0, []
            while not ended:
                done = self.create_dry()
                if done.returncode:
                    failed.append(done.stderr)
                else:
                    succeeded += 1
            return succeeded, failed

        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(client) for _ in range(CLIENTS)]
            try:
                action()
            finally:
                ended = True
            results = [each.result() for each in clients]
        return sum(succeeded for succeeded, _ in results), [text for _, failed in results for text in failed]

    def test_certificates_are_renewed_under_load_without_failed_requests(self):
        seen = [self.certificate()]

        def renew():
            end = time.monotonic() + (RENEWALS + 1) * LIFETIME
            while len(seen) <= RENEWALS and time.monotonic() < end:
                time.sleep(1)
                if (now := self.certificate()) != seen[-1]:
                    seen.append(now)
            time.sleep(LIFETIME / 3)  # until the previous certificate has expired

        succeeded, failed = self.during(renew)
        print(f"{succeeded} requests during {len(seen) - 1} renewals", flush=True)
        self.assertEqual(failed, [])
        self.assertGreater(len(seen), RENEWALS)
        self.assertGreater(succeeded, 100)

    def test_operators_are_updated_without_failed_requests(self):
        def update():
            self.kubectl_in(self.operator_namespace, "rollout", "restart", f"deployment/{DEPLOYMENT}")
            self.kubectl_in(self.operator_namespace, "rollout", "status", f"deployment/{DEPLOYMENT}", timeout=300)
            time.sleep(15)  # until the old operators have ended

        succeeded, failed = self.during(update)
        print(f"{succeeded} requests during an update", flush=True)
        self.assertEqual(failed, [])
        self.assertGreater(succeeded, 10)


if __name__ == "__main__":
    cluster_support.main()
