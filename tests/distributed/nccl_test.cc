// Runs where there is a GPU: bazel test --config=nccl //tests/distributed:nccl_test.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "medfusion/distributed/backend.h"
#include "medfusion/distributed/process_group.h"
#include "medfusion/distributed/setup.h"
#include "tests/testing/ranks.h"

namespace medfusion {
namespace {

TEST(NcclTest, AutoChoosesNcclWhereEveryRankHasAGpu) {
  EXPECT_EQ(ChooseBackend("auto", static_cast<int>(torch::cuda::device_count())).value(), "nccl");
  EXPECT_EQ(ChooseBackend("auto", 1000).value(), "gloo");
}

TEST(NcclTest, CollectivesOfAllGpusEqualTheirDefinition) {
  const int world_size = static_cast<int>(torch::cuda::device_count());
  ASSERT_GT(world_size, 0);
  testing::RunRanksOn("nccl", world_size, [](ProcessGroup& group) {
    const at::TensorOptions on_gpu = at::TensorOptions(at::kFloat).device(group.device());
    at::Tensor sum = at::full({1000}, group.rank() + 1, on_gpu);
    group.AllReduce(sum, ReduceOp::kAverage)->Wait();
    EXPECT_EQ(sum[999].item<float>(), (group.size() + 1) / 2.0f);
    at::Tensor all = at::empty({group.size()}, on_gpu);
    group.AllGather(all, at::full({1}, group.rank(), on_gpu))->Wait();
    EXPECT_TRUE(at::equal(all, at::arange(group.size(), on_gpu)));
    at::Tensor part = at::empty({2}, on_gpu);
    group.ReduceScatter(part, at::ones({2 * group.size()}, on_gpu))->Wait();
    EXPECT_EQ(part[1].item<float>(), group.size());
    EXPECT_EQ(group.AllGatherBytes(std::string(group.rank(), 'x')).back().size(),
              static_cast<size_t>(group.size() - 1));
    group.Barrier();
  });
}

}  // namespace
}  // namespace medfusion
