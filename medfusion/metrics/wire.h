// Numbers and texts to bytes and back, for the messages that the ranks of one job exchange.
//
// In the machine's own byte order: nothing here is stored.
#ifndef MEDFUSION_METRICS_WIRE_H_
#define MEDFUSION_METRICS_WIRE_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace medfusion {

class ByteWriter {
 public:
  template <typename T>
  void Put(T value) {
    PutAll(std::span<const T>(&value, 1));
  }

  void PutText(std::string_view text) { PutList(std::span<const char>(text.data(), text.size())); }

  // The number of elements, then the elements.
  template <typename T>
  void PutList(std::span<const T> values) {
    Put<int64_t>(static_cast<int64_t>(values.size()));
    PutAll(values);
  }

  const std::string& bytes() const { return bytes_; }

 private:
  template <typename T>
  void PutAll(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }

  std::string bytes_;
};

// Reads what ByteWriter wrote. Past the end, or for a length that cannot be, it gives zeros and
// empty lists from then on, and ok() is false: ask once, at the end.
class ByteReader {
 public:
  // `bytes` must outlive the reader.
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T Get() {
    T value{};
    CopyTo(std::span<T>(&value, 1));
    return value;
  }

  std::string GetText() {
    const std::vector<char> text = GetList<char>();
    return std::string(text.begin(), text.end());
  }

  template <typename T>
  std::vector<T> GetList() {
    const int64_t size = Get<int64_t>();
    if (size < 0 || static_cast<uint64_t>(size) > rest_.size() / sizeof(T)) {
      ok_ = false;
      return {};
    }
    std::vector<T> values(static_cast<size_t>(size));
    CopyTo(std::span<T>(values));
    return values;
  }

  bool ok() const { return ok_; }

 private:
  template <typename T>
  void CopyTo(std::span<T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    ok_ = ok_ && values.size_bytes() <= rest_.size();
    if (!ok_ || values.empty()) return;
    std::memcpy(values.data(), rest_.data(), values.size_bytes());
    rest_.remove_prefix(values.size_bytes());
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_WIRE_H_
