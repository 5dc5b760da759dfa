#include "medfusion/metrics/gather_messages.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

#include "medfusion/distributed/process_group.h"

namespace medfusion {
namespace {

// Every rank's `part`, `width` bytes each, side by side on the CPU. Collective.
at::Tensor GatherBytes(ProcessGroup& group, std::string_view part, int64_t width) {
  const at::Tensor local = at::zeros({width}, at::kByte);
  if (!part.empty()) std::memcpy(local.data_ptr<uint8_t>(), part.data(), part.size());
  const at::Tensor input = local.to(group.device_type());
  const at::Tensor output = at::empty({group.size() * width}, input.options());
  group.AllGather(output, input)->Wait();
  return output.to(at::kCPU);
}

std::string_view Part(const at::Tensor& gathered, int rank, int64_t width, int64_t length) {
  const auto* bytes = reinterpret_cast<const char*>(gathered.data_ptr<uint8_t>());
  return std::string_view(bytes + rank * width, static_cast<size_t>(length));
}

}  // namespace

std::vector<std::string> GatherMessages(ProcessGroup* group, std::string_view message) {
  if (group == nullptr || group->size() == 1) return {std::string(message)};
  const auto length = static_cast<int64_t>(message.size());
  constexpr int64_t kWidth = sizeof(length) + kShortMessageBytes;
  std::string first(sizeof(length), '\0');
  std::memcpy(first.data(), &length, sizeof(length));
  first += message.substr(0, kShortMessageBytes);
  const at::Tensor gathered = GatherBytes(*group, first, kWidth);

  std::vector<std::string> messages;
  std::vector<int64_t> rests;
  for (int rank = 0; rank < group->size(); ++rank) {
    int64_t full = 0;
    std::memcpy(&full, Part(gathered, rank, kWidth, sizeof(full)).data(), sizeof(full));
    const int64_t head = std::min(full, kShortMessageBytes);
    messages.emplace_back(Part(gathered, rank, kWidth, sizeof(full) + head).substr(sizeof(full)));
    rests.push_back(full - head);
  }
  const int64_t longest = *std::max_element(rests.begin(), rests.end());
  if (longest == 0) return messages;

  const std::string_view own_rest = message.substr(std::min(length, kShortMessageBytes));
  const at::Tensor gathered_rests = GatherBytes(*group, own_rest, longest);
  for (int rank = 0; rank < group->size(); ++rank) {
    messages[rank] += Part(gathered_rests, rank, longest, rests[rank]);
  }
  return messages;
}

}  // namespace medfusion
