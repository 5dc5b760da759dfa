#include "medfusion/distributed/process_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>
#include <vector>

#include "tests/testing/ranks.h"

namespace medfusion {
namespace {

using ::medfusion::testing::RunRanks;
using ::medfusion::testing::RunRanksThatMayFail;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ProcessGroupTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, ProcessGroupTest, ::testing::Values(1, 2, 3, 4));

at::Tensor RankValues(int rank, int64_t numel, at::ScalarType dtype) {
  return (at::arange(numel, at::kLong) % 7 + rank + 1).to(dtype);
}

TEST_P(ProcessGroupTest, AllReduceSumsEveryDtype) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    for (at::ScalarType dtype :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt}) {
      for (int64_t numel : {0, 1, 5, 1000}) {
        at::Tensor expected = at::zeros({numel}, dtype);
        for (int r = 0; r < group.size(); ++r) expected += RankValues(r, numel, dtype);
        at::Tensor tensor = RankValues(group.rank(), numel, dtype);
        group.AllReduce(tensor)->Wait();
        EXPECT_TRUE(at::equal(tensor, expected)) << dtype << " " << numel;
      }
    }
  });
}

TEST_P(ProcessGroupTest, AllReduceKnowsEveryReduction) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    const int n = group.size();
    const auto reduce = [&](ReduceOp op) {
      at::Tensor tensor = at::full({3}, group.rank() + 1.0, at::kDouble);
      group.AllReduce(tensor, op)->Wait();
      return tensor[2].item<double>();
    };
    EXPECT_EQ(reduce(ReduceOp::kSum), n * (n + 1) / 2.0);
    EXPECT_EQ(reduce(ReduceOp::kAverage), (n + 1) / 2.0);
    EXPECT_EQ(reduce(ReduceOp::kMin), 1.0);
    EXPECT_EQ(reduce(ReduceOp::kMax), n);
    EXPECT_EQ(reduce(ReduceOp::kProduct), std::tgamma(n + 1.0));
  });
}

TEST_P(ProcessGroupTest, AllReduceGivesTheSameBitsOnEveryRankAndEveryTime) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    for (int64_t numel : {3, 1001, 100000}) {
      torch::manual_seed(group.rank());
      const at::Tensor mine = torch::randn({numel});
      at::Tensor first = mine.clone(), second = mine.clone();
      group.AllReduce(first)->Wait();
      group.AllReduce(second)->Wait();
      EXPECT_TRUE(at::equal(first, second));
      at::Tensor of_all = at::empty({group.size(), numel});
      group.AllGather(of_all, first)->Wait();
      for (int r = 0; r < group.size(); ++r) EXPECT_TRUE(at::equal(of_all[r], first)) << r;
    }
  });
}

TEST_P(ProcessGroupTest, AllGatherPutsRanksInOrder) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    at::Tensor output = at::empty({group.size(), 2, 3});
    group.AllGather(output, at::full({2, 3}, static_cast<float>(group.rank())))->Wait();
    for (int r = 0; r < group.size(); ++r) EXPECT_TRUE(output[r].eq(r).all().item<bool>());
  });
}

TEST_P(ProcessGroupTest, ReduceScatterEqualsAllReduceAndSlice) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    torch::manual_seed(group.rank());
    const int64_t numel = 37;
    for (ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      at::Tensor input = torch::randn({group.size() * numel}, at::kDouble);
      at::Tensor whole = input.clone();
      at::Tensor output = at::empty({numel}, at::kDouble);
      group.ReduceScatter(output, input, op)->Wait();
      group.AllReduce(whole, op)->Wait();
      EXPECT_TRUE(at::allclose(output, whole.narrow(0, group.rank() * numel, numel), 1e-14, 1e-14))
          << ReduceOpName(op);
    }
  });
}

TEST_P(ProcessGroupTest, ReduceScatterSumsLowPrecisionInFloat32) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    // 2048 + 1 is not a float16, so a sum in float16 would lose the ones.
    at::Tensor input = at::full({group.size() * 4}, group.rank() == 0 ? 2048.0 : 1.0, at::kHalf);
    at::Tensor output = at::empty({4}, at::kHalf);
    group.ReduceScatter(output, input)->Wait();
    const at::Tensor expected = at::full({4}, 2048.0 + group.size() - 1, at::kFloat).to(at::kHalf);
    EXPECT_TRUE(at::equal(output, expected)) << output;
  });
}

TEST_P(ProcessGroupTest, BroadcastGivesTheRootsTensor) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    for (int root = 0; root < group.size(); ++root) {
      at::Tensor tensor = at::full({5}, static_cast<int64_t>(group.rank() * 10), at::kLong);
      group.Broadcast(tensor, root)->Wait();
      EXPECT_TRUE(tensor.eq(root * 10).all().item<bool>());
    }
  });
}

