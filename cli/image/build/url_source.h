// Downloads files from URLs for ADD. Known files are downloaded again only if the server reports that they have
// changed.
#pragma once

#include <stop_token>
#include <string>

#include "image/build/builder.h"
#include "image/build/copy_plan.h"
#include "image/layer/build_cache.h"

namespace adaptdl::image {

struct UrlFile {
  GivenFile file;  // in the blob store
  std::string digest;
};

// `checksum` is the required digest; if it is empty, each call contacts the server. Throws an Error that names the URL
// without its secrets, or http::Stopped.
UrlFile fetch_url(const std::string& url, const std::string& checksum, const BuildCache& cache, BuildReport& report,
                  const std::stop_token& stop);

}  // namespace adaptdl::image
