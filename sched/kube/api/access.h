// Describes how to reach a cluster, as specified by a context in a kubeconfig or by a pod's service account.
//
// These are plain values. Files that may change while a command runs (a token or a rotated certificate) are only named
// here; credentials.h reads them and runs credential plugins. Never print a whole value: it may contain secrets.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace adaptdl::kube {

// PEM text or a token, either inline in `value` or in the file named `file`. If both are empty, there is no secret.
struct Secret {
  std::string value;
  std::string file;
  bool empty() const { return value.empty() && file.empty(); }
};

// A credential plugin (client.authentication.k8s.io v1alpha1, v1beta1 or v1).
struct ExecPlugin {
  std::string api_version, command, install_hint;
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  // added to this process's environment
  bool provide_cluster_info = false;
  enum class Input { kNever, kIfAvailable, kAlways };
  Input input = Input::kIfAvailable;  // whether the plugin may read the user's terminal
  std::string config;                 // JSON: the `config` of the cluster's extension client.authentication.k8s.io/exec
  std::string directory;              // the kubeconfig's directory; a relative path in `command` is resolved against it
};

struct Access {
  std::string context;                 // name of the context; "in-cluster" for a service account
  std::string user;                    // name of the user entry, for messages
  std::string server;                  // https://host[:port][/path], without a trailing slash
  std::string name_space = "default";  // default namespace for requests

  Secret certificate_authority;  // empty: the system's authorities
  bool insecure_skip_tls_verify = false;
  std::string tls_server_name;  // the name expected in the server's certificate; empty: the host of `server`
  std::string proxy_url;        // an http, https or socks5 URL; empty: the environment's proxy settings apply

  Secret client_certificate, client_key;
  Secret token;  // sent as a bearer token; a token file is re-read every minute and after a 401
  std::string username, password;
  std::optional<ExecPlugin> exec;
  std::string impersonate_user, impersonate_uid;
  std::vector<std::string> impersonate_groups;
  std::map<std::string, std::vector<std::string>> impersonate_extra;
};

}  // namespace adaptdl::kube
