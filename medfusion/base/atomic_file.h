// Files that are there as a whole or not at all.
#ifndef MEDFUSION_BASE_ATOMIC_FILE_H_
#define MEDFUSION_BASE_ATOMIC_FILE_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <string>
#include <string_view>

namespace medfusion {

// Replaces the file at `path` by `content`: writes a temporary one beside it, syncs it, renames it
// and syncs the folder. After a crash or on an error the old file, if any, is as it was. NotFound,
// PermissionDenied, ResourceExhausted (disk full) or Unavailable, naming the path. One writer at a
// time per path. Not collective.
absl::Status WriteFileAtomically(const std::string& path, std::string_view content);

// All bytes of a file. Errors as above.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

// Makes the folder and those above it. OK when it is there already.
absl::Status MakeFolders(const std::string& path);

}  // namespace medfusion

#endif  // MEDFUSION_BASE_ATOMIC_FILE_H_
