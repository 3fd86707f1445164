#include "image/layer/blob_store.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "adaptdl/error.h"
#include "image_temporary.h"

namespace image_blob_store_test {

using namespace adaptdl;
using namespace adaptdl::image;
namespace fs = std::filesystem;

namespace {

const std::string kAbc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

void make_old(const fs::path& file) {
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(9));
}

}  // namespace

TEST_CASE("a blob is stored in an OCI layout, private to its owner, under its digest") {
  const Temporary temporary;
  const BlobStore store(temporary / "a/store");
  CHECK_FALSE(store.find(kAbc));
  CHECK_FALSE(store.read(kAbc));
  CHECK(store.put("abc") == kAbc);
  CHECK(store.put("abc") == kAbc);
  const fs::path file = temporary / "a/store/blobs/sha256" / kAbc.substr(7);
  CHECK(store.find(kAbc) == file);
  CHECK(store.find(kAbc, 3) == file);
  CHECK_FALSE(store.find(kAbc, 4));
  CHECK(store.read(kAbc) == "abc");
  struct stat info {};
  REQUIRE(::stat((temporary / "a/store").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  CHECK(store.list().size() == 1);
  CHECK(store.list()[0].digest == kAbc);
  CHECK(store.list()[0].size == 3);
  CHECK(store.remove(kAbc));
  CHECK_FALSE(store.remove(kAbc));
  CHECK(store.list().empty());
}

TEST_CASE("a draft committed with the right digest becomes a blob, and any other draft leaves no file") {
  const Temporary temporary;
  const BlobStore store(temporary.path());
  {
    BlobStore::Draft draft(store);
    draft.write("a");
    draft.write("bc");
    CHECK(draft.size() == 3);
    CHECK(draft.commit(kAbc) == kAbc);
  }
  CHECK(store.read(kAbc) == "abc");
  {
    BlobStore::Draft draft(store);
    draft.write("abd");
    CHECK_THROWS_WITH_AS(draft.commit(kAbc), ("digest mismatch: got " + sha256("abd") + ", expected " + kAbc).c_str(),
                         Error);
  }
  { BlobStore::Draft(store).write("never committed"); }
  CHECK(run("find " + temporary.path().string() + " -type f | wc -l") == "1\n");
  BlobStore::Draft other(store, "sha512");
  other.write("x");
  const std::string digest = other.commit();
  CHECK(digest.starts_with("sha512:"));
  CHECK(store.read(digest) == "x");
  CHECK(store.list().size() == 2);
}

TEST_CASE("a corrupted blob is removed instead of returned") {
  const Temporary temporary;
  const BlobStore store(temporary.path());
  store.put("abc");
  write_file(store.path_of(kAbc), "abd");
  CHECK_FALSE(store.read(kAbc));
  CHECK_FALSE(store.find(kAbc));
}

TEST_CASE("finding or reading a blob updates its time of last use") {
  const Temporary temporary;
  const BlobStore store(temporary.path());
  store.put("abc");
  const auto use = [&] { return std::chrono::system_clock::now() - store.list().at(0).used < std::chrono::minutes(1); };
  make_old(store.path_of(kAbc));
  CHECK_FALSE(use());
  store.find(kAbc);
  CHECK(use());
  make_old(store.path_of(kAbc));
  store.read(kAbc);
  CHECK(use());
}

TEST_CASE("remove_drafts removes drafts of killed processes and keeps those being written") {
  const Temporary temporary;
  const BlobStore store(temporary.path());
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    BlobStore::Draft draft(store);
    draft.write(std::string(1000, 'x'));
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  BlobStore::Draft mine(store);
  mine.write("abc");
  for (const fs::directory_entry& file : fs::directory_iterator(temporary / "blobs"))
    if (file.is_regular_file()) make_old(file.path());
  CHECK(store.remove_drafts() == 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  CHECK(store.remove_drafts() == 1000);
  CHECK(store.remove_drafts() == 0);
  CHECK(mine.commit() == kAbc);
}

}  // namespace image_blob_store_test
