// Where the studies of this user are kept.
//
//   STUDIES/NAME/journal.log   the storage, or a link to it (`adaptdl tune --storage`)
//   STUDIES/NAME/lock          locked by the process that searches, with its id
//   STUDIES/NAME/trials/       see local_trial_runner.h
//
// Threading: one thread at a time.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "local/fd.h"

namespace adaptdl::sched::tune {

class StudyDirectory {
 public:
  // The study of that name, which need not exist. REQUIRES a name of letters, digits, '.', '_' and '-' that does not
  // begin with '.'.
  explicit StudyDirectory(const std::string& name);

  const std::string& name() const noexcept { return name_; }
  const std::filesystem::path& path() const noexcept { return path_; }
  bool exists() const;
  // The storage, links resolved: the lock of a journal belongs to its path.
  std::filesystem::path journal() const;

  // Creates it if it does not exist, without a storage. Throws Error.
  void create();
  // Removes the link or file of an earlier storage, and links to `journal` if one is given. Throws Error. REQUIRES that
  // it is locked.
  void place_journal(const std::optional<std::filesystem::path>& journal);
  // Removes it, but no storage outside.
  void remove() const;
  // Locks it as the one process that searches, until the object ends. Throws UsageError if another one does.
  void lock();
  // The process that searches, if one does.
  std::optional<pid_t> searcher() const;

 private:
  std::string name_;
  std::filesystem::path path_;
  Fd lock_;
};

// The names of all studies, sorted.
std::vector<std::string> list_studies();

}  // namespace adaptdl::sched::tune
