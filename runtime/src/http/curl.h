// libcurl, loaded when it is first needed.
//
// Linking to it would delay every start of the command by a few milliseconds, and most runs never make a request.
// Threading: any thread may use it.
#pragma once

#include <curl/curl.h>

#include <memory>

namespace adaptdl::http {

#define ADAPTDL_CURL_FUNCTIONS(USE)                                                                          \
  USE(global_init)                                                                                           \
  USE(easy_init)                                                                                             \
  USE(easy_cleanup) USE(easy_reset) USE(easy_setopt) USE(easy_getinfo) USE(easy_strerror) USE(easy_perform)  \
      USE(easy_send) USE(easy_recv) USE(free) USE(multi_init) USE(multi_cleanup) USE(multi_add_handle)       \
          USE(multi_remove_handle) USE(multi_perform) USE(multi_poll) USE(multi_wakeup) USE(multi_info_read) \
              USE(multi_setopt) USE(slist_append) USE(slist_free_all) USE(url) USE(url_cleanup) USE(url_get) \
                  USE(url_set)

// libcurl's functions, by their names without "curl_".
struct Curl {
#define ADAPTDL_MEMBER(name) decltype(&::curl_##name) name;
  ADAPTDL_CURL_FUNCTIONS(ADAPTDL_MEMBER)
#undef ADAPTDL_MEMBER
};

// Throws Error if libcurl is missing or too old.
const Curl& curl();

struct CurlDeleter {
  void operator()(CURL* handle) const { curl().easy_cleanup(handle); }
  void operator()(curl_slist* list) const { curl().slist_free_all(list); }
  void operator()(char* text) const { curl().free(text); }
};
// A separate type, because CURL and CURLM may both be void.
struct MultiDeleter {
  void operator()(CURLM* handle) const { curl().multi_cleanup(handle); }
};
using Easy = std::unique_ptr<CURL, CurlDeleter>;
using Multi = std::unique_ptr<CURLM, MultiDeleter>;
using List = std::unique_ptr<curl_slist, CurlDeleter>;
using Text = std::unique_ptr<char, CurlDeleter>;

Easy new_easy();    // Throws Error.
Multi new_multi();  // Throws Error.

}  // namespace adaptdl::http
