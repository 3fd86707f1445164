// Checkpoints: what a job needs to go on after its processes end, on any number of replicas.
//
// A job's progress is a set of named `State`s. Each registers itself when it is made and saves itself to a `Writer` and
// loads itself from a `Reader`, which take JSON, tensors and raw bytes; files are one implementation of them, so the
// same code can save to a disk or stream to another process. save_all_states() commits them all as one directory
// `checkpoint-<N>`, or leaves everything as it was. Format: docs/formats.md.
//
// Loading is from one checkpoint for the whole process: the newest that is whole. It is chosen, and every byte of it
// checked against its checksums, when the first state is loaded; a damaged one is passed over in favour of the next
// older one with a warning that says why. If checkpoints are there and none is whole, that is an error, never a silent
// new start. So is one that cannot be read for another reason than damage (no permission, a newer format): an older one
// would hide it.
//
// Replicas: rank 0 writes. save_all_states is a collective call that ends alike on every replica. Every rank loads from
// the directory itself, so it must be visible to all; agree() checks that all of them chose the same checkpoint.
//
// Memory: what a state writes as JSON, and its parts, are held until they are written; tensors are streamed, a few MiB
// at a time.
//
// Threading: not thread-safe: states are made, saved and loaded by the training thread.
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

// A checkpoint cannot be saved, found, or loaded as it is. The message names the path or the state.
class CheckpointError : public Error {
  using Error::Error;
};

// A tensor as safetensors describes it. Elements are in row-major order, little-endian.
struct TensorInfo {
  std::string name;                 // unique among the tensors of its state
  std::string dtype;                // one of BOOL U8 I8 I16 U16 F16 BF16 I32 U32 F32 F64 I64 U64
  std::vector<std::int64_t> shape;  // empty: a scalar
  // Bytes of the data. Throws CheckpointError on an unknown dtype or a size that does not fit.
  std::size_t bytes() const;
};

// Copies the bytes [offset, offset + out.size()) of a tensor's data to `out`.
using ReadAt = std::function<void(std::size_t offset, std::span<std::byte> out)>;

// Where a state saves itself to.
class Writer {
 public:
  virtual ~Writer() = default;
  // A JSON value under a name, unique among the JSON values of the state. Numbers come back bit for bit, NaN and
  // infinities too. All of these throw CheckpointError on a second value of one name, an empty one, text that is not
  // UTF-8, or values that would not come back as they are (binary, nested deeper than 200 levels, an object key
  // "$float").
  virtual void json(std::string_view name, nlohmann::json value) = 0;
  // A tensor under a name, unique among the tensors of the state. The data is not copied: `read` is called in order, in
  // chunks, until the call that saves (save_all_states, save_state) returns, and must give the same bytes until then.
  virtual void tensor(TensorInfo info, ReadAt read) = 0;
  // The same for data that lies in memory, which is written from where it lies: it stays valid and unchanged as long.
  virtual void tensor(TensorInfo info, std::span<const std::byte> data);
  // Raw bytes: a tensor of dtype U8. `data` stays valid until the call that saves returns.
  void bytes(std::string_view name, std::span<const std::byte> data);
  // The same for bytes that were made for saving: the writer keeps them.
  void bytes(std::string_view name, std::vector<std::byte>&& data);
};

// Where a state loads itself from: a checkpoint, which has been checked against its checksums, or a running job that this
// replica joins. That sends its states while they are read, so that each tensor can be read once.
class Reader {
 public:
  virtual ~Reader() = default;
  // Throws CheckpointError, which names the state and the checkpoint, if there is none of that name.
  virtual nlohmann::json json(std::string_view name) const = 0;
  // Whether there is a JSON value of that name.
  virtual bool has_json(std::string_view name) const = 0;
  // All tensors of the state, raw bytes among them.
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  // Reads the whole data of a tensor in chunks: `sink(offset, chunk)`. Throws CheckpointError if there is none of that
  // name.
  virtual void tensor(std::string_view name,
                      const std::function<void(std::size_t offset, std::span<const std::byte> chunk)>& sink) const = 0;
  // Reads the whole data of a tensor to `out`. Throws CheckpointError if there is none of that name or of that size.
  virtual void tensor(std::string_view name, std::span<std::byte> out) const = 0;
  // How many replicas saved this checkpoint.
  virtual int replicas() const = 0;
  // "state 'NAME' of PATH/checkpoint-7", for error messages.
  virtual std::string describe() const = 0;

  // The TensorInfo of that name, or null.
  const TensorInfo* find(std::string_view name) const;
  // The whole data of a tensor, such as one that Writer::bytes saved. Throws CheckpointError if there is none of that
  // name.
  std::vector<std::byte> bytes(std::string_view name) const;
};

// A piece of a job's progress. Derive from it, and override what it needs.
class State {
 public:
  // Registers the state. `name` is any non-empty UTF-8 text up to 100 bytes, unique in the process: a second state of
  // the same name throws UsageError.
  explicit State(std::string name);
  virtual ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // As given to the constructor.
  const std::string& name() const noexcept { return name_; }

  // Brings the state to agreement over the replicas before it is saved. Called on every replica, in the order of names;
  // may use the collective. Default: nothing.
  virtual void sync() {}
  // Saves the state. Called on rank 0 only.
  virtual void save(Writer& writer) const = 0;
  // Loads the state. Called on every replica. It should check before it changes anything.
  virtual void load(const Reader& reader) = 0;

  // Whether the state also has a part of each rank's own, such as a random generator. Default: no.
  virtual bool has_parts() const { return false; }
  // Saves the part of this rank. Called on every replica. It must save little: parts travel through the collective.
  virtual void save_part(Writer&) const {}
  // Loads the part that this rank saved. Not called if there is none: on more replicas than saved, those of higher rank
  // have none.
  virtual void load_part(const Reader&) {}

