// Manages a cluster's TensorBoards. A TensorBoard consists of a Deployment, the volume that jobs write to, and a
// Service. AdaptDL's Python command creates the same objects, so that both commands can be used together.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "kube/api/client.h"

namespace adaptdl::kube {

inline constexpr int kTensorBoardPort = 6006;

struct TensorBoardOptions {
  std::string name;
  std::string storage_class;  // empty: see choose_storage_class
  std::string size = "1Gi";
  std::string image = "tensorflow/tensorflow";
  bool node_port = false;
};

struct TensorBoardObjects {
  nlohmann::json deployment, claim, service;  // claim and service have no owner yet
};

// Returns "adaptdl-tensorboard-NAME", the name of all objects of a TensorBoard. Throws UsageError if `name` is invalid.
std::string tensorboard_object_name(const std::string& name);
// Throws UsageError for an invalid name or size.
TensorBoardObjects tensorboard_objects(const TensorBoardOptions& options);

// Returns `wanted` if it is not empty, otherwise the cluster's default class or, if there is none, a class whose
// volumes several nodes can share. Throws Error if there is no such class.
std::string choose_storage_class(const std::vector<nlohmann::json>& classes, const std::string& wanted);

// Throws Error if one of the objects already exists or cannot be created; if one cannot be created, none of them
// remains.
void create_tensorboard(Client& client, const std::string& name_space, const TensorBoardOptions& options);

struct TensorBoard {
  std::string name;
  std::optional<int> node_port;
  std::optional<std::string> size;
  int ready = 0, wanted = 0;
  std::string why;  // why it is not ready
};
std::vector<TensorBoard> list_tensorboards(Client& client, const std::string& name_space);

// Throws Error if the TensorBoard does not exist.
TensorBoard get_tensorboard(Client& client, const std::string& name_space, const std::string& name);

// Waits until the TensorBoard is ready or a stop is requested. `notice` receives a line at the start and a line for
// each reason why the TensorBoard is not ready. Throws Error if the TensorBoard does not exist, or if such reasons
// persist for 60 s.
void wait_until_ready(Client& client, const std::string& name_space, const std::string& name, std::stop_token stop,
                      const std::function<void(const std::string&)>& notice);

// Deletes the TensorBoard's objects and waits until its pods and volume no longer exist. Throws Error if the
// TensorBoard does not exist or if this takes longer than 90 s.
void delete_tensorboard(Client& client, const std::string& name_space, const std::string& name);

}  // namespace adaptdl::kube
