#include "medfusion/distributed/device_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/ranks.h"

namespace medfusion {
namespace {

using ::medfusion::testing::RunRanks;
using ::testing::HasSubstr;

std::shared_ptr<ProcessGroup> Shared(ProcessGroup& group) { return group.shared_from_this(); }

TEST(DeviceMeshTest, RowsShardAndColumnsReplicate) {
  RunRanks(4, [](ProcessGroup& world) {
    const DeviceMesh mesh = DeviceMesh::Create(Shared(world), 2, 2).value();
    EXPECT_EQ(mesh.shard()->size(), 2);
    EXPECT_EQ(mesh.shard()->rank(), world.rank() % 2);
    EXPECT_EQ(mesh.shard()->GlobalRank(0), world.rank() / 2 * 2);
    EXPECT_EQ(mesh.replicate()->rank(), world.rank() / 2);
    EXPECT_EQ(mesh.replicate()->GlobalRank(1), world.rank() % 2 + 2);
    mesh.shard()->Barrier();
    mesh.replicate()->Barrier();
  });
}

TEST(DeviceMeshTest, ByDefaultAHostIsARow) {
  RunRanks(3, [](ProcessGroup& world) {
    const DeviceMesh mesh = DeviceMesh::Create(Shared(world), 0, 0).value();
    EXPECT_EQ(mesh.shard()->size(), 3);
    EXPECT_EQ(mesh.replicate()->size(), 1);
  });
}

TEST(DeviceMeshTest, AMeshMustHoldTheWholeWorld) {
  RunRanks(3, [](ProcessGroup& world) {
    const auto mesh = DeviceMesh::Create(Shared(world), 2, 2);
    EXPECT_EQ(mesh.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(mesh.status().message()),
                HasSubstr("a mesh of 2 x 2 (replicate x shard) does not have 3 ranks"));
  });
}

}  // namespace
}  // namespace medfusion
