// Checkpoints: the data from which a job resumes, on any number of replicas, after its processes have ended.
//
// A job's progress is a set of named `State`s. Each registers itself on construction, saves itself to a `Writer`, and
// loads itself from a `Reader`. Writers and readers handle JSON, tensors and raw bytes. Files are only one backend, so
// the same code can save to disk or stream to another process. save_all_states() commits all states as one directory
// `checkpoint-<N>`, or fails without committing anything. The format is specified in docs/formats.md.
//
// A process loads all states from one checkpoint: the newest whole one. A checkpoint is whole if it is complete and
// undamaged. When the first state is loaded, the process chooses the checkpoint and verifies every byte of it against
// the checksums. A damaged checkpoint is skipped in favor of the next older one, with a warning that states the reason.
// If there are checkpoints but none of them is whole, the load fails; the job never silently starts from scratch. The
// load also fails if a checkpoint cannot be read for a reason other than damage (no permission, a newer format),
// because falling back to an older one would hide the problem.
//
// Replicas: rank 0 writes the checkpoint. save_all_states is a collective call with the same outcome on every replica.
// Every rank reads the directory, so all ranks must share it; agree() checks that all ranks chose the same checkpoint.
//
// Memory: a state's JSON values and the parts that ranks save are held in memory until they are written; tensors are
// streamed a few MiB at a time.
//
// Threading: only the training thread may construct, save and load states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adaptdl/error.h"

namespace adaptdl::checkpoint {

// A checkpoint cannot be saved, found or loaded. The message names the path or the state.
class CheckpointError : public Error {
  using Error::Error;
};

// Describes a tensor in the terms of the safetensors format. Elements are in row-major order and little-endian.
struct TensorInfo {
  std::string name;                 // unique among the state's tensors
  std::string dtype;                // one of BOOL U8 I8 I16 U16 F16 BF16 I32 U32 F32 F64 I64 U64
  std::vector<std::int64_t> shape;  // empty: a scalar
  // Returns the size of the data in bytes. Throws CheckpointError on an unknown dtype or a size that overflows.
  std::size_t bytes() const;
};

// Copies the bytes [offset, offset + out.size()) of a tensor's data to `out`.
using ReadAt = std::function<void(std::size_t offset, std::span<std::byte> out)>;

// The destination to which a state saves itself.
class Writer {
 public:
  virtual ~Writer() = default;
  // Saves a JSON value under a name that is unique among the JSON values of the state. Numbers, including NaN and
  // infinities, are restored bit for bit. All functions of this class throw CheckpointError on a duplicate or empty
  // name, on text that is not UTF-8, and on values that could not be restored unchanged (binary values, values nested
  // more than 200 levels deep, objects with the key "$float").
  virtual void json(std::string_view name, nlohmann::json value) = 0;
  // Saves a tensor under a name that is unique among the tensors of the state. The data is not copied: until the saving
  // call (save_all_states or save_state) returns, `read` may be called for consecutive chunks, and the data must not
  // change.
  virtual void tensor(TensorInfo info, ReadAt read) = 0;
  // Saves a tensor whose data is in memory. The data is not copied; it must stay valid and unchanged until the saving
  // call returns.
  virtual void tensor(TensorInfo info, std::span<const std::byte> data);
  // Saves raw bytes as a tensor of dtype U8. `data` must stay valid until the saving call returns.
  void bytes(std::string_view name, std::span<const std::byte> data);
  // Same as above, but the writer takes ownership of the bytes.
  void bytes(std::string_view name, std::vector<std::byte>&& data);
};

// The source from which a state loads itself: a checkpoint whose checksums have been verified, or a running job that
// this replica joins. A running job sends its states as they are read, so each tensor can be read only once.
class Reader {
 public:
  virtual ~Reader() = default;
  // Returns the value with that name. Throws CheckpointError, naming the state and the checkpoint, if there is no value
  // with that name.
  virtual nlohmann::json json(std::string_view name) const = 0;
  // Returns whether there is a JSON value with that name.
  virtual bool has_json(std::string_view name) const = 0;
  // Returns all tensors of the state, including raw bytes.
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  // Reads a tensor's data in chunks and passes each to `sink(offset, chunk)`. Throws CheckpointError if the tensor does
  // not exist.
  virtual void tensor(std::string_view name,
                      const std::function<void(std::size_t offset, std::span<const std::byte> chunk)>& sink) const = 0;
  // Reads a tensor's data into `out`. Throws CheckpointError if no tensor has that name and size.
  virtual void tensor(std::string_view name, std::span<std::byte> out) const = 0;
  // Returns the number of replicas that saved this checkpoint.
  virtual int replicas() const = 0;
  // Returns text such as "state 'NAME' of PATH/checkpoint-7" for error messages.
  virtual std::string describe() const = 0;

