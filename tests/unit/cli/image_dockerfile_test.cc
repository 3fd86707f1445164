#include "image/dockerfile/dockerfile.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "image/dockerfile/run_mount.h"

namespace image_dockerfile_test {

using namespace adaptdl::image;

namespace {

std::string corpus(const std::string& name) {
  std::ifstream file(std::filesystem::path(ADAPTDL_DOCKERFILES) / name, std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

Stage only_stage(const std::string& text) {
  const Dockerfile file = parse_dockerfile("FROM a\n" + text, "Dockerfile");
  REQUIRE(file.stages.size() == 1);
  return file.stages[0];
}

template <typename T>
T only(const std::string& text) {
  const Stage stage = only_stage(text);
  REQUIRE(stage.instructions.size() == 1);
  return std::get<T>(stage.instructions[0].body);
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, "|")); }

std::string joined(const std::vector<Pair>& pairs) {
  std::string text;
  for (const Pair& pair : pairs) text += fmt::format("{}{}={}", text.empty() ? "" : "|", pair.name, pair.value);
  return text;
}

}  // namespace

TEST_CASE("all Dockerfiles in the corpus are parsed") {
  for (const auto& entry : std::filesystem::directory_iterator(ADAPTDL_DOCKERFILES)) {
    CAPTURE(entry.path().string());
    const Dockerfile file = parse_dockerfile(corpus(entry.path().filename()), entry.path().filename());
    CHECK_FALSE(file.stages.empty());
  }
  const Dockerfile pytorch = parse_dockerfile(corpus("pytorch"), "pytorch");
  REQUIRE(pytorch.stages.size() == 5);
  CHECK(pytorch.arguments.size() == 2);
  CHECK(pytorch.stages[2].name == "build");
  CHECK(pytorch.stages[2].base == "dev-base");
  CHECK(pytorch.stages[2].instructions.size() == 4);
}

TEST_CASE("comments and blank lines in a continuation are dropped, and line numbers are recorded") {
  const Dockerfile file = parse_dockerfile(corpus("node"), "node");
  const Instruction& run = file.stages[0].instructions[2];
  CHECK(run.name == "RUN");
  CHECK(run.lines.first == 8);
  CHECK(run.lines.last == 25);
  const std::string command = std::get<Run>(run.body).command.words[0];
  CHECK(command.find("gpg keys") == std::string::npos);
  CHECK(command.ends_with("  && npm --version"));
  CHECK(joined(std::get<Run>(only_stage("RUN a \\\n# x\n\n  # y\n b\\\\\n").instructions[0].body).command.words) ==
        "a  b\\\\");
}

TEST_CASE("the escape directive, CRLF and a byte order mark are supported") {
  const Dockerfile file = parse_dockerfile(corpus("crlf"), "crlf");
  CHECK(file.escape == '`');
  CHECK(file.stages[0].base == "windows-like");
  CHECK(joined(std::get<Env>(file.stages[0].instructions[0].body).pairs) == "A=1|B=\"x y\"|C=c:\\");
  CHECK(std::get<Run>(file.stages[0].instructions[1].body).command.words[0] == "dir c:\\   /s");
  const Dockerfile bom = parse_dockerfile(corpus("bom"), "bom");
  CHECK(std::get<Copy>(bom.stages[0].instructions[1].body).sources[0] == "a b");
}

TEST_CASE("a directive that follows a comment or an unknown directive is treated as a comment") {
  CHECK(parse_dockerfile("# a comment\n# escape=`\nFROM a\n", "x").escape == '\\');
  CHECK(parse_dockerfile("# a=b\n# escape=`\nFROM a\n", "x").escape == '\\');
  CHECK(parse_dockerfile("#Syntax = example.com/docker/dockerfile:1.4@sha256:0\n#escape=`\nFROM a\n", "x").escape ==
        '`');
}

TEST_CASE("ENV is parsed in both forms, and ENV and LABEL keep quotes for expansion") {
  CHECK(joined(only<Env>("ENV A=1 B=\"x y\" C=a\\ b D='$x'").pairs) == "A=1|B=\"x y\"|C=a\\ b|D='$x'");
  CHECK(joined(only<Env>("ENV A  b=c  d ").pairs) == "A=b=c  d");
  CHECK(joined(only<Label>("LABEL \"a.b\"=\"c\" d=").pairs) == "\"a.b\"=\"c\"|d=");
}

TEST_CASE("a JSON array is the exec form, and anything else is the shell form") {
  CHECK(only<Cmd>("CMD [\"a\", \"\\u00e9\"]").command.exec);
  CHECK(joined(only<Cmd>("CMD [\"a\", \"b c\"]").command.words) == "a|b c");
  for (const char* text : {"['a']", "[\"a\"", "[\"a\",]", "[ -f x ] && y", "[\"a\"] b"}) {
    const Cmd cmd = only<Cmd>(std::string("CMD ") + text);
    CHECK_FALSE(cmd.command.exec);
    CHECK(joined(cmd.command.words) == text);
  }
  CHECK(only<Entrypoint>("ENTRYPOINT []").command.words.empty());
}

TEST_CASE("COPY is parsed with all of its flags") {
  const Copy copy = only<Copy>(
      "COPY --from=img:1 --chown=1:2 --chmod='u=rwX' --exclude=*.a --exclude=b --parents --link=false \"--x\" y/ /z/");
  CHECK(copy.from == "img:1");
  CHECK(copy.owner == "1:2");
  CHECK(copy.mode == "u=rwX");
  CHECK(joined(copy.excludes) == "*.a|b");
  CHECK(copy.parents);
  CHECK_FALSE(copy.link);
  CHECK(joined(copy.sources) == "\"--x\"|y/");
  CHECK(copy.destination == "/z/");
}

TEST_CASE("a heredoc of COPY becomes a file to copy, and a heredoc of RUN belongs to the command") {
  const Copy copy = only<Copy>("COPY <<a x <<-\"b\" /d/\n1\n\nb\na\n\t\ttwo\n\tb\n");
  REQUIRE(copy.files.size() == 2);
  CHECK(copy.files[0].name == "a");
  CHECK(copy.files[0].content == "1\n\nb\n");
  CHECK(copy.files[0].expand);
  CHECK(copy.files[1].content == "two\n");
  CHECK_FALSE(copy.files[1].expand);
  CHECK(joined(copy.sources) == "x");

  const Stage stage = only_stage("RUN cat << EOF 3<<'E F' | x\n# no comment\nEOF\nE F\nRUN echo \"<<EOF\" $((1<<2))\n");
  REQUIRE(stage.instructions.size() == 2);
  const Run run = std::get<Run>(stage.instructions[0].body);
  REQUIRE(run.command.heredocs.size() == 2);
  CHECK(run.command.heredocs[0].content == "# no comment\n");
  CHECK(run.command.heredocs[1].name == "E F");
  CHECK(stage.instructions[0].lines.last == 5);
  CHECK(std::get<Run>(stage.instructions[1].body).command.heredocs.empty());
}

TEST_CASE("RUN mounts are parsed with their options and defaults") {
  const Run run = only<Run>(
      "RUN --mount=target=/a,from=b,source=/c,rw "
      "--mount=type=cache,target=/d,id=e,sharing=locked,mode=0700,uid=1,gid=2 "
      "--mount=type=tmpfs,dst=/f,size=1.5k --mount=type=secret,id=g,env=G --mount=type=secret,id=x/h,required "
      "--mount=type=cache,target=$x --network=host make");
  REQUIRE(run.mounts.size() == 6);
  std::vector<Mount> mounts;
  for (const std::vector<Pair>& options : run.mounts) mounts.push_back(parse_mount(options));
  CHECK(mounts[0].from == "b");
  CHECK_FALSE(mounts[0].read_only);
  CHECK(mounts[1].type == Mount::Type::kCache);
  CHECK(mounts[1].sharing == Mount::Sharing::kLocked);
  CHECK(mounts[1].mode == 0700u);
  CHECK(mounts[1].group == 2u);
  CHECK_FALSE(mounts[1].read_only);
  CHECK(mounts[2].size == 1536);
  CHECK(mounts[3].environment == "G");
  CHECK(mounts[3].target.empty());
  CHECK(mounts[4].target == "/run/secrets/h");
  CHECK(mounts[4].required);
  CHECK(joined(run.mounts[5]) == "type=cache|target=$x");
  CHECK(run.network == Run::Network::kHost);
  CHECK(joined(run.command.words) == "make");
}

TEST_CASE("HEALTHCHECK, EXPOSE and ONBUILD are parsed with their options and arguments") {
  const Healthcheck check = only<Healthcheck>("HEALTHCHECK --interval=1m30s --timeout=1.5s --retries=4 cmd curl -f x");
  CHECK(joined(check.test) == "CMD-SHELL|curl -f x");
  CHECK(check.interval == std::chrono::seconds(90));
  CHECK(check.timeout == std::chrono::milliseconds(1500));
  CHECK(check.retries == 4);
  CHECK(joined(only<Healthcheck>("HEALTHCHECK NONE").test) == "NONE");
  CHECK(joined(only<Expose>("EXPOSE 90/udp 80 $port").ports) == "$port|80|90/udp");
  const OnBuild on_build = only<OnBuild>("onbuild run <<E x\ny\nE\n");
  CHECK(on_build.text == "run <<E x\ny\nE");
  CHECK(std::get<Run>(on_build.trigger->body).command.heredocs[0].content == "y\n");
  const Instruction again = parse_trigger(on_build.text, "Dockerfile", {7, 7});
  CHECK(again.lines.first == 7);
  CHECK(std::get<Run>(again.body).command.heredocs[0].content == "y\n");
}

TEST_CASE("an invalid trigger of a base image is reported with the line of the FROM that names the image") {
  CHECK_GOLDEN(::testing::error_of([&] { parse_trigger("RUN --x y", "Dockerfile", {4, 4}); }));
  CHECK_THROWS_AS(parse_trigger("FROM a", "Dockerfile", {4, 4}), adaptdl::Error);
  CHECK_THROWS_AS(parse_trigger("RUN a\nRUN b", "Dockerfile", {4, 4}), adaptdl::Error);
}

}  // namespace image_dockerfile_test
