"""Tests that the API reference has no gaps, that gaps are reported by file and line, and that comments are shown verbatim."""
import html
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

DOXYFILE = Path(os.environ["DOXYFILE"])

# A comment that begins with NOLINT is not documentation. Here such comments mark the gaps.
GAPS = """\
// What gaps look like. See docs/testing.md, docs/missing.md, missing.h and Missing::function.
#pragma once

namespace adaptdl {

class Memberless {};  // NOLINT

struct Fields {        // NOLINT
  int documented = 0;  // has a comment
  int gap = 0;         // NOLINT

  // As does this one.
  int above = 0;
  int below = 0;

  int apart = 0;  // NOLINT
};

// Has its comment.
class Members {
 public:
  Members(int argument);  // NOLINT

  int gap();  // NOLINT
  // A function.
  void function();

  using Gap = int;         // NOLINT
  operator bool() const;   // NOLINT
  enum class Kind { kA };  // NOLINT

 protected:
  void hidden();  // NOLINT

 private:
  void no_gap();
  int no_gap_;
};

// Members::function exists, Members::missing does not.
void function();

void gap(int argument = 0,  // NOLINT
         int other = 0);

inline constexpr int kGap = 1;  // NOLINT

namespace internal {
void no_gap();
}

}  // namespace adaptdl
"""

WHOLE = r"""// A header without gaps, of the class Whole and others.
//
//   Whole whole;  // it's "code": a<b>(&c, *d) \n @e #f %g _h_ `i`
//
//   whole.call<int>({.first = 1});
//
// Special characters: a<b> & c, *d* **e** _f_ __g__, h_ i -- j, @param k, \return l, #m, 100%n, "o <p>", [q](r).
// In code: `a<b>(&c, *d) \n @e #f %g _h_ "i" --j`, and `over
// lines`. A single ` is one.
// - a list, whose items
//   may be continued.
//
// Threading: any.
#pragma once

namespace adaptdl {

class Whole {
 public:
  Whole();
  ~Whole();
  Whole(const Whole&) = delete;
  Whole& operator=(const Whole&) = delete;
  Whole(Whole&& other) noexcept;

  // --- Calls ---

  // Calls it, and calls it again.
  template <class T>
  requires requires(T& t) { t.call(); }
  void call(T t = {}) { t.call(); }
  void call_again();
  int number = 10'000;  // isn't small,
                        // nor large

  // The elements.
  class Iterator {
   public:
    using difference_type = int;
    Iterator& operator++();
    int operator*() const noexcept { return *"{;"; }
    bool operator==(int) const noexcept { return true; }
  };

 private:
  int hidden_ = 0;
};

// Its call is that of Whole::call.
struct Derived : public Whole {
  int call(int) override;
  bool operator==(const Derived&) const = default;
};

}  // namespace adaptdl
"""


class ReferenceTest(unittest.TestCase):
    def setUp(self):
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.assertTrue(shutil.which("doxygen"), "doxygen is missing; ./bootstrap packages full installs it")

    def run_doxygen(self, *settings):
        settings = [f"@INCLUDE = {DOXYFILE}", f"OUTPUT_DIRECTORY = {self.directory}", *settings]
        return subprocess.run(["doxygen", "-"], input="\n".join(settings), capture_output=True, text=True)

    def run_on(self, name, text):
        (self.directory / name).write_text(text)
        return self.run_doxygen(f"INPUT = {self.directory / name}")

    def shown(self, page):
        text = re.sub(r"<[^>]*>", "", (self.directory / page).read_text())
        return " ".join(html.unescape(text).split())

    def test_the_public_headers_are_fully_documented(self):
        done = self.run_doxygen()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("AdaptiveDataParallel model(net, optimizer);", self.shown("index.html"))
        self.assertTrue((self.directory / "namespaceadaptdl_1_1checkpoint.html").exists())
        self.assertFalse(list(self.directory.glob("*internal*")))

    def test_undocumented_declarations_and_broken_references_are_reported_with_their_lines(self):
        done = self.run_on("gaps.h", GAPS)
        self.assertNotEqual(done.returncode, 0)
        reports = re.findall(rf"^{self.directory}/gaps\.h:(\d+): \w+: (.*)", done.stderr, re.MULTILINE)
        lines = GAPS.splitlines()
        gaps = {int(line) for line, text in reports if text.endswith("is not documented.")}
        self.assertEqual(gaps, {number for number, line in enumerate(lines, 1) if line.endswith("NOLINT")})
        matches = [(re.search("reference to '([^']*)'", text), int(line)) for line, text in reports]
        wrong = {match[1]: line for match, line in matches if match}
        self.assertEqual(set(wrong), {"docs/missing.md", "missing.h", "adaptdl::Missing::function", "Members::missing"})
        for name, line in wrong.items():  # Doxygen may name the line after the comment
            self.assertIn(name.removeprefix("adaptdl::"), "".join(lines[line - 2:line]))

    def test_comments_are_shown_verbatim(self):
        done = self.run_on("whole.h", WHOLE)
        self.assertEqual(done.returncode, 0, done.stderr)
        page = self.shown("classadaptdl_1_1Whole.html")
        for text in (r'''Whole whole; // it's "code": a<b>(&c, *d) \n @e #f %g _h_ `i` whole.call<int>({.first = 1});''',
                     r'''a<b> & c, *d* **e** _f_ __g__, h_ i -- j, @param k, \return l, #m, 100%n, "o <p>", [q](r)''',
                     r'''In code: a<b>(&c, *d) \n @e #f %g _h_ "i" --j, and over lines. A single ` is one.''',
                     "a list, whose items may be continued. Threading: any.",
                     "Not copyable.", "Calls int number = 10'000 isn't small, nor large",
                     "call (T t={}) Calls it, and calls it again.", "call_again () Calls it, and calls it again."):
            self.assertIn(text, page)
        self.assertEqual(page.count("Not copyable."), 1)
        self.assertNotRegex(page, r"~Whole|operator")
        source = (self.directory / "classadaptdl_1_1Whole.html").read_text()
        self.assertIn("<b>Threading:</b> any.", source)
        self.assertIn('class="fragment"', source)


if __name__ == "__main__":
    unittest.main()
