// Tests overlays as builds use them: with many layers, long and odd names, and a repeated layer.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "adaptdl/error.h"
#include "image_root.h"

namespace image_overlay_test {

using namespace testing;

namespace {

class Layers {
 public:
  fs::path add(const std::string& name, const std::string& file, const std::string& text) {
    write(path(name) / file, text);
    return path(name);
  }
  fs::path path(const std::string& name) const { return directory_.path() / name; }

 private:
  TemporaryDirectory directory_;
};

}  // namespace

TEST_CASE("a file in an overlay's topmost layer hides files of the same name in lower layers") {
  Layers layers;
  const fs::path top = layers.add("top", "a", "new"), base = layers.add("base", "a", "old");
  layers.add("base", "b", "base's");
  const Overlay view({{top, base}, "", ""}, layers.path("at"));
  CHECK(read(view.path() / "a") == "new");
  CHECK(read(view.path() / "b") == "base's");
}

TEST_CASE("an overlay is unmounted when its object is destroyed") {
  Layers layers;
  const fs::path top = layers.add("top", "a", "new"), base = layers.add("base", "b", "old");
  const Mounts mounts;
  {
    Overlay view({{top, base}, "", ""}, layers.path("at"));
    const Overlay moved = std::move(view);
    CHECK(read(moved.path() / "a") == "new");
    CHECK(mounts.added().size() == 1);
  }
  CHECK(mounts.added().empty());
  CHECK(fs::is_empty(layers.path("at")));
}

TEST_CASE("an overlay of 500 layers with long and unusual names is mounted, and one of 501 layers is rejected" *
          doctest::test_suite("slow")) {
  Layers layers;
  OverlayLayers all;
  const std::string odd = std::string(120, 'x') + "/" + std::string(120, 'y') + "/a:b,c\\d e=";
  for (int i = 0; i < 500; ++i)
    all.lower.push_back(layers.add(fmt::format("{}{}", odd, i), fmt::format("f{}", i), "x"));
  {
    const Overlay view(all, layers.path("at"));
    CHECK(tree(view.path()).size() == 500);
  }
  all.lower.push_back(layers.add("one more", "g", "x"));
  CHECK_THROWS_AS(Overlay(all, layers.path("at")), adaptdl::Error);
}

TEST_CASE("an overlay can have one layer, no layers, or the same layer twice") {
  Layers layers;
  const fs::path one = layers.add("one", "a", "1"), other = layers.add("other", "a", "2");
  CHECK(read(Overlay({{one}, "", ""}, layers.path("at")).path() / "a") == "1");
  CHECK(fs::is_empty(Overlay({{}, "", ""}, layers.path("at")).path()));
  CHECK(read(Overlay({{one, other, one}, "", ""}, layers.path("at")).path() / "a") == "1");
}

TEST_CASE("an overlay without an upper directory is read-only, even for root") {
  Layers layers;
  const fs::path one = layers.add("one", "a", "1"), other = layers.add("other", "b", "2");
  for (const auto& lower : {std::vector<fs::path>{one}, {one, other}}) {
    const Overlay view({lower, "", ""}, layers.path("at"));
    write(view.path() / "c", "x");
    CHECK(!fs::exists(view.path() / "c"));
  }
}

TEST_CASE("changes in an overlay are written to its upper directory, even without lower layers") {
  Layers layers;
  for (const auto& lower : {std::vector<fs::path>{}, {layers.add("one", "old/a", "1")}}) {
    const fs::path upper = layers.path("upper" + std::to_string(lower.size()));
    const Overlay view({lower, upper, upper.string() + ".work"}, layers.path("at"));
    write(view.path() / "c", "x");
    fs::remove_all(view.path() / "old");
    CHECK(read(upper / "c") == "x");
    CHECK((fs::symlink_status(upper / "old").type() == fs::file_type::character) == !lower.empty());
  }
}

TEST_CASE("overlay errors name a missing layer, or the remedy for an unsuitable upper directory") {
  Layers layers;
  const fs::path one = layers.add("one", "a", "1"), other = layers.add("other", "b", "2");
  const auto message = [&](const OverlayLayers& all) {
    try {
      Overlay view(all, layers.path("at"));
      return std::string("nothing is wrong");
    } catch (const adaptdl::Error& error) {
      return std::string(error.what());
    }
  };
  CHECK(message({{one, layers.path("none")}, "", ""}) == layers.path("none").string() + ": No such file or directory");
  const Overlay below({{one}, layers.path("u"), layers.path("w")}, layers.path("below"));
  const std::string why = message({{other}, below.path() / "u", below.path() / "w"});
  CHECK(why.find("cannot mount an overlay") == 0);
  CHECK(why.find("set ADAPTDL_BUILD_CACHE") != std::string::npos);
}

}  // namespace image_overlay_test
