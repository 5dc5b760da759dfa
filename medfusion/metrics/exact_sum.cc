#include "medfusion/metrics/exact_sum.h"

#include <cmath>
#include <limits>
#include <utility>

namespace medfusion {
namespace {

struct Sum {
  double rounded;
  double error;  // rounded + error is exact
};

// Dekker's fast two-sum.
Sum TwoSum(double a, double b) {
  if (std::abs(a) < std::abs(b)) std::swap(a, b);
  const double rounded = a + b;
  return {rounded, b - (rounded - a)};
}

}  // namespace

void ExactSum::Add(double term) {
  if (!std::isfinite(term)) {
    special_ += term;
    return;
  }
  size_t kept = 0;
  for (const double partial : partials_) {
    const Sum sum = TwoSum(term, partial);
    if (sum.error != 0.0) partials_[kept++] = sum.error;
    term = sum.rounded;
    if (!std::isfinite(term)) break;
  }
  if (!std::isfinite(term)) {
    special_ += term;
    partials_.clear();
    return;
  }
  partials_.resize(kept);
  if (term != 0.0) partials_.push_back(term);
}

void ExactSum::AddInteger(int64_t term) {
  const int64_t low = term & 0xFFFFFFFF;
  Add(static_cast<double>(term - low));  // a multiple of 2^32 below 2^63 fits in 53 bits
  Add(static_cast<double>(low));
}

void ExactSum::AddProduct(double a, double b) {
  const double rounded = a * b;
  Add(rounded);
  if (std::isfinite(rounded)) Add(std::fma(a, b, -rounded));
}

void ExactSum::Add(const ExactSum& other) {
  for (const double term : other.Terms()) Add(term);
}

double ExactSum::Round() const {
  if (std::isnan(special_)) return std::numeric_limits<double>::quiet_NaN();
  if (special_ != 0.0) return special_;
  size_t left = partials_.size();
  if (left == 0) return 0.0;
  Sum sum = {partials_[--left], 0.0};
  while (left > 0 && sum.error == 0.0) sum = TwoSum(sum.rounded, partials_[--left]);
  // Where the error is exactly half a unit, the tie was broken without regard to what is below it.
  if (left > 0 && sum.error != 0.0 &&
      std::signbit(sum.error) == std::signbit(partials_[left - 1])) {
    const double doubled = 2.0 * sum.error;
    const double further = sum.rounded + doubled;
    if (further - sum.rounded == doubled) return further;
  }
  return sum.rounded;
}

std::vector<double> ExactSum::Terms() const {
  std::vector<double> terms = partials_;
  if (special_ != 0.0) terms.push_back(special_);
  return terms;
}

double Quotient(const ExactSum& numerator, const ExactSum& denominator) {
  const double divisor = denominator.Round();
  const double first = numerator.Round() / divisor;
  if (std::isnan(first)) return std::numeric_limits<double>::quiet_NaN();
  if (!std::isfinite(first) || !std::isfinite(divisor)) return first;
  ExactSum rest = numerator;
  for (const double term : denominator.Terms()) rest.AddProduct(-first, term);
  return first + rest.Round() / divisor;
}

}  // namespace medfusion
