#include "medfusion/metrics/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace medfusion {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Sum(const std::vector<double>& terms) {
  ExactSum sum;
  for (const double term : terms) sum.Add(term);
  return sum.Round();
}

TEST(ExactSumTest, KeepsWhatRoundingWouldLose) {
  EXPECT_EQ(Sum({}), 0.0);
  EXPECT_EQ(Sum(std::vector<double>(10, 0.1)), 1.0);  // 0.9999999999999999 added one by one
  EXPECT_EQ(Sum({1e16, 1.0, -1e16}), 1.0);
  EXPECT_EQ(Sum({1e300, 1e-300, -1e300}), 1e-300);
}

TEST(ExactSumTest, TiesGoToEvenUnlessSomethingBelowDecides) {
  const double big = 9007199254740992.0;  // 2^53: the next double is 2 further
  EXPECT_EQ(Sum({big, 1.0}), big);
  EXPECT_EQ(Sum({big, 1.0, 1e-30}), big + 2.0);
  EXPECT_EQ(Sum({big + 2.0, 1.0}), big + 4.0);
  EXPECT_EQ(Sum({big + 2.0, 1.0, -1e-30}), big + 2.0);
  EXPECT_EQ(Sum({-big, -1.0, -1e-30}), -big - 2.0);
}

TEST(ExactSumTest, EqualsIntegerArithmeticWhateverTheOrder) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    // Terms m * 2^e with |m| < 2^53 and e < 60: 128 bits hold their sum, and round it correctly to
    // a double.
    __int128 expected = 0;
    std::vector<double> terms;
    for (int i = 0; i < 40; ++i) {
      const auto mantissa = static_cast<int64_t>(random() >> 11) * (random() % 2 == 0 ? 1 : -1);
      const int exponent = static_cast<int>(random() % 60);
      expected += static_cast<__int128>(mantissa) * (static_cast<__int128>(1) << exponent);
      terms.push_back(std::ldexp(static_cast<double>(mantissa), exponent));
    }
    EXPECT_EQ(Sum(terms), static_cast<double>(expected));
    std::shuffle(terms.begin(), terms.end(), random);
    EXPECT_EQ(Sum(terms), static_cast<double>(expected));
    ExactSum left;
    ExactSum right;
    for (size_t i = 0; i < terms.size(); ++i) (i % 3 == 0 ? left : right).Add(terms[i]);
    left.Add(right);
    EXPECT_EQ(left.Round(), static_cast<double>(expected));
  }
}

TEST(ExactSumTest, IntegersCountWithAllTheirBits) {
  ExactSum sum;
  for (const int64_t term :
       {std::numeric_limits<int64_t>::max(), int64_t{-7}, std::numeric_limits<int64_t>::min()}) {
    sum.AddInteger(term);
  }
  EXPECT_EQ(sum.Round(), -8.0);  // (2^63 - 1) - 7 - 2^63
}

TEST(ExactSumTest, ProductsAreNotRounded) {
  ExactSum sum;
  const double x = 1.0 + std::ldexp(1.0, -30);
  sum.AddProduct(x, x);  // 1 + 2^-29 + 2^-60, of which a double keeps the first two
  sum.Add(-1.0 - std::ldexp(1.0, -29));
  EXPECT_EQ(sum.Round(), std::ldexp(1.0, -60));
}

TEST(ExactSumTest, InfinityAndNanAddAsUsual) {
  EXPECT_EQ(Sum({1.0, kInfinity, -5.0}), kInfinity);
  EXPECT_EQ(Sum({-kInfinity, 1e308}), -kInfinity);
  EXPECT_TRUE(std::isnan(Sum({kInfinity, -kInfinity})));
  EXPECT_TRUE(std::isnan(Sum({std::nan(""), 1.0})));
  EXPECT_EQ(Sum({1.7e308, 1.7e308, 1.0}), kInfinity);
}

TEST(ExactSumTest, TermsRestoreTheSum) {
  ExactSum sum;
  for (const double term : {1e300, 1.0, 1e-300, -3e100}) sum.Add(term);
  ExactSum restored;
  for (const double term : sum.Terms()) restored.Add(term);
  restored.Add(-1e300);
  restored.Add(3e100);
  EXPECT_EQ(restored.Round(), 1.0);
  sum.Add(std::nan(""));
  ExactSum poisoned;
  for (const double term : sum.Terms()) poisoned.Add(term);
  EXPECT_TRUE(std::isnan(poisoned.Round()));
}

TEST(ExactSumTest, TheQuotientOfEqualTermsIsTheTerm) {
  ExactSum sum;
  ExactSum count;
  for (int n = 1; n <= 1000; ++n) {
    sum.Add(0.1);
    count.AddInteger(1);
    EXPECT_EQ(Quotient(sum, count), 0.1) << n;
  }
  EXPECT_TRUE(std::isnan(Quotient(ExactSum(), ExactSum())));
}

}  // namespace
}  // namespace medfusion
