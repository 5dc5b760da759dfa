// The collectives that go directly from rank to rank: sizes around their chunks, every dtype and
// reduction, tensors that overlap, order, background completion, failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <numeric>
#include <random>
#include <thread>

#include "medfusion/distributed/process_group.h"
#include "tests/testing/ranks.h"

namespace medfusion {
namespace {

using ::medfusion::testing::RunRanks;
using ::medfusion::testing::RunRanksThatMayFail;
using ::testing::HasSubstr;

constexpr int64_t kChunkBytes = 1 << 20;
constexpr int64_t kChunkFloats = kChunkBytes / 4;
constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                                      at::kInt,   at::kShort,  at::kChar, at::kByte};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};

class DirectCollectivesTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, DirectCollectivesTest, ::testing::Values(1, 2, 3, 4));

// Each rank can make every rank's values.
at::Tensor Values(int rank, int64_t numel, at::ScalarType dtype) {
  if (!at::isFloatingType(dtype)) return (at::arange(numel, at::kLong) % 3 + rank).to(dtype);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(100 + rank);
  return at::randn({numel}, generator, at::kFloat).to(dtype);
}

// In rank order, in float32 where the dtype is lower.
at::Tensor Reference(int ranks, int64_t numel, at::ScalarType dtype, ReduceOp op) {
  const bool low = dtype == at::kHalf || dtype == at::kBFloat16;
  const at::ScalarType wide = low ? at::kFloat : dtype;
  at::Tensor sum = Values(0, numel, dtype).to(wide, /*non_blocking=*/false, /*copy=*/true);
  for (int r = 1; r < ranks; ++r) {
    const at::Tensor next = Values(r, numel, dtype).to(wide);
    if (op == ReduceOp::kSum || op == ReduceOp::kAverage) sum = sum + next;
    if (op == ReduceOp::kProduct) sum = sum * next;
    if (op == ReduceOp::kMin) sum = at::minimum(sum, next);
    if (op == ReduceOp::kMax) sum = at::maximum(sum, next);
  }
  if (op == ReduceOp::kAverage) sum = sum / ranks;
  return sum.to(dtype);
}

at::Tensor PartOf(const at::Tensor& whole, const ProcessGroup& group) {
  const int64_t numel = whole.numel() / group.size();
  return whole.narrow(0, group.rank() * numel, numel);
}

TEST_P(DirectCollectivesTest, AllGatherTakesEverySizeAndDtype) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kBool, at::kComplexDouble}) {
      for (int64_t numel : {0L, 1L, 7L, 4096L, 300001L}) {
        at::Tensor output = at::zeros({group.size() * numel}, dtype);
        group.AllGather(output, Values(group.rank(), numel, at::kFloat).to(dtype))->Wait();
        for (int r = 0; r < group.size(); ++r) {
          EXPECT_TRUE(
              at::equal(output.narrow(0, r * numel, numel), Values(r, numel, at::kFloat).to(dtype)))
              << dtype << " " << numel << " from " << r;
        }
      }
    }
  });
}

TEST_P(DirectCollectivesTest, AllGatherInPlaceFillsTheOthersParts) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    for (int64_t numel : {0L, 5L, 400000L}) {
      at::Tensor output = at::zeros({group.size() * numel});
      at::Tensor own = PartOf(output, group);
      own.copy_(Values(group.rank(), numel, at::kFloat));
      group.AllGather(output, own)->Wait();
      for (int r = 0; r < group.size(); ++r) {
        EXPECT_TRUE(at::equal(output.narrow(0, r * numel, numel), Values(r, numel, at::kFloat)));
      }
    }
  });
}

TEST_P(DirectCollectivesTest, ReduceScatterKnowsEveryDtypeAndReduction) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    const int64_t numel = 37;
    for (at::ScalarType dtype : kDtypes) {
      for (ReduceOp op : kOps) {
        if (op == ReduceOp::kAverage && !at::isFloatingType(dtype)) continue;
        at::Tensor output = at::zeros({numel}, dtype);
        group.ReduceScatter(output, Values(group.rank(), group.size() * numel, dtype), op)->Wait();
        const at::Tensor expected = Reference(group.size(), group.size() * numel, dtype, op);
        EXPECT_TRUE(at::equal(output, PartOf(expected, group))) << dtype << " " << ReduceOpName(op);
      }
    }
  });
}

