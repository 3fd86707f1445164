// Times in ISO 8601 as Optuna writes them. Version 5 writes "2024-05-06T07:08:09.123456+00:00"; earlier versions write
// the writer's local time without an offset.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tune/study/study.h"

namespace adaptdl::sched::tune {

// Returns nullopt if the text is not a valid time. A time without an offset is assumed to be in this process's time
// zone, as in Optuna 5.
std::optional<Time> parse_journal_time(std::string_view text);

// Returns the time in UTC, with microseconds and the offset.
std::string to_journal_time(Time time);

}  // namespace adaptdl::sched::tune