TEST_P(ProcessGroupTest, AllToAllExchangesEqualAndUnequalParts) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    const int n = group.size();
    at::Tensor output = at::empty({n * 2}, at::kLong);
    group.AllToAll(output, at::arange(n * 2, at::kLong) + 100 * group.rank())->Wait();
    for (int r = 0; r < n; ++r) {
      EXPECT_EQ(output[r * 2].item<int64_t>(), 100 * r + 2 * group.rank());
    }
    // Rank r sends i + 1 elements to rank i.
    std::vector<int64_t> input_sizes;
    for (int i = 0; i < n; ++i) input_sizes.push_back(i + 1);
    const std::vector<int64_t> output_sizes(n, group.rank() + 1);
    output = at::empty({n * (group.rank() + 1)}, at::kLong);
    group
        .AllToAll(output, at::full({n * (n + 1) / 2}, group.rank(), at::kLong), output_sizes,
                  input_sizes)
        ->Wait();
    for (int r = 0; r < n; ++r) {
      EXPECT_EQ(output[r * (group.rank() + 1)].item<int64_t>(), r);
    }
  });
}

TEST_P(ProcessGroupTest, AllGatherBytesTakesAnyLengths) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    const auto all = group.AllGatherBytes(std::string(group.rank(), 'x'));
    for (int r = 0; r < group.size(); ++r) EXPECT_EQ(all[r], std::string(r, 'x'));
  });
}

TEST_P(ProcessGroupTest, ManyCollectivesInFlightKeepTheirOrder) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    std::vector<at::Tensor> tensors;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 50; ++i) {
      tensors.push_back(at::full({i + 1}, i + group.rank(), at::kLong));
      works.push_back(group.AllReduce(tensors.back()));
    }
    for (auto& work : works) work->Wait();
    const int n = group.size();
    for (int i = 0; i < 50; ++i) EXPECT_EQ(tensors[i][i].item<int64_t>(), n * i + n * (n - 1) / 2);
  });
}

TEST(ProcessGroupTest, SubgroupsHaveTheirOwnRanksAndCollectives) {
  RunRanks(4, [](ProcessGroup& group) {
    auto parity = group.Split(group.rank() % 2);
    EXPECT_EQ(parity->size(), 2);
    EXPECT_EQ(parity->rank(), group.rank() / 2);
    EXPECT_EQ(parity->GlobalRank(1), group.rank() % 2 + 2);
    at::Tensor sum = at::full({1}, group.rank(), at::kLong);
    parity->AllReduce(sum)->Wait();
    EXPECT_EQ(sum.item<int64_t>(), group.rank() % 2 == 0 ? 2 : 4);
    const std::vector<int> members = {1, 2, 3};
    auto rest = group.NewGroup(members);
    EXPECT_EQ(rest == nullptr, group.rank() == 0);
    if (rest != nullptr) rest->Barrier();
    EXPECT_EQ(parity->options().timeout, group.options().timeout);
  });
}

TEST(ProcessGroupTest, ARankThatLeavesAtOnceDoesNotBreakTheFormingOfTheOthers) {
  // Many at once, so that some rank falls behind between being connected and seeing it.
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([] {
      for (int k = 0; k < 10; ++k) RunRanks(4, [](ProcessGroup&) {});
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ProcessGroupTest, AGroupOfOneNeedsNoNetwork) {
  RunRanks(1, [](ProcessGroup& group) {
    group.Barrier();
    EXPECT_EQ(group.traffic().bytes_sent, 0);
    EXPECT_FALSE(group.c10d_backend());
  });
}

TEST(ProcessGroupTest, MisuseIsToldBeforeAnythingIsSent) {
  RunRanks(2, [](ProcessGroup& group) {
    const auto message = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const std::invalid_argument& error) {
        return std::string(error.what());
      }
      return std::string("nothing thrown");
    };
    EXPECT_THAT(message([&] {
                  group.AllReduce(at::zeros({2, 3}).t());
                }),
                HasSubstr("tensor (Float [3, 2]) is not dense and contiguous"));
    EXPECT_THAT(message([&] { group.AllReduce(at::zeros({2}, at::kLong), ReduceOp::kAverage); }),
                HasSubstr("integers cannot be averaged"));
    EXPECT_THAT(message([&] { group.AllGather(at::zeros({3}), at::zeros({2})); }),
                HasSubstr("output is Float [3], expected 2 times the input's 2 elements"));
    EXPECT_THAT(message([&] { group.ReduceScatter(at::zeros({2}), at::zeros({5})); }),
                HasSubstr("input is Float [5]"));
    EXPECT_THAT(message([&] { group.Broadcast(at::zeros({1}), 2); }), HasSubstr("expected 0..1"));
    EXPECT_THAT(message([&] { group.AllReduce(at::Tensor()); }), HasSubstr("undefined"));
    EXPECT_THAT(message([&] { group.AllToAll(at::zeros({3}), at::zeros({3})); }),
                HasSubstr("does not divide into 2 parts"));
    EXPECT_THAT(message([&] { group.NewGroup(std::vector<int>{1, 0}); }), HasSubstr("[1, 0]"));
    group.Barrier();  // the group still works
  });
}

