#include "adaptdl/generation.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

namespace generation_test {

using adaptdl::generation::Generation;
using nlohmann::json;

namespace {

const Generation kTwo{4, {{"0-0", "127.0.0.1", 4000}, {"0-3", "10.0.0.2", 4001}}};

}  // namespace

TEST_CASE("a generation round-trips through JSON with its replicas in rank order") {
  const Generation read = Generation::from_json(json::parse(kTwo.to_json().dump()));
  CHECK(read.number == 4);
  REQUIRE(read.replicas.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(read.replicas[i].id == kTwo.replicas[i].id);
    CHECK(read.replicas[i].address == kTwo.replicas[i].address);
    CHECK(read.replicas[i].port == kTwo.replicas[i].port);
  }
}

TEST_CASE("a replica's rank is its position in the list") {
  CHECK(kTwo.rank_of("0-0") == 0);
  CHECK(kTwo.rank_of("0-3") == 1);
  CHECK_FALSE(kTwo.rank_of("0-1"));
}

TEST_CASE("an invalid generation is rejected, including one without replicas") {
  for (const char* key : {"generation", "replicas"}) {
    json wrong = kTwo.to_json();
    wrong.erase(key);
    CHECK_THROWS_AS(Generation::from_json(wrong), json::exception);
    wrong[key] = "x";
    CHECK_THROWS_AS(Generation::from_json(wrong), json::exception);
  }
  json wrong = kTwo.to_json();
  wrong["replicas"] = json::array();
  CHECK_THROWS_AS(Generation::from_json(wrong), json::exception);
  for (const char* key : {"id", "address", "port"}) {
    wrong = kTwo.to_json();
    wrong["replicas"][1].erase(key);
    CHECK_THROWS_AS(Generation::from_json(wrong), json::exception);
  }
  CHECK_THROWS_AS(Generation::from_json(json::array()), json::exception);
}

TEST_CASE("a standalone process does not follow generations") {
  CHECK_FALSE(adaptdl::generation::follows());
  CHECK_FALSE(adaptdl::generation::announced());
  CHECK_FALSE(adaptdl::generation::joining());
}

}  // namespace generation_test
