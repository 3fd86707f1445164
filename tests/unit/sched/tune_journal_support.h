// A study's journal in a temporary directory, and processes that write to it.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "adaptdl/error.h"
#include "temporary_directory.h"
#include "tune/journal/journal.h"

namespace adaptdl::sched::tune::testing {

namespace fs = std::filesystem;

inline std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_text(const fs::path& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }

inline void append_text(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::app) << text;
}

struct JournalScene {
  ::testing::TemporaryDirectory directory;
  fs::path file = directory.path() / "study.journal";
  fs::path lock = directory.path() / "study.journal.lock";
};

// Starts a process that runs the action and exits.
inline pid_t start_process(const std::function<void()>& action) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  try {
    action();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    ::_exit(1);
  }
  ::_exit(0);
}

inline int status_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

inline const Distribution kLayers = IntRange{1, 9, false, 2};

// Adds a trial with data of every kind, from its creation to its end.
inline int run_trial(Journal& journal, int study, int mark) {
  const int trial = journal.create_trial(study, TrialState::kRunning);
  journal.begin();
  journal.set_parameter(trial, "layers", kLayers, 1 + 2 * (mark % 5));
  for (int step = 0; step < 5; ++step) journal.report(trial, step, mark + step);
  journal.set_trial_attribute(trial, "mark", mark);
  journal.commit();
  if (!journal.finish(trial, TrialState::kComplete, mark)) throw Error("the trial had finished");
  return trial;
}

}  // namespace adaptdl::sched::tune::testing
