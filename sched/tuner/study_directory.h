// The directory of one of this user's studies.
//
//   STUDIES/NAME/journal.log   the storage, or a link to it (`adaptdl tune --storage`)
//   STUDIES/NAME/lock          locked by the process that is running the study's search; contains its id
//   STUDIES/NAME/trials/       see local_trial_runner.h
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace adaptdl::sched::tune {

class StudyDirectory {
 public:
  // Refers to the study of that name, which need not exist. REQUIRES a name of letters, digits, '.', '_' and '-' that
  // does not begin with '.'.
  explicit StudyDirectory(const std::string& name);

  const std::string& name() const noexcept { return name_; }
  const std::filesystem::path& path() const noexcept { return path_; }
  bool exists() const;
  // Returns the path of the storage with links resolved, because a journal's lock belongs to its path.
  std::filesystem::path journal() const;

  // Creates the directory, without a storage, if it does not exist. Throws Error.
  void create();
  // Removes the link or file of an earlier storage, and creates a link to `journal` if one is given. Throws Error.
  // REQUIRES that the study is locked.
  void place_journal(const std::optional<std::filesystem::path>& journal);
  // Removes the directory, but not a storage outside it. Throws Error.
  void remove() const;
  // Locks the study until this object is destroyed, so that no other process can run its search. Throws UsageError if
  // another process has locked it.
  void lock();
  // Returns the id of the process that is running the study's search, if there is one.
  std::optional<pid_t> searcher() const;

 private:
  std::string name_;
  std::filesystem::path path_;
  Fd lock_;
};

// Returns the names of all studies, sorted.
std::vector<std::string> list_studies();

}  // namespace adaptdl::sched::tune
