// Times in ISO 8601 as Optuna writes them. Version 5 writes "2024-05-06T07:08:09.123456+00:00"; versions before it
// write the local time of the writer without an offset.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tune/study.h"

namespace adaptdl::sched::tune {

// Returns none if the text is not a time. Without an offset, it is in the time zone of this process, as in Optuna 5.
std::optional<Time> parse_journal_time(std::string_view text);

// Returns the time in UTC, with microseconds and the offset.
std::string to_journal_time(Time time);

}  // namespace adaptdl::sched::tune
