#include "image/dockerfile/expansion.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "adaptdl/error.h"
#include "golden.h"

namespace image_expansion_test {

using namespace adaptdl::image;

namespace {

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, "|")); }

std::string joined(const std::vector<Pair>& pairs) {
  std::string text;
  for (const Pair& pair : pairs)
    if (pair.name != "PATH") text += fmt::format("{}{}={}", text.empty() ? "" : "|", pair.name, pair.value);
  return text;
}

struct Walked {
  std::vector<Step> steps;
  StageState state;
};

// Expands the stages of a Dockerfile, each starting from the state that its base leaves.
struct Build {
  explicit Build(const std::string& text, std::map<std::string, std::string> arguments = {})
      : file(parse_dockerfile(text, "Dockerfile")) {
    settings.build_arguments = std::move(arguments);
    settings.target = Platform::parse("linux/arm64");
    settings.build = Platform::parse("linux/amd64");
  }
  Walked walk(std::size_t number, StageState begin = {}, const std::vector<Instruction>& triggers = {}) {
    StageWalk walk(file, file.stages[number], settings, std::move(begin), triggers);
    Walked walked;
    while (auto step = walk.next()) {
      step->instruction = nullptr;  // would dangle once the walk ends
      walked.steps.push_back(std::move(*step));
    }
    walked.state = walk.state();
    return walked;
  }
  Dockerfile file;
  BuildSettings settings;
};

Walked walked(const std::string& text, std::map<std::string, std::string> arguments = {}, StageState begin = {}) {
  return Build("FROM a\n" + text, std::move(arguments)).walk(0, std::move(begin));
}

std::string error_of(const std::string& text, std::map<std::string, std::string> arguments = {}) {
  try {
    walked(text, std::move(arguments));
  } catch (const adaptdl::Error& error) {
    return error.what();
  }
  return "";
}

template <typename T>
const T& action(const Walked& w, std::size_t step) {
  return std::get<T>(w.steps[step].action);
}

// Returns the last step of a Dockerfile that ends with a RUN.
RunStep last_run(const Walked& w) { return action<RunStep>(w, w.steps.size() - 1); }

}  // namespace

TEST_CASE("expansion uses values set by earlier instructions, or earlier in the same ARG instruction") {
  const Walked w =
      walked("ENV abc=hello\nENV abc=bye def=$abc\nENV ghi=$abc\nARG one=1 two=${one}2\nLABEL x=\"$two y\"");
  CHECK(joined(w.state.config.environment) == "abc=bye|def=hello|ghi=bye");
  CHECK(w.state.arguments[1].value == "12");
  CHECK(w.state.config.labels.at("x") == "12 y");
}

TEST_CASE("--build-arg overrides an ARG's default, and ENV overrides an ARG of the same name") {
  const std::string text = "ARG v=default\nARG u\nARG w\nENV e=${v:-none}.${u:-none}\nARG e=arg\nRUN x";
  CHECK(joined(last_run(walked(text)).environment) == "e=default.none|v=default");
  CHECK(joined(last_run(walked(text, {{"v", "given"}, {"u", ""}, {"e", "given"}})).environment) ==
        "e=given.none|v=given|u=");
  StageState base;
  base.config.environment = {{"v", "base"}};
  CHECK(joined(last_run(walked("ARG v=arg\nRUN x", {{"v", "given"}}, base)).environment) == "v=base");
}

TEST_CASE("an ARG before the first FROM is visible only in stages that redeclare it") {
  Build build("ARG v=1\nARG w=$v.2\nFROM a\nRUN echo $v\nENV x=$v.$w\nARG w\nENV y=$v.$w\n", {{"v", "7"}});
  const Walked w = build.walk(0);
  CHECK(joined(w.state.config.environment) == "x=.|y=.7.2");
  CHECK(global_arguments(build.file, build.settings).at("w") == "7.2");
}

