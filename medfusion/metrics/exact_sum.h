// Sums of doubles without rounding, so that the order of the terms, and with it the ranks that they
// came from, cannot be seen in the result.
#ifndef MEDFUSION_METRICS_EXACT_SUM_H_
#define MEDFUSION_METRICS_EXACT_SUM_H_

#include <cstdint>
#include <span>
#include <vector>

namespace medfusion {

// The exact sum of what was added, rounded once when it is read. Source: J. R. Shewchuk, "Adaptive
// Precision Floating-Point Arithmetic", 1997, grow-expansion; Python's math.fsum gives the same
// numbers. Infinities and NaN count as IEEE 754 adds them. A running sum beyond the range of double
// is infinite and stays so. Not thread safe, not collective.
class ExactSum {
 public:
  void Add(double term);
  // Exact for all 64 bits, where a double holds 53.
  void AddInteger(int64_t term);
  // a * b without rounding, unless the product is below 2^-969 and loses bits to underflow.
  void AddProduct(double a, double b);
  void Add(const ExactSum& other);

  // The nearest double to the sum, ties to even; 0.0 for no terms. NaN always has the same bits.
  double Round() const;

  // Doubles whose exact sum is this sum, smallest first: usually one to three, 40 at most. Adding
  // them all to an empty ExactSum restores it.
  std::vector<double> Terms() const;

 private:
  std::vector<double> partials_;  // do not overlap, ascending in magnitude, none is zero
  double special_ = 0.0;          // the sum of what was not finite
};

// numerator / denominator. The quotient of equal terms is that term, to the last bit, which one
// division of two rounded sums does not give. NaN or infinite for a denominator of zero.
double Quotient(const ExactSum& numerator, const ExactSum& denominator);

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_EXACT_SUM_H_
