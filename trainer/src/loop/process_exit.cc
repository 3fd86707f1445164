#include "loop/process_exit.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "tensorboard/event_file.h"

namespace adaptdl::internal {

namespace {

std::function<void(int)>& exit_handler() {
  static auto* const handler = new std::function<void(int)>;
  return *handler;
}

}  // namespace

void exit_process(int code) {
  if (exit_handler()) exit_handler()(code);
  flush_event_files();
  std::cout.flush();
  std::cerr.flush();
  std::clog.flush();
  std::fflush(nullptr);
  std::_Exit(code);
}

void set_exit_handler(std::function<void(int code)> handler) { exit_handler() = std::move(handler); }

}  // namespace adaptdl::internal