TEST_CASE("platform variables are set only if declared, and proxy variables only for RUN") {
  const Walked w = walked(
      "ENV a=$TARGETARCH.$HTTP_PROXY\nARG TARGETARCH BUILDPLATFORM TARGETVARIANT\nENV "
      "b=$TARGETARCH.$BUILDPLATFORM\nRUN x",
      {{"HTTP_PROXY", "http://p"}, {"unused", "1"}});
  CHECK(joined(last_run(w).environment) ==
        "a=.|b=arm64.linux/amd64|TARGETARCH=arm64|BUILDPLATFORM=linux/amd64|TARGETVARIANT=");
  CHECK(joined(last_run(w).proxies) == "HTTP_PROXY=http://p|http_proxy=http://p");
  const Walked declared = walked("ARG HTTP_PROXY\nRUN x", {{"HTTP_PROXY", "http://p"}});
  CHECK(joined(last_run(declared).environment) == "HTTP_PROXY=http://p");
  CHECK(joined(last_run(declared).proxies) == "http_proxy=http://p");
  Build build("FROM a\nONBUILD ARG later", {{"http_proxy", ""}, {"unused", "1"}, {"later", "1"}});
  CHECK(joined(unused_build_arguments(build.file, build.settings)) == "unused");
}

TEST_CASE("a stage based on another inherits its ARGs, ENVs and configuration, but not its triggers") {
  Build build(
      "FROM a AS one\nARG v=1\nENV e=2\nUSER me\nWORKDIR /w\nONBUILD RUN y\nFROM one\nENV f=$v.$e\nRUN x\nWORKDIR z");
  const Walked one = build.walk(0);
  CHECK(joined(one.state.config.on_build) == "RUN y");
  const Walked two = build.walk(1, one.state, {parse_trigger("RUN $y", "Dockerfile", {7, 7})});
  CHECK(two.steps[0].history == "RUN $y");
  CHECK(joined(action<RunStep>(two, 0).command) == "/bin/sh|-c|$y");
  CHECK(joined(action<RunStep>(two, 2).environment) == "e=2|f=1.2|v=1");
  CHECK(action<RunStep>(two, 2).user == "me");
  CHECK(action<RunStep>(two, 2).working_directory == "/w");
  CHECK(two.state.config.working_directory == "/w/z");
  CHECK(two.state.config.on_build.empty());
}

TEST_CASE("the shell form uses the shell set by SHELL, and the exec form uses none") {
  const Walked w =
      walked("RUN a $b\nSHELL [\"/bin/bash\", \"-ec\"]\nRUN a | b\nRUN [\"a\", \"$b\"]\nCMD x y\nENTRYPOINT [\"e\"]");
  CHECK(joined(action<RunStep>(w, 0).command) == "/bin/sh|-c|a $b");
  CHECK(joined(action<RunStep>(w, 2).command) == "/bin/bash|-ec|a | b");
  CHECK(joined(action<RunStep>(w, 3).command) == "a|$b");
  CHECK(joined(*w.state.config.command) == "/bin/bash|-ec|x y");
  CHECK(joined(*w.state.config.entrypoint) == "e");
}

TEST_CASE("ENTRYPOINT resets the base image's CMD, but not the stage's own") {
  StageState base;
  base.config.command = {{"base"}};
  CHECK_FALSE(walked("ENTRYPOINT e", {}, base).state.config.command);
  CHECK(walked("CMD c\nENTRYPOINT e", {}, base).state.config.command);
}

TEST_CASE("a heredoc without a command becomes RUN's script, and one with a command is passed to the shell") {
  const Walked w = walked(
      "RUN <<EOF\necho $x\nEOF\nRUN <<-E\n\t#!/usr/bin/env python3\n\tprint(1)\nE\nRUN cat <<A > /a "
      "3<<-B\n1\nA\n\t2\n\tB\n");
  CHECK(joined(action<RunStep>(w, 0).command) == "/bin/sh|-c|echo $x\n");
  CHECK(joined(action<RunStep>(w, 1).command) == "/dev/pipes/E");
  CHECK(action<RunStep>(w, 1).script == "#!/usr/bin/env python3\nprint(1)\n");
  CHECK(joined(action<RunStep>(w, 2).command) == "/bin/sh|-c|cat <<A > /a 3<<-B\n1\nA\n\t2\nB");
}

