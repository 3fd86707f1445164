// Times as Optuna writes them in ISO 8601: "2024-05-06T07:08:09.123456+00:00" by version 5, and in the time zone of the
// writer and without an offset by versions before it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tune/study.h"

namespace adaptdl::sched::tune {

// None: the text is not a time. One without an offset is in the time zone of this process, as Optuna 5 reads it.
std::optional<Time> parse_journal_time(std::string_view text);

// The text of the time in UTC, with microseconds and the offset.
std::string to_journal_time(Time time);

}  // namespace adaptdl::sched::tune