TEST_P(DirectCollectivesTest, ReduceScatterKeepsItsOrderAroundChunkBorders) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const int64_t chunk = kChunkBytes / static_cast<int64_t>(c10::elementSize(dtype));
      std::vector<int64_t> sizes = {chunk + 1};
      if (dtype == at::kFloat) sizes = {0, 1, chunk - 1, chunk, chunk + 1, 3 * chunk + 5};
      for (int64_t numel : sizes) {
        at::Tensor output = at::zeros({numel}, dtype);
        at::Tensor input = Values(group.rank(), group.size() * numel, dtype);
        group.ReduceScatter(output, input, ReduceOp::kAverage)->Wait();
        const at::Tensor expected =
            Reference(group.size(), group.size() * numel, dtype, ReduceOp::kAverage);
        EXPECT_TRUE(at::equal(output, PartOf(expected, group))) << dtype << " " << numel;
      }
    }
  });
}

TEST_P(DirectCollectivesTest, ReduceScatterMayEndInItsOwnInput) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    for (int64_t numel : {3L, 2 * kChunkFloats + 3}) {
      at::Tensor input = Values(group.rank(), group.size() * numel, at::kFloat);
      at::Tensor own = PartOf(input, group);
      group.ReduceScatter(own, input)->Wait();
      const at::Tensor expected =
          Reference(group.size(), group.size() * numel, at::kFloat, ReduceOp::kSum);
      EXPECT_TRUE(at::equal(own, PartOf(expected, group))) << numel;
    }
  });
}

TEST_P(DirectCollectivesTest, AllReduceKnowsEveryDtypeAndReductionSmallAndLarge) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    for (at::ScalarType dtype : kDtypes) {
      for (ReduceOp op : kOps) {
        if (op == ReduceOp::kAverage && !at::isFloatingType(dtype)) continue;
        for (int64_t numel : {0L, 1L, 37L, 70001L}) {
          at::Tensor tensor = Values(group.rank(), numel, dtype);
          group.AllReduce(tensor, op)->Wait();
          EXPECT_TRUE(at::equal(tensor, Reference(group.size(), numel, dtype, op)))
              << dtype << " " << ReduceOpName(op) << " " << numel;
        }
      }
    }
  });
}

TEST_P(DirectCollectivesTest, AllReduceKeepsItsOrderAroundPartAndChunkBorders) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    const int64_t n = group.size();
    for (int64_t numel : {21845L, 21846L, 65536L, 65537L, n * kChunkFloats - 1, n * kChunkFloats,
                          n * kChunkFloats + 1, 3 * n * kChunkFloats + 5}) {
      at::Tensor tensor = Values(group.rank(), numel, at::kFloat);
      group.AllReduce(tensor, ReduceOp::kAverage)->Wait();
      EXPECT_TRUE(at::equal(tensor, Reference(n, numel, at::kFloat, ReduceOp::kAverage))) << numel;
    }
  });
}

TEST_P(DirectCollectivesTest, ManyOfAllKindsMayBeWaitedForInAnyOrder) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    const int64_t n = group.size();
    std::vector<WorkPtr> works;
    std::vector<std::function<void()>> checks;
    for (int i = 0; i < 12; ++i) {
      const int64_t numel = i % 3 == 0 ? 11 : i % 3 == 1 ? 20001 : kChunkFloats + i;
      const at::Tensor expected = Reference(n, n * numel, at::kFloat, ReduceOp::kSum);
      at::Tensor part = at::zeros({numel});
      works.push_back(group.ReduceScatter(part, Values(group.rank(), n * numel, at::kFloat)));
      checks.push_back([=, &group] { EXPECT_TRUE(at::equal(part, PartOf(expected, group))) << i; });
      at::Tensor whole = Values(group.rank(), n * numel, at::kFloat);
      works.push_back(group.AllReduce(whole));
      checks.push_back([=] { EXPECT_TRUE(at::equal(whole, expected)) << i; });
      at::Tensor all = at::zeros({n, numel});
      works.push_back(group.AllGather(all, Values(group.rank(), numel, at::kFloat)));
      checks.push_back([=] {
        for (int r = 0; r < n; ++r) {
          EXPECT_TRUE(at::equal(all[r], Values(r, numel, at::kFloat))) << i;
        }
      });
      at::Tensor rooted = at::full({numel}, group.rank());
      works.push_back(group.Broadcast(rooted, i % static_cast<int>(n)));
      checks.push_back([=] { EXPECT_TRUE(rooted.eq(i % n).all().item<bool>()) << i; });
    }
    // Every rank in an order of its own.
    std::vector<size_t> order(works.size());
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 generator(group.rank());
    std::shuffle(order.begin(), order.end(), generator);
    for (size_t i : order) works[i]->Wait();
    for (const auto& check : checks) check();
  });
}