TEST_CASE("COPY is expanded, and its destination becomes absolute") {
  const Walked w = walked(
      "ARG v=x d=/dir/\nWORKDIR /w\nCOPY --chown=$v --chmod=${m:-0644} $v \"z\" $d\nCOPY x .\nCOPY x ../y\n"
      "COPY <<EOF <<'F' ./\n$v \"$v\" \\$v\nEOF\n$v\nF\n");
  CHECK(joined(action<CopyStep>(w, 2).sources) == "x|z");
  CHECK(action<CopyStep>(w, 2).owner == "x");
  REQUIRE(action<CopyStep>(w, 2).mode);
  CHECK(action<CopyStep>(w, 2).mode->apply(0, false) == 0644);
  CHECK(action<CopyStep>(w, 2).destination == "/dir/");
  CHECK(action<CopyStep>(w, 3).destination == "/w/");
  CHECK(action<CopyStep>(w, 4).destination == "/y");
  CHECK(action<CopyStep>(w, 5).files[0].content == "x \"x\" $v\n");
  CHECK(action<CopyStep>(w, 5).files[1].content == "$v\n");
}

TEST_CASE("ports, volumes, signals and mounts are expanded and normalized") {
  const Walked w = walked(
      "ARG p=\"80 90-92/udp\"\nEXPOSE $p 127.0.0.1:1:7\nVOLUME [\"/$p\"]\nSTOPSIGNAL ${s:-SIGINT}\nWORKDIR /w\n"
      "RUN --mount=type=${t:-cache},target=c,id=$p x\n");
  CHECK(fmt::format("{}", fmt::join(w.state.config.exposed_ports, " ")) == "7/tcp 80/tcp 90/udp 91/udp 92/udp");
  CHECK(w.state.config.volumes.contains("/80 90-92/udp"));
  CHECK(w.state.config.stop_signal == "SIGINT");
  const RunStep& run = action<RunStep>(w, 5);
  REQUIRE(run.mounts.size() == 1);
  CHECK(run.mounts[0].type == Mount::Type::kCache);
  CHECK(run.mounts[0].target == "/w/c");
  CHECK(run.mounts[0].id == "80 90-92/udp");
}

TEST_CASE("a stage's environment has a default PATH unless its base sets one") {
  CHECK(walked("").state.config.environment[0].name == "PATH");
  StageState base;
  base.config.environment = {{"PATH", "/own"}};
  CHECK(walked("ENV PATH=/x:$PATH", {}, base).state.config.environment[0].value == "/x:/own");
}

TEST_CASE("errors found after expansion give the file, line and reason") {
  CHECK_GOLDEN(error_of("ARG p\nEXPOSE $p/icmp"));
  CHECK_GOLDEN(error_of("ENV x=\"${y:?give --build-arg y}\""));
  CHECK_GOLDEN(error_of("ENV x='a"));
  CHECK(error_of("COPY --chmod=$m a b\n", {}) == "");
  CHECK_GOLDEN(error_of("ARG m\nCOPY --chmod=$m a b\n", {{"m", "9"}}));
  CHECK(error_of("ARG d=/x\nCOPY a b $d") == "");  // $d is a directory, although it has no trailing slash
  CHECK_GOLDEN(error_of("ARG u=https://example.com/x.git\nADD $u /x"));
  CHECK_GOLDEN(error_of("ARG t=ssh\nRUN --mount=type=$t x"));
  CHECK_GOLDEN(error_of("RUN --mount=type=cache,target=/$t,mode=9 x"));
  CHECK_GOLDEN(error_of("RUN --mount=target=${t:-.} x"));
  CHECK_GOLDEN(error_of("STOPSIGNAL $s"));
  std::string doubling = "ENV a=0123456789abcdef\n";
  for (int i = 0; i < 40; ++i) doubling += "ENV a=$a$a\n";
  CHECK_GOLDEN(error_of(doubling));
}

}  // namespace image_expansion_test
