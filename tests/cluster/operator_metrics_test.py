"""Checks the operator's metrics with promtool, and lets a real Prometheus scrape them and answer the dashboard's queries while a job is
training."""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request

import cluster_support
from cluster_support import clean_environment
from local_network import free_port
from operator_support import NODES, OperatorTest

DASHBOARD = cluster_support.SOURCE_ROOT / "share/adaptdl/grafana/adaptdl.json"
# In the test, no job waits or is restarted, and there is no other workload with GPUs.
WITHOUT_DATA = ("adaptdl_jobs_waiting", "adaptdl_job_restarts_total", "adaptdl_used_by_others")


def fetch(url):
    """Sends a request without a proxy. Returns the response."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10)


class MetricsTest(OperatorTest):
    def target(self):
        return f"{self.operator_pod()['status']['podIP']}:9090"

    def start_prometheus(self):
        """Starts a Prometheus that scrapes the operator. Returns its URL."""
        port = free_port()
        config = self.directory / "prometheus.yml"
        config.write_text(
            json.dumps({
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                "scrape_configs": [{"job_name": "adaptdl", "static_configs": [{"targets": [self.target()]}]}],
            })
        )  # fmt: skip
        process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.directory / 'tsdb'}",
             f"--web.listen-address=127.0.0.1:{port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment(),
        )  # fmt: skip
        self.addCleanup(process.wait, 60)
        self.addCleanup(process.terminate)
        return f"http://127.0.0.1:{port}"

    @staticmethod
    def series(url, expression):
        """Returns the values of the expression's series."""
        address = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        with fetch(address) as answer:
            return [float(series["value"][1]) for series in json.load(answer)["data"]["result"]]

    def query(self, url, expression):
        """Returns the value of the expression's only series, or None."""
        try:
            values = self.series(url, expression)
        except OSError:
            return None
        return values[0] if len(values) == 1 else None

    def dashboard_queries_with_data(self, url):
        panels = json.loads(DASHBOARD.read_text())["panels"]
        queries = {target["expr"] for panel in panels for target in panel["targets"]}
        return {query for query in queries if self.series(url, query)}, queries

    def test_prometheus_scrapes_correct_values_and_promtool_reports_no_problems(self):
        for tool in ("prometheus", "promtool"):
            self.assertTrue(shutil.which(tool), f"{tool} is missing; ./bootstrap packages full installs it")
        url = self.start_prometheus()
        self.create_modelled_job("job", samples=1_000_000, until="finish", minReplicas=2, maxReplicas=2)
        self.wait_for_replicas("job", 2)

        def becomes(expression, value):
            self.wait_for(f"{expression} is {value}", lambda: self.query(url, expression) == value)

        becomes("up", 1)
        becomes(f'adaptdl_job_replicas{{job_namespace="{self.namespace}",job_name="job"}}', 2)
        becomes('sum(adaptdl_jobs{phase="Running"})', 1)
        becomes('adaptdl_allocated{resource="nvidia.com/gpu"}', 2)
        becomes('adaptdl_nodes{state="ready"}', len(NODES))
        self.wait_for("its goodput is known", lambda: (self.query(url, "adaptdl_job_goodput") or 0) > 0)
        with fetch(f"http://{self.target()}/metrics") as answer:
            self.assertEqual(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
            text = answer.read()
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60)
        self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, b"", b""))
        with_data, queries = self.dashboard_queries_with_data(url)
        self.finish("job")
        self.wait_for_phase("job", "Succeeded")
        becomes('adaptdl_job_completions_total{phase="Succeeded"}', 1)
        becomes("adaptdl_job_completion_seconds_count", 1)
        becomes("adaptdl_job_submissions_total", 1)
        expected = {query for query in queries if not any(name in query for name in WITHOUT_DATA)}

        def all_have_data():
            with_data.update(self.dashboard_queries_with_data(url)[0])
            return with_data >= expected

        self.wait_for("all queries of the dashboard have data", all_have_data)


if __name__ == "__main__":
    cluster_support.main()
