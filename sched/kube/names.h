// The names that objects of a cluster may have.
//
// Threading: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::kube {

// Why this is no DNS label, as a name of containers and namespaces is to be ("is 'A_b', and …"); empty if it is.
std::string not_a_label(std::string_view name);
// The same for the name of a job, of which the host names JOB-GROUP-RANK of its replicas are made, and for the
// beginning of one, to which generate_name adds.
std::string not_a_job_name(std::string_view name);
std::string not_a_job_prefix(std::string_view prefix);

// The prefix with five characters drawn at random, as the API server does for generateName.
std::string generate_name(std::string_view prefix);
// Drawn at random (RFC 4122, version 4).
std::string make_uuid();

}  // namespace adaptdl::kube