  // What people want to read of this state in `adaptdl checkpoint ls`: a JSON object, joined over all states into the
  // manifest's "progress". Default: none.
  virtual nlohmann::json progress() const { return nlohmann::json::object(); }

 private:
  std::string name_;
};

// Loads `state` from the process's checkpoint. Returns false if there is no checkpoint (path unset, or a directory
// without any), or if the checkpoint has no such state. With `required`, a checkpoint without that state is a
// CheckpointError that lists the states it has. Throws CheckpointError if no checkpoint is whole, or if the state
// refuses what it reads.
bool load_state(State& state, bool required = false);

// Whether a checkpoint was found to load from: its number. 0 in a replica that got its states from a running job. Chooses
// it if that has not been done yet.
std::optional<std::uint64_t> loaded_number();

// Throws CheckpointError if the replicas do not all load from the same checkpoint. A collective call; does nothing if
// the collective has one replica.
void agree();

// Syncs all states over the replicas and commits them as the next checkpoint below env::checkpoint_path(); then deletes
// all but the newest env::checkpoint_keep() whole ones. A collective call if the collective is initialized. Returns the
// path of the new checkpoint, or nullopt if no path is set. On failure (disk full, read-only or vanished directory, a
// state that throws) it throws CheckpointError on every replica, which names the rank that failed, and what was there
// before is untouched. A replica that dies meanwhile is a CollectiveError. Throws UsageError if ADAPTDL_NUM_REPLICAS is
// more than 1 and the collective is not initialized.
std::optional<std::filesystem::path> save_all_states();

// Syncs all states over the replicas, as saving does. A collective call if the collective is initialized. Throws
// CheckpointError on every replica, which names the rank and the state that failed.
void sync_all_states();

// Saves one state by itself as files in `directory`, without a manifest and without committing anything; with `sync`,
// syncs it first. Rank 0 writes the state, and every rank its own part. Returns the paths of the files that this rank
// wrote.
std::vector<std::filesystem::path> save_state(State& state, const std::filesystem::path& directory, bool sync = true);

// Forgets which checkpoint was chosen, so that the next load_state looks again.
void reset();

// --- Looking at checkpoints, without the program that made them ---

// A file of a checkpoint, as the manifest describes it.
struct FileInfo {
  std::string name;        // in the checkpoint's directory
  std::uint64_t size = 0;  // bytes
  std::string checksum;    // XXH3-128 in hexadecimal, as `xxhsum -H2` prints it
};

// A state in a checkpoint.
struct StateInfo {
  std::string name;             // of the state
  std::vector<FileInfo> files;  // the state's own and the parts of ranks; none for a state that saved nothing
};

// What `manifest.json` says of a checkpoint (docs/formats.md).
struct Manifest {
  int format = 0;                                      // version of the format
  std::uint64_t number = 0;                            // N of `checkpoint-N`
  std::string created;                                 // RFC 3339, UTC
  std::string version;                                 // of adaptdl
  std::string job;                                     // env::job_id() of the job; empty: it had none
  int replicas = 0;                                    // how many saved it
  nlohmann::json progress = nlohmann::json::object();  // State::progress() of all states
  std::vector<StateInfo> states;                       // by name
};

// A checkpoint on disk.
struct Entry {
  std::uint64_t number = 0;          // N of `checkpoint-N`
  std::filesystem::path path;        // its directory
  std::optional<Manifest> manifest;  // none if it cannot be read
  // Why it cannot be used, as far as a look at its manifest and sizes tells; empty if nothing is wrong.
  std::string problem;
};

// What is known of one checkpoint, under whatever name it lies, from its manifest and sizes. Throws CheckpointError if
// there is no such directory. `number` is the manifest's, or 0 if there is none to read.
Entry inspect(const std::filesystem::path& checkpoint);

// The checkpoints in `directory`, newest first. Reads manifests and looks at sizes, no more. Throws CheckpointError if
// the directory cannot be read.
std::vector<Entry> list(const std::filesystem::path& directory);

// Reads every byte of one checkpoint. Returns what is wrong with it, one line each; empty if it is whole. Throws
// CheckpointError if there is no such directory, or its files may not be read.
std::vector<std::string> verify(const std::filesystem::path& checkpoint);

// The newest checkpoint in `directory` that is whole, every byte of it checked; none if there is none. Throws
// CheckpointError if the directory cannot be read, or holds a newer one that this version cannot judge.
std::optional<Entry> newest_whole(const std::filesystem::path& directory);

// Writes the tensors of a checkpoint (all, or of one state) to one safetensors file; names are "STATE/TENSOR", or the
// bare tensor names for one state. With `prefix`, only tensors whose names in their states begin with it are written,
// under the rest of their names. The parts of ranks are left out. The state's files are checked first. Streams; commits
// the file by a rename, in place of one that was there. Throws CheckpointError, also if two tensors would have one name.
void export_tensors(const std::filesystem::path& checkpoint, const std::filesystem::path& file,
                    const std::optional<std::string>& state = {}, const std::string& prefix = {});

// Deletes all but the newest `keep` (>= 1) whole checkpoints, and what an interrupted save left. Reads every byte of
// those it keeps; if none is whole, it deletes no checkpoint. Those of a newer format stay. With `dry_run` it deletes
// nothing. Returns what was, or would be, deleted. Throws UsageError on a smaller `keep`, CheckpointError if something
// cannot be read or deleted.
std::vector<std::filesystem::path> prune(const std::filesystem::path& directory, int keep, bool dry_run = false);

}  // namespace adaptdl::checkpoint
