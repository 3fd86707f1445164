// Tests the URL paths of objects.
#include "kube/api/resource.h"

#include <doctest/doctest.h>

#include "adaptdl/error.h"

namespace kube_resource_test {

using namespace adaptdl;
using namespace adaptdl::kube;

TEST_CASE("paths consist of the group, version, namespace, name and subresource") {
  CHECK(path(kPods, "") == "/api/v1/pods");
  CHECK(path(kPods, "ns", "p", "log") == "/api/v1/namespaces/ns/pods/p/log");
  CHECK(path(kNodes, "", "n1", "status") == "/api/v1/nodes/n1/status");
  CHECK(path(kAdaptDLJobs, "ns") == "/apis/adaptdl.petuum.com/v1/namespaces/ns/adaptdljobs");
  CHECK(path(kAdaptDLJobs, "ns", "j") == "/apis/adaptdl.petuum.com/v1/namespaces/ns/adaptdljobs/j");
}

TEST_CASE("special characters in names are escaped, and '.' and '..' are rejected") {
  CHECK(path(kPods, "a/b", "p?x=1#y z%") == "/api/v1/namespaces/a%2Fb/pods/p%3Fx%3D1%23y%20z%25");
  CHECK(path(kPods, "ns", "j\xc3\xb6") == "/api/v1/namespaces/ns/pods/j%C3%B6");
  CHECK_THROWS_AS(path(kPods, "ns", ".."), UsageError);
  CHECK_THROWS_AS(path(kPods, ".", "p"), UsageError);
  CHECK(path(kPods, "ns", "...") == "/api/v1/namespaces/ns/pods/...");
}

}  // namespace kube_resource_test
