#include "medfusion/metrics/gather_messages.h"

#include <gtest/gtest.h>

#include "medfusion/distributed/process_group.h"
#include "tests/testing/ranks.h"

namespace medfusion {
namespace {

using ::medfusion::testing::RunRanks;

std::string MessageOf(int rank, int64_t length) {
  return std::string(static_cast<size_t>(length), static_cast<char>('a' + rank));
}

// Every rank sends lengths[rank] bytes; returns the collectives that rank 0 took.
int64_t Gather(const std::vector<int64_t>& lengths) {
  int64_t collectives = 0;
  RunRanks(static_cast<int>(lengths.size()), [&](ProcessGroup& group) {
    const int64_t before = group.traffic().collectives;
    const auto messages = GatherMessages(&group, MessageOf(group.rank(), lengths[group.rank()]));
    if (group.rank() == 0) collectives = group.traffic().collectives - before;
    EXPECT_EQ(messages.size(), lengths.size());
    for (size_t rank = 0; rank < messages.size(); ++rank) {
      EXPECT_EQ(messages[rank], MessageOf(static_cast<int>(rank), lengths[rank]));
    }
  });
  return collectives;
}

TEST(GatherMessagesTest, ShortMessagesTakeOneCollective) {
  EXPECT_EQ(Gather({0, 0}), 1);
  EXPECT_EQ(Gather({5, 0, kShortMessageBytes, 1}), 1);
}

TEST(GatherMessagesTest, OneLongMessageTakesAllRanksThroughASecond) {
  EXPECT_EQ(Gather({5, kShortMessageBytes + 1, 0}), 2);
  EXPECT_EQ(Gather({100000, kShortMessageBytes, 7 * kShortMessageBytes, 3}), 2);
}

TEST(GatherMessagesTest, AloneNothingIsSent) {
  EXPECT_EQ(Gather({100000}), 0);
  EXPECT_EQ(GatherMessages(nullptr, "alone"), std::vector<std::string>{"alone"});
}

}  // namespace
}  // namespace medfusion
