// Files of ADD that come from a URL: fetched once, and then only if the server says that they have changed.
//
// Threading: one thread.
#pragma once

#include <stop_token>
#include <string>

#include "image/build_cache.h"
#include "image/builder.h"
#include "image/copy_plan.h"

namespace adaptdl::image {

struct UrlFile {
  GivenFile file;  // in the store
  std::string digest;
};

// `checksum` is the digest that it is to have, or empty: then the server is asked each time. Throws Error that names
// the URL, without what is secret in it, and http::Stopped.
UrlFile fetch_url(const std::string& url, const std::string& checksum, const BuildCache& cache, BuildReport& report,
                  const std::stop_token& stop);

}  // namespace adaptdl::image