TEST(ProcessGroupTest, TheGlooReduceScatterSendsEachPartOnce) {
  RunRanks(4, [](ProcessGroup& group) {
    const int64_t before = group.traffic().bytes_sent;
    at::Tensor input = at::ones({4000}), output = at::empty({1000});
    group.ReduceScatter(output, input)->Wait();
    EXPECT_EQ(group.traffic().bytes_sent - before, 3 * 1000 * 4);
  });
}

GroupOptions ShortTimeout(int milliseconds) {
  GroupOptions options;
  options.timeout = std::chrono::milliseconds(milliseconds);
  return options;
}

TEST(ProcessGroupTest, AMissingCallEndsAtTheTimeoutAndNamesTheRank) {
  const auto errors = RunRanksThatMayFail(
      3,
      [](ProcessGroup& group) {
        if (group.rank() != 2) group.Barrier();
      },
      ShortTimeout(700));
  EXPECT_THAT(errors[0],
              HasSubstr("AllReduce(sum) of Int [1], on group 'test' (rank 0 of 3) failed"));
  EXPECT_THAT(errors[0], HasSubstr("no sign of life from rank 2"));
  EXPECT_THAT(errors[1], HasSubstr("no sign of life from rank 2"));
  EXPECT_EQ(errors[2], "");
}

TEST(ProcessGroupTest, ASubgroupsWaitEndsAtTheTimeoutToo) {
  const auto errors = RunRanksThatMayFail(
      3,
      [](ProcessGroup& group) {
        auto pair = group.Split(group.rank() == 2 ? 1 : 0);
        if (group.rank() == 0) pair->Barrier();
      },
      ShortTimeout(700));
  EXPECT_THAT(errors[0], HasSubstr("no sign of life from rank 1"));
  EXPECT_EQ(errors[1], "");
}

TEST(ProcessGroupTest, ASubgroupThatIsNotCompleteEndsAtTheTimeout) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = RunRanksThatMayFail(
      3,
      [](ProcessGroup& group) {
        const std::vector<int> all = {0, 1, 2};
        if (group.rank() != 1) group.NewGroup(all);
      },
      ShortTimeout(1000));
  for (int rank : {0, 2}) {
    EXPECT_THAT(errors[rank], HasSubstr("forming the group on group 'test/0:0,1,2'"));
    EXPECT_THAT(errors[rank], HasSubstr("no sign of life from rank 1"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

TEST(ProcessGroupTest, AFailedGroupRefusesFurtherCalls) {
  const auto errors = RunRanksThatMayFail(
      2,
      [](ProcessGroup& group) {
        if (group.rank() == 1) return;
        EXPECT_THROW(group.Barrier(), CollectiveError);
        EXPECT_TRUE(group.failed());
        group.Barrier();
      },
      ShortTimeout(700));
  EXPECT_THAT(errors[0], HasSubstr("is unusable since"));
}

TEST(ProcessGroupTest, CheckedRanksThatDisagreeSayBothCalls) {
  GroupOptions options = ShortTimeout(20000);
  options.check_collectives = true;
  const auto start = std::chrono::steady_clock::now();
  const auto errors = RunRanksThatMayFail(
      2,
      [](ProcessGroup& group) {
        group.Barrier();
        if (group.rank() == 0) {
          group.AllReduce(at::zeros({4}))->Wait();
        } else {
          group.Broadcast(at::zeros({4}), 0)->Wait();
        }
      },
      options);
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("ranks disagree about collective #1 of group 'test'"));
    EXPECT_THAT(error, HasSubstr("AllReduce(sum) of Float [4]"));
    EXPECT_THAT(error, HasSubstr("Broadcast from rank 0 of Float [4]"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, options.timeout);
}

TEST(ProcessGroupTest, CheckedRanksThatAgreeRunAsUsual) {
  GroupOptions options = ShortTimeout(20000);
  options.check_collectives = true;
  RunRanks(
      3,
      [](ProcessGroup& group) {
        for (int i = 0; i < 20; ++i) group.Barrier();
        group.AllGatherBytes(std::string(group.rank() * 3, 'a'));
        EXPECT_EQ(group.Split(0)->size(), 3);
      },
      options);
}

TEST(ProcessGroupTest, ACheckedRankThatNeverCallsIsNamed) {
  GroupOptions options = ShortTimeout(500);
  options.check_collectives = true;
  const auto errors = RunRanksThatMayFail(
      2,
      [](ProcessGroup& group) {
        if (group.rank() == 0) group.Barrier();
      },
      options);
  EXPECT_THAT(errors[0], HasSubstr("for rank 1, which did not call it"));
}

}  // namespace
}  // namespace medfusion
