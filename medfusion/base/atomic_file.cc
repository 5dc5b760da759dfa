#include "medfusion/base/atomic_file.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace medfusion {
namespace {

absl::Status FileError(std::string_view what, const std::string& path, int error) {
  const std::string text =
      absl::StrCat("cannot ", std::string(what), " ", path, ": ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(text);
  if (error == EACCES || error == EPERM || error == EROFS) return absl::PermissionDeniedError(text);
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(text);
  return absl::UnavailableError(text);
}

// 0, or errno.
int WriteAndSync(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t count = write(fd, content.data(), content.size());
    if (count < 0 && errno != EINTR) return errno;
    if (count > 0) content.remove_prefix(static_cast<size_t>(count));
  }
  return fsync(fd) == 0 ? 0 : errno;
}

int SyncFolder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  // Some network file systems cannot sync a folder, and say so.
  const int error = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
  close(fd);
  return error;
}

}  // namespace

absl::Status WriteFileAtomically(const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return FileError("write", path, errno);
  int error = WriteAndSync(fd, content);
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(temporary.c_str());
    return FileError("write", path, error);
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  error = SyncFolder(folder.empty() ? "." : folder);
  return error == 0 ? absl::OkStatus() : FileError("sync the folder of", path, error);
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError("read", path, errno);
  std::string content;
  char buffer[1 << 16];
  ssize_t count;
  while ((count = read(fd, buffer, sizeof(buffer))) != 0) {
    if (count > 0) content.append(buffer, static_cast<size_t>(count));
    if (count < 0 && errno != EINTR) {
      const int error = errno;
      close(fd);
      return FileError("read", path, error);
    }
  }
  close(fd);
  return content;
}

absl::Status MakeFolders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return FileError("make the folder", path, error.value());
  return absl::OkStatus();
}

}  // namespace medfusion
