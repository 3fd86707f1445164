#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "adaptdl/error.h"
#include "command/base/command.h"
#include "command/base/help_text.h"
#include "command/dispatch.h"

namespace commands_test {

using namespace adaptdl;
using namespace adaptdl::cli;

namespace {

void refused(const std::vector<std::string>& words, const std::string& why) {
  CHECK_THROWS_WITH_AS(dispatch(words), why.c_str(), UsageError);
}

// Calls `visit` with the description of every command and verb.
void for_each_verb(const nlohmann::json& described, const std::function<void(const nlohmann::json&)>& visit) {
  for (const auto& verb : described) {
    visit(verb);
    for_each_verb(verb["commands"], visit);
  }
}

}  // namespace

TEST_CASE("an unknown command or option is rejected, with a suggestion if a similar one exists") {
  refused({"rnu"}, "no such command: 'rnu'; did you mean 'run'? (see `adaptdl help`)");
  refused({"xyzzy"}, "no such command: 'xyzzy' (see `adaptdl help`)");
  refused({"--verison"}, "unknown option '--verison'; did you mean '--version'? (see `adaptdl help`)");
  refused({"run", "--replicsa", "2", "prog"},
          "run: unknown option '--replicsa'; did you mean '--replicas'? (see `adaptdl help run`)");
  refused({"run", "--check=x", "prog"},
          "run: unknown option '--check'; did you mean '--checkpoint'? (see `adaptdl help run`)");
  refused({"run", "-x", "prog"}, "run: unknown option '-x' (see `adaptdl help run`)");
  refused({"help", "rum"}, "help: no such command: 'rum'; did you mean 'run'?");
}

TEST_CASE("an option without a value is rejected and does not consume the next argument") {
  refused({"run", "--grace"}, "run: --grace needs a value: DURATION (see `adaptdl help run`)");
  refused({"run", "--checkpoint=", "prog"}, "run: --checkpoint needs a value (see `adaptdl help run`)");
}

TEST_CASE("options after the program name or after -- are not parsed as options of run") {
  refused({"run", "--name", "a/b", "true", "--name", "c"},
          "run: invalid --name 'a/b': expected up to 63 letters, digits, '.', '_' and '-'");
  refused({"run", "--name", "a/b", "--", "--nothing", "--checkpoint="},
          "run: invalid --name 'a/b': expected up to 63 letters, digits, '.', '_' and '-'");
}

TEST_CASE("every command, verb, option and argument has help text") {
  for_each_verb(describe_all(), [](const nlohmann::json& verb) {
    const std::string path = verb["path"];
    CAPTURE(path);
    CHECK_FALSE(verb["summary"].get<std::string>().empty());
    CHECK_FALSE(verb["summary"].get<std::string>().ends_with('.'));
    std::set<std::string> names;
    for (const auto& option : verb["options"]) {
      CAPTURE(option);
      CHECK_FALSE(option["help"].get<std::string>().empty());
      CHECK_FALSE(option["help"].get<std::string>().ends_with('.'));
      CHECK(option["value"] != "TEXT");  // CLI11's placeholder for values without a name
      CHECK(option["value"] != "INT");
      for (const std::string name : option["names"]) CHECK_MESSAGE(names.insert(name).second, name);
    }
    for (const auto& argument : verb["arguments"]) CHECK_FALSE(argument["help"].get<std::string>().empty());
  });
}

TEST_CASE("command names are unique and can be looked up") {
  std::set<std::string_view> names;
  for (const Command& command : commands()) {
    CHECK(names.insert(command.name).second);
    CHECK(find_command(command.name) == &command);
  }
  CHECK(find_command("nothing") == nullptr);
}

}  // namespace commands_test
