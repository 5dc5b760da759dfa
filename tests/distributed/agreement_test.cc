#include "medfusion/distributed/agreement.h"

#include <gtest/gtest.h>

#include "tests/testing/ranks.h"

namespace medfusion {
namespace {

using ::medfusion::testing::RunRanks;

TEST(AgreementTest, OkEverywhereIsOk) {
  RunRanks(3,
           [](ProcessGroup& group) { EXPECT_TRUE(AgreeOnStatus(group, absl::OkStatus()).ok()); });
}

TEST(AgreementTest, OneRanksErrorIsEverybodys) {
  RunRanks(3, [](ProcessGroup& group) {
    const absl::Status local =
        group.rank() == 1 ? absl::NotFoundError("data.csv is missing") : absl::OkStatus();
    const absl::Status shared = AgreeOnStatus(group, local);
    EXPECT_EQ(shared.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(shared.message(), "rank 1: data.csv is missing");
  });
}

TEST(AgreementTest, EqualErrorsAreJoined) {
  RunRanks(4, [](ProcessGroup& group) {
    const absl::Status shared = AgreeOnStatus(
        group, group.rank() == 3 ? absl::DataLossError("bad byte") : absl::NotFoundError("gone"));
    EXPECT_EQ(shared.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(shared.message(), "ranks 0-2: gone; rank 3: bad byte");
  });
}

TEST(AgreementTest, AnyAndAllCountEveryRank) {
  RunRanks(3, [](ProcessGroup& group) {
    EXPECT_TRUE(AnyRank(group, group.rank() == 2));
    EXPECT_FALSE(AnyRank(group, false));
    EXPECT_FALSE(AllRanks(group, group.rank() == 2));
    EXPECT_TRUE(AllRanks(group, true));
  });
}

}  // namespace
}  // namespace medfusion
