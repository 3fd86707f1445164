// Validates and generates the names of a cluster's objects.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::kube {

// Returns why the name is not a valid DNS label ("is 'A_b', but must consist of …"); empty if it is valid. The names of
// containers and namespaces must be DNS labels.
std::string not_a_label(std::string_view name);
// Do the same for a job's name and for a prefix that is passed to generate_name. A job's name must fit into its
// replicas' host names, JOB-GROUP-RANK.
std::string not_a_job_name(std::string_view name);
std::string not_a_job_prefix(std::string_view prefix);

// Appends five random characters to the prefix, as the API server does for generateName.
std::string generate_name(std::string_view prefix);
// Returns a random UUID (RFC 4122, version 4).
std::string make_uuid();

}  // namespace adaptdl::kube
