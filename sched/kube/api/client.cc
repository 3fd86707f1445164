#include "kube/api/client.h"

#include <fmt/format.h>

#include "base/foreign_json.h"
#include "kube/api/raw_connection.h"
#include "kube/api/transport.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;

constexpr const char* kJson = "application/json";

const char* content_type(Patch type) {
  switch (type) {
    case Patch::kMerge:
      return "application/merge-patch+json";
    case Patch::kJson:
      return "application/json-patch+json";
    case Patch::kApply:
      return "application/apply-patch+yaml";
  }
  return kJson;
}

const char* name(Propagation propagation) {
  switch (propagation) {
    case Propagation::kBackground:
      return "Background";
    case Propagation::kForeground:
      return "Foreground";
    case Propagation::kOrphan:
      return "Orphan";
  }
  return "";
}

json parse(const Call& call, const std::string& body) {
  // An object that is nested too deeply must not hide the other objects in a list.
  json object = parse_shallow_json(body);
  if (!object.is_object())
    throw Error(fmt::format("{} {}: the response is not a JSON object; is this the address of an API server?",
                            call.method, call.path));
  return object;
}

std::string text(const json& object, const char* part, const char* key) {
  const auto found = object.find(part);
  if (found == object.end() || !found->is_object()) return "";
  const auto value = found->find(key);
  return value != found->end() && value->is_string() ? value->get<std::string>() : "";
}

}  // namespace

struct Client::Impl {
  Transport transport;

  json call(const Call& what, const std::stop_token& stop = {}) { return parse(what, transport.call(what, stop)); }
};

Client::Client(Access access) : Client(std::move(access), Options()) {}
Client::Client(Access access, Options options) : impl_(new Impl{{std::move(access), options}}) {}
Client::~Client() = default;

const Access& Client::access() const { return impl_->transport.access(); }

json Client::get(const std::string& path, const Query& query, std::stop_token stop) {
  return impl_->call({"GET", path, query, "", ""}, stop);
}

json Client::create(const std::string& collection, const json& object, const Query& query) {
  return impl_->call({"POST", collection, query, object.dump(), kJson});
}

json Client::replace(const std::string& path, const json& object, const Query& query) {
  return impl_->call({"PUT", path, query, object.dump(), kJson});
}

json Client::patch(const std::string& path, Patch type, const json& change, const Query& query) {
  return impl_->call({"PATCH", path, query, change.dump(), content_type(type)});
}

json Client::remove(const std::string& path, const RemoveOptions& options) {
  json body{{"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"propagationPolicy", name(options.propagation)}};
  if (options.grace) body["gracePeriodSeconds"] = options.grace->count();
  if (!options.uid.empty()) body["preconditions"]["uid"] = options.uid;
  return impl_->call({"DELETE", path, {}, body.dump(), kJson});
}

std::string Client::list(const std::string& collection, const ListOptions& options,
                         const std::function<void(json&&)>& each, std::stop_token stop) {
  Call call{"GET", collection, {{"limit", std::to_string(options.page)}}, "", ""};
  if (!options.label_selector.empty()) call.query.emplace_back("labelSelector", options.label_selector);
  if (!options.field_selector.empty()) call.query.emplace_back("fieldSelector", options.field_selector);
  const Query first = call.query;
  if (options.from_memory) call.query.emplace_back("resourceVersion", "0");
  for (std::string version, next; true; call.query = first, call.query.emplace_back("continue", next)) {
    json page;
    try {
      page = impl_->call(call, stop);
    } catch (const ApiError& error) {
      // The server keeps the version of a list for only a few minutes. The error response contains a token with which
      // the list can be continued.
      if (!error.gone() || next.empty() || error.continue_token().empty()) throw;
      next = error.continue_token();
      continue;
    }
    if (version.empty()) version = text(page, "metadata", "resourceVersion");
    next = text(page, "metadata", "continue");
    if (const auto items = page.find("items"); items != page.end() && items->is_array())
      for (json& item : *items) each(std::move(item));
    if (next.empty()) return version;
  }
}

std::vector<json> Client::list(const std::string& collection, const ListOptions& options) {
  std::vector<json> objects;
  list(collection, options, [&](json&& object) { objects.push_back(std::move(object)); });
  return objects;
}

void Client::stream(const std::string& path, const Query& query, std::stop_token stop,
                    const std::function<bool(std::string_view)>& sink) {
  impl_->transport.stream({"GET", path, query, "", ""}, stop, sink);
}

std::unique_ptr<RawConnection> Client::connect() { return impl_->transport.connect(); }

std::vector<std::string> Client::authorization_headers() { return impl_->transport.authorization_headers(); }

void Client::refuse(const std::string& path, int code, std::string_view body) const {
  impl_->transport.refuse("cannot connect to", path, code, body);
}

}  // namespace adaptdl::kube
