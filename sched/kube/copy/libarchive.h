// Loads libarchive when it is first used: linking it would delay every start of the command by several milliseconds.
//
// Threading: the function may be called from any thread. Lifetime: the library is never closed.
#pragma once

#include <archive.h>
#include <archive_entry.h>

namespace adaptdl::kube {

#define ADAPTDL_LIBARCHIVE(X)                                                                                  \
  X(archive_read_new)                                                                                          \
  X(archive_read_free)                                                                                         \
  X(archive_read_support_format_tar)                                                                           \
  X(archive_read_support_filter_none)                                                                          \
  X(archive_read_open) X(archive_read_next_header) X(archive_read_data_block) X(archive_write_new)             \
      X(archive_write_free) X(archive_write_close) X(archive_write_set_format_pax_restricted)                  \
          X(archive_write_set_format_zip) X(archive_write_set_bytes_per_block) X(archive_write_open)           \
              X(archive_write_header) X(archive_write_data) X(archive_error_string) X(archive_entry_new)       \
                  X(archive_entry_free) X(archive_entry_pathname) X(archive_entry_set_pathname)                \
                      X(archive_entry_hardlink) X(archive_entry_set_hardlink) X(archive_entry_symlink)         \
                          X(archive_entry_set_symlink) X(archive_entry_filetype) X(archive_entry_set_filetype) \
                              X(archive_entry_perm) X(archive_entry_set_perm) X(archive_entry_set_size)        \
                                  X(archive_entry_mtime) X(archive_entry_set_mtime)

#define ADAPTDL_FUNCTION(name) decltype(&::name) name;
struct Libarchive {
  ADAPTDL_LIBARCHIVE(ADAPTDL_FUNCTION)
};
#undef ADAPTDL_FUNCTION

// If libarchive is not installed, throws an Error that names the package to install.
const Libarchive& libarchive();

}  // namespace adaptdl::kube
