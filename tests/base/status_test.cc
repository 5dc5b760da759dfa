#include "medfusion/base/status.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace medfusion {
namespace {

TEST(StatusTest, AnExceptionLosesItsBacktraceAndKeepsItsText) {
  const absl::Status status = CatchAsStatus(
      [] { throw std::runtime_error("shape is [3]\nException raised from f at g.cpp:1"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "shape is [3]");
}

TEST(StatusTest, AStatusSurvivesBeingThrown) {
  const absl::Status lost = absl::DeadlineExceededError("rank 2 is missing");
  EXPECT_EQ(CatchAsStatus([&] { ThrowIfError(lost); }), lost);
  EXPECT_TRUE(CatchAsStatus([] { ThrowIfError(absl::OkStatus()); }).ok());
}

TEST(StatusTest, AnnotateKeepsTheCode) {
  const absl::Status status = Annotate(absl::NotFoundError("no such file"), "reading data.csv");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "reading data.csv: no such file");
}

absl::StatusOr<int> Half(int n) {
  if (n % 2 != 0) return absl::InvalidArgumentError("odd");
  return n / 2;
}

absl::StatusOr<int> Quarter(int n) {
  MEDFUSION_ASSIGN_OR_RETURN(const int half, Half(n));
  MEDFUSION_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

TEST(StatusTest, MacrosPassErrorsOn) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
}

}  // namespace
}  // namespace medfusion
