// TensorBoards of a cluster: a Deployment, the volume that jobs write to, and a Service, as AdaptDL's Python command
// makes them, so that either command sees what the other made.
//
// Threading: as their client.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "kube/client.h"

namespace adaptdl::kube {

inline constexpr int kTensorBoardPort = 6006;

struct TensorBoardOptions {
  std::string name;
  std::string storage_class;  // empty: the cluster's own choice
  std::string size = "1Gi";
  std::string image = "tensorflow/tensorflow";
  bool node_port = false;
};

struct TensorBoardObjects {
  nlohmann::json deployment, claim, service;  // the latter two without an owner
};

// "adaptdl-tensorboard-NAME", of all its objects. Throws UsageError if that is no name in a cluster.
std::string tensorboard_object_name(const std::string& name);
// Throws UsageError on a wrong name or size.
TensorBoardObjects tensorboard_objects(const TensorBoardOptions& options);

// The class to use: the one asked for, the cluster's default, or one that several nodes can share. Throws Error.
std::string choose_storage_class(const std::vector<nlohmann::json>& classes, const std::string& wanted);

// Throws Error if there is one, or if not all of it can be made: then nothing of it is left.
void create_tensorboard(Client& client, const std::string& name_space, const TensorBoardOptions& options);

struct TensorBoard {
  std::string name;
  std::optional<int> node_port;
  std::optional<std::string> size;
  int ready = 0, wanted = 0;
  std::string why;  // it is not ready
};
std::vector<TensorBoard> list_tensorboards(Client& client, const std::string& name_space);

// Throws Error if there is none.
TensorBoard get_tensorboard(Client& client, const std::string& name_space, const std::string& name);

// Waits until it is ready. `notice` is told what keeps it from that, and that it goes on if it took long to be so; a
// stop ends it.
void wait_until_ready(Client& client, const std::string& name_space, const std::string& name, std::stop_token stop,
                      const std::function<void(const std::string&)>& notice);

// Removes all of it, and waits until its pods and volume are gone. Throws Error if there is none, or it takes too long.
void delete_tensorboard(Client& client, const std::string& name_space, const std::string& name);

}  // namespace adaptdl::kube
