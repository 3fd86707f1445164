// Validates and generates the names of a cluster's objects.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::kube {

// Returns why this is not a DNS label, which names of containers and namespaces must be ("is 'A_b', but …"); empty if
// it is one.
std::string not_a_label(std::string_view name);
// Do the same for the name of a job, which must fit into its replicas' host names JOB-GROUP-RANK, and for a prefix of
// such a name, to which generate_name appends.
std::string not_a_job_name(std::string_view name);
std::string not_a_job_prefix(std::string_view prefix);

// Appends five random characters to the prefix, as the API server does for generateName.
std::string generate_name(std::string_view prefix);
// Returns a random UUID (RFC 4122, version 4).
std::string make_uuid();

}  // namespace adaptdl::kube