TEST_P(DirectCollectivesTest, EveryKindCompletesWithoutWait) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    const int64_t n = group.size();
    for (int64_t numel : {5L, 2 * kChunkFloats}) {
      at::Tensor whole = Values(group.rank(), n * numel, at::kFloat);
      at::Tensor part = at::zeros({numel}), all = at::zeros({n * numel});
      std::vector<WorkPtr> works = {group.ReduceScatter(part, whole.clone()),
                                    group.AllReduce(whole),
                                    group.AllGather(all, Values(group.rank(), numel, at::kFloat))};
      const auto deadline = std::chrono::steady_clock::now() + group.options().timeout;
      for (WorkPtr& work : works) {
        while (!work->IsCompleted() && std::chrono::steady_clock::now() < deadline) {
          std::this_thread::yield();
        }
        ASSERT_TRUE(work->IsCompleted());
      }
      if (n > 1) {
        const at::Tensor expected = Reference(n, n * numel, at::kFloat, ReduceOp::kSum);
        EXPECT_TRUE(at::equal(whole, expected));
        EXPECT_TRUE(at::equal(part, PartOf(expected, group)));
      }
      for (WorkPtr& work : works) work->Wait();
      group.Barrier();
    }
  });
}

TEST_P(DirectCollectivesTest, DroppedWorkIsDoneAllTheSame) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    for (int64_t numel : {9L, kChunkFloats + 9}) {
      at::Tensor tensor = at::ones({numel});
      group.AllReduce(tensor);
      // Its own tensors, which nobody else holds.
      group.ReduceScatter(at::zeros({numel}), at::ones({group.size() * numel}));
      group.AllGather(at::zeros({group.size() * numel}), at::ones({numel}));
      at::Tensor after = at::ones({numel});
      group.AllReduce(after)->Wait();
      EXPECT_TRUE(after.eq(group.size()).all().item<bool>());
    }
  });
}

TEST_P(DirectCollectivesTest, SeveralGroupsOfARankWorkAtOnce) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    std::vector<std::shared_ptr<ProcessGroup>> groups = {group.Split(0), group.Split(0)};
    std::vector<at::Tensor> tensors;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 10; ++i) {
      tensors.push_back(at::full({100000}, i));
      works.push_back(groups[i % 2]->AllReduce(tensors.back()));
    }
    for (WorkPtr& work : works) work->Wait();
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(tensors[i].eq(i * group.size()).all().item<bool>());
    }
  });
}

TEST_P(DirectCollectivesTest, ARankMayWaitForSomethingElseFirst) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    const auto other = group.Split(0);
    const int64_t n = group.size();
    for (int64_t numel : {10L, 50000L, 2 * kChunkFloats}) {
      std::vector<WorkPtr> works;
      works.push_back(group.AllReduce(at::ones({numel})));
      works.push_back(group.AllGather(at::ones({n * numel}), at::ones({numel})));
      works.push_back(group.ReduceScatter(at::ones({numel}), at::ones({n * numel})));
      // Were a collective moved on by its waiters alone, the others would wait for rank 0 here.
      if (group.rank() == 0) other->Barrier();
      for (WorkPtr& work : works) work->Wait();
      if (group.rank() != 0) other->Barrier();
    }
  });
}

