#include "medfusion/data/split.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>

#include "medfusion/base/status.h"
#include "medfusion/data/shuffle.h"

namespace medfusion {
namespace {

constexpr size_t kParts = 3;
constexpr std::array<const char*, kParts> kNames = {"train", "validation", "test"};

absl::Status CheckFractions(const std::array<double, kParts>& fractions) {
  double sum = 0;
  for (size_t part = 0; part < kParts; ++part) {
    if (!(fractions[part] >= 0) || !std::isfinite(fractions[part])) {
      return absl::InvalidArgumentError(absl::StrCat("split: the ", kNames[part], " fraction is ",
                                                     fractions[part], "; expected 0 to 1"));
    }
    sum += fractions[part];
  }
  if (std::abs(sum - 1) <= 1e-6) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("split: the fractions ", fractions[0], ", ",
                                                 fractions[1], " and ", fractions[2], " sum to ",
                                                 sum, "; they must sum to 1"));
}

std::array<size_t, kParts> LargestRemainder(size_t count,
                                            const std::array<double, kParts>& fractions) {
  std::array<size_t, kParts> sizes;
  std::array<double, kParts> remainders;
  size_t left = count;
  for (size_t part = 0; part < kParts; ++part) {
    const double exact = static_cast<double>(count) * fractions[part];
    // 20 * 0.15 is 3 to a reader, and less than 3 in binary.
    sizes[part] = std::min(left, static_cast<size_t>(std::floor(exact + 1e-9)));
    remainders[part] = exact - static_cast<double>(sizes[part]);
    // The same 1e-9 makes equal remainders equal, so that the earlier part wins.
    remainders[part] = std::round(remainders[part] * 1e9);
    left -= sizes[part];
  }
  for (; left > 0; --left) {
    const size_t part = std::max_element(remainders.begin(), remainders.end()) - remainders.begin();
    ++sizes[part];
    remainders[part] -= 1e9;
  }
  return sizes;
}

}  // namespace

absl::StatusOr<Split> StratifiedSplit(std::span<const int64_t> labels,
                                      const SplitFractions& split_fractions, uint64_t seed) {
  const std::array<double, kParts> fractions = {split_fractions.train, split_fractions.validation,
                                                split_fractions.test};
  MEDFUSION_RETURN_IF_ERROR(CheckFractions(fractions));
  if (labels.empty()) return absl::InvalidArgumentError("split: there are no samples");
  std::map<int64_t, std::vector<size_t>> classes;
  for (size_t i = 0; i < labels.size(); ++i) classes[labels[i]].push_back(i);

  std::mt19937_64 generator(seed);
  std::array<std::vector<size_t>, kParts> parts;
  for (auto& [label, members] : classes) {
    Shuffle(members, generator);
    const std::array<size_t, kParts> sizes = LargestRemainder(members.size(), fractions);
    auto next = members.begin();
    for (size_t part = 0; part < kParts; ++part) {
      if (fractions[part] > 0 && sizes[part] == 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "split: class ", label, " has ", members.size(), " sample(s), so none for the ",
            kNames[part], " part (fraction ", fractions[part],
            "); add samples, join classes, or set the fraction to 0"));
      }
      parts[part].insert(parts[part].end(), next, next + static_cast<ptrdiff_t>(sizes[part]));
      next += static_cast<ptrdiff_t>(sizes[part]);
    }
  }
  for (auto& part : parts) std::sort(part.begin(), part.end());
  return Split{std::move(parts[0]), std::move(parts[1]), std::move(parts[2])};
}

}  // namespace medfusion
