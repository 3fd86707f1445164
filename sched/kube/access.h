// How a cluster is reached: what a kubeconfig's context, or a pod's service account, says of it.
//
// Plain values; files that may change while a command runs (a token, a certificate that is rotated) are named, not
// read, and what a credential plugin says is asked for by `credentials.h`. Nothing here is ever printed whole: it has
// secrets.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace adaptdl::kube {

// A piece of PEM or a token, given in place or by the file that holds it; both empty: none.
struct Secret {
  std::string value;
  std::string file;
  bool empty() const { return value.empty() && file.empty(); }
};

// A credential plugin (client.authentication.k8s.io v1alpha1, v1beta1 or v1).
struct ExecPlugin {
  std::string api_version, command, install_hint;
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  // besides that of this process
  bool provide_cluster_info = false;
  enum class Input { kNever, kIfAvailable, kAlways };
  Input input = Input::kIfAvailable;  // of the user's terminal
  std::string config;                 // JSON: the `config` of the cluster's extension client.authentication.k8s.io/exec
  std::string directory;              // of the kubeconfig: a command with a slash is found from here
};

struct Access {
  std::string context;                 // its name; "in-cluster" for a service account
  std::string user;                    // the name of its user entry, for messages
  std::string server;                  // https://host[:port][/path], without a slash at the end
  std::string name_space = "default";  // of what is named without one

  Secret certificate_authority;  // none: the system's
  bool insecure_skip_tls_verify = false;
  std::string tls_server_name;  // what the server's certificate is to name; empty: the host of `server`
  std::string proxy_url;        // http, https or socks5; empty: as the environment says

  Secret client_certificate, client_key;
  Secret token;  // sent as Bearer; a file is read again now and then, and after a 401
  std::string username, password;
  std::optional<ExecPlugin> exec;
  std::string impersonate_user, impersonate_uid;
  std::vector<std::string> impersonate_groups;
  std::map<std::string, std::vector<std::string>> impersonate_extra;
};

}  // namespace adaptdl::kube