TEST(DirectCollectivesTest, TrafficCountsWhatTheAlgorithmsSend) {
  RunRanks(4, [](ProcessGroup& group) {
    const auto sent = [&](const std::function<WorkPtr()>& start) {
      const int64_t before = group.traffic().bytes_sent;
      start()->Wait();
      return group.traffic().bytes_sent - before;
    };
    EXPECT_EQ(sent([&] { return group.AllReduce(at::ones({1000})); }), 3 * 4000);
    EXPECT_EQ(sent([&] { return group.AllReduce(at::ones({40000})); }), 2 * 3 * 40000);
    EXPECT_EQ(sent([&] { return group.AllGather(at::ones({4000}), at::ones({1000})); }), 3 * 4000);
    EXPECT_EQ(sent([&] { return group.ReduceScatter(at::ones({1000}), at::ones({4000})); }),
              3 * 4000);
  });
}

GroupOptions ShortTimeout() {
  GroupOptions options;
  options.timeout = std::chrono::milliseconds(700);
  return options;
}

// What each kind of collective says on the ranks that call it, when rank 2 of 3 does not.
void ExpectBlame(bool peer_stays, const std::function<WorkPtr(ProcessGroup&)>& start) {
  std::promise<void> others_failed;
  auto wait_for_others = others_failed.get_future().share();
  std::atomic<int> failures = 0;
  const auto errors = RunRanksThatMayFail(
      3,
      [&](ProcessGroup& group) {
        group.Barrier();
        if (group.rank() == 2) {
          if (peer_stays) wait_for_others.wait_for(std::chrono::seconds(20));
          return;
        }
        try {
          start(group)->Wait();
        } catch (...) {
          if (++failures == 2) others_failed.set_value();
          throw;
        }
      },
      ShortTimeout());
  for (int rank : {0, 1}) {
    EXPECT_THAT(errors[rank], HasSubstr("collective #1"));
    EXPECT_THAT(errors[rank], HasSubstr("no sign of life from rank 2"));
  }
  EXPECT_EQ(errors[2], "");
}

void ExpectBlameOfEveryKind(bool peer_stays) {
  std::vector<std::thread> threads;
  for (const std::function<WorkPtr(ProcessGroup&)>& start :
       {std::function<WorkPtr(ProcessGroup&)>(
            [](ProcessGroup& group) { return group.AllReduce(at::ones({4})); }),
        std::function<WorkPtr(ProcessGroup&)>(
            [](ProcessGroup& group) { return group.AllReduce(at::ones({3 * kChunkFloats})); }),
        std::function<WorkPtr(ProcessGroup&)>([](ProcessGroup& group) {
          return group.AllGather(at::ones({3000000}), at::ones({1000000}));
        }),
        std::function<WorkPtr(ProcessGroup&)>([](ProcessGroup& group) {
          return group.ReduceScatter(at::ones({1000000}), at::ones({3000000}));
        })}) {
    threads.emplace_back([=] { ExpectBlame(peer_stays, start); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(DirectCollectivesTest, ARankThatNeverCallsIsNamedAtTheTimeout) {
  ExpectBlameOfEveryKind(true);
}

TEST(DirectCollectivesTest, ARankThatHasGoneIsNamed) { ExpectBlameOfEveryKind(false); }

TEST(DirectCollectivesTest, AFailureThatNobodyWaitedForFailsTheNextCall) {
  const auto errors = RunRanksThatMayFail(
      2,
      [](ProcessGroup& group) {
        if (group.rank() == 1) return;
        {
          const WorkPtr work =
              group.AllGather(at::ones({2 * kChunkFloats}), at::ones({kChunkFloats}));
          while (!work->IsCompleted()) std::this_thread::yield();
        }
        EXPECT_TRUE(group.failed());
        group.AllReduce(at::ones({1}))->Wait();
      },
      ShortTimeout());
  EXPECT_THAT(errors[0], HasSubstr("an earlier collective failed"));
  EXPECT_THAT(errors[0], HasSubstr("no sign of life from rank 1"));
}

}  // namespace
}  // namespace medfusion