  // Returns the TensorInfo with that name, or nullptr.
  const TensorInfo* find(std::string_view name) const;
  // Returns a tensor's data, for example the bytes that Writer::bytes saved. Throws CheckpointError if there is no
  // tensor with that name.
  std::vector<std::byte> bytes(std::string_view name) const;
};

// A named part of a job's progress. Derive from this class, and override the functions that the derived state needs.
class State {
 public:
  // Registers the state. `name` may be any non-empty UTF-8 text of up to 100 bytes that is unique in the process.
  // Throws UsageError if the name is invalid or already in use.
  explicit State(std::string name);
  virtual ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Returns the name passed to the constructor.
  const std::string& name() const noexcept { return name_; }

  // Makes the replicas agree on the state before it is saved. Called on every replica, for one state at a time, in
  // order of the states' names; may make collective calls. Does nothing by default.
  virtual void sync() {}
  // Saves the state. Called on rank 0 only.
  virtual void save(Writer& writer) const = 0;
  // Loads the state. Called on every replica. An override should validate what it reads before it changes anything.
  virtual void load(const Reader& reader) = 0;

  // Returns whether each rank also saves a part of its own, such as the state of its random number generator. Default:
  // false.
  virtual bool has_parts() const { return false; }
  // Saves this rank's part. Called on every replica. Parts must be small because collective calls transfer them.
  virtual void save_part(Writer&) const {}
  // Loads the part that this rank saved. Not called on a rank that has no part: if the job has more replicas than when
  // it saved the checkpoint, no parts exist for the additional ranks.
  virtual void load_part(const Reader&) {}

  // Returns a JSON object with the values that `adaptdl checkpoint ls` should show for this state. The objects of all
  // states are merged into the manifest's "progress". Default: an empty object.
  virtual nlohmann::json progress() const { return nlohmann::json::object(); }

 private:
  std::string name_;
};

// Loads `state` from the process's checkpoint. Returns false if there is no checkpoint (the path is unset, or the
// directory contains none) or if the checkpoint does not contain the state. With `required`, throws CheckpointError in
// the latter case, listing the states that the checkpoint contains. Throws CheckpointError if there are checkpoints but
// none of them is whole, or if the state rejects what it reads.
bool load_state(State& state, bool required = false);

// Returns the number of the checkpoint from which this process loads, or nullopt if there is none. The number is 0 in a
// replica that receives its states from a running job. Chooses the checkpoint if none has been chosen yet.
std::optional<std::uint64_t> loaded_number();

// Throws CheckpointError if the replicas do not all load from the same checkpoint. This is a collective call; it does
// nothing if the collective has one replica.
void agree();

// Syncs all states across the replicas, commits them as the next checkpoint in env::checkpoint_path(), and deletes all
// but the newest env::checkpoint_keep() whole checkpoints. This is a collective call if the collective is initialized.
// Returns the path of the new checkpoint, or nullopt if no path is set.
// On failure (disk full, read-only or vanished file system, a state that throws) it throws CheckpointError, naming the
// failed rank, on every replica, and commits nothing. Existing checkpoints are kept, except that, on a full disk, all
// but the newest whole one may have been deleted to free space. Throws CollectiveError if a replica dies during the
// call. Throws UsageError if ADAPTDL_NUM_REPLICAS is more than 1 and the collective is not initialized.
std::optional<std::filesystem::path> save_all_states();

// Syncs all states across the replicas, in the same way as save_all_states. This is a collective call if the collective
// is initialized. If a state fails, every replica throws CheckpointError, naming the rank and the state.
void sync_all_states();

// Saves only this state, as files in `directory`, without a manifest and without committing anything. With `sync`,
// syncs the state first. Rank 0 writes the state, and every rank its own part. Returns the paths of the files this rank
// wrote.
std::vector<std::filesystem::path> save_state(State& state, const std::filesystem::path& directory, bool sync = true);

// Forgets which checkpoint was chosen, so that the next load_state chooses again.
void reset();

// --- Inspecting checkpoints without the program that saved them ---

// A file in a checkpoint, as the manifest describes it.
struct FileInfo {
  std::string name;        // relative to the checkpoint's directory
  std::uint64_t size = 0;  // bytes
  std::string checksum;    // XXH3-128 in hexadecimal, as `xxhsum -H2` prints it
};

// A state in a checkpoint.
struct StateInfo {
  std::string name;             // the state's name
  std::vector<FileInfo> files;  // including the ranks' parts; empty if the state saved nothing
};

// The contents of `manifest.json` (docs/formats.md).
struct Manifest {
  int format = 0;                                      // format version
  std::uint64_t number = 0;                            // N in `checkpoint-N`
  std::string created;                                 // RFC 3339, UTC
  std::string version;                                 // adaptdl version that saved it
  std::string job;                                     // the job's env::job_id(), or empty
  int replicas = 0;                                    // number of replicas that saved it
  nlohmann::json progress = nlohmann::json::object();  // State::progress() of all states
  std::vector<StateInfo> states;                       // sorted by name
};

// A checkpoint on disk.
struct Entry {
  std::uint64_t number = 0;          // N in `checkpoint-N`
  std::filesystem::path path;        // its directory
  std::optional<Manifest> manifest;  // nullopt if it cannot be read
  // Why the checkpoint cannot be used, judging only by its manifest and file sizes; empty if it can be used.
  std::string problem;
};

// Describes one checkpoint, judging by its manifest and file sizes; the directory may have any name. `number` comes
// from the manifest and is 0 if the manifest cannot be read. Throws CheckpointError if there is no such directory.
Entry inspect(const std::filesystem::path& checkpoint);

// Returns the checkpoints in `directory`, newest first. Reads only manifests and file sizes. Throws CheckpointError if
// the directory cannot be read.
std::vector<Entry> list(const std::filesystem::path& directory);

// Reads every byte of one checkpoint. Returns one line for each problem; empty if the checkpoint is whole. Throws
// CheckpointError if there is no such directory, or if its files cannot be read for a reason other than damage.
std::vector<std::string> verify(const std::filesystem::path& checkpoint);

// Returns the newest whole checkpoint in `directory`, after verifying every byte of it, or nullopt if there is none.
// Throws CheckpointError if the directory, or a newer checkpoint in it, cannot be read for a reason other than damage.
std::optional<Entry> newest_whole(const std::filesystem::path& directory);

// Writes the tensors of a checkpoint, or of only one state in it, to one safetensors file. Each tensor is exported as
// "STATE/TENSOR", or as "TENSOR" if `state` is given. With `prefix`, writes only the tensors whose names begin with it,
// and exports each under the rest of its name, without "STATE/". The ranks' parts are left out. The checkpoint's files
// are verified first. The data is streamed, and the file is committed by a rename, which replaces any existing file.
// Throws CheckpointError on failure, if there are no tensors to write, or if two tensors would have the same name.
void export_tensors(const std::filesystem::path& checkpoint, const std::filesystem::path& file,
                    const std::optional<std::string>& state = {}, const std::string& prefix = {});

// Deletes all checkpoints except the newest `keep` (>= 1) whole ones, and deletes the remains of interrupted saves.
// Reads every byte of the checkpoints it keeps; if none is whole, deletes none. Checkpoints in
// a newer format and checkpoints with I/O errors are kept. With `dry_run`, nothing is deleted. Returns the paths that
// were, or would be, deleted. Throws UsageError if `keep` is less than 1, and CheckpointError if a checkpoint cannot be
// read or deleted.
std::vector<std::filesystem::path> prune(const std::filesystem::path& directory, int keep, bool dry_run = false);

}  // namespace adaptdl::checkpoint
