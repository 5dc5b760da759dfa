// Saved in the middle of an epoch, restored at the same and at other numbers of replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "medfusion/sampler/distributed_sampler.h"
#include "tests/sampler/replicas.h"

namespace medfusion {
namespace {

using testing::HasSubstr;

std::vector<SamplerState> States(const Replicas& replicas) {
  std::vector<SamplerState> states;
  for (const DistributedSampler& sampler : replicas) states.push_back(sampler.State());
  return states;
}

void RestoreAll(Replicas& replicas, const SamplerState& state) {
  for (DistributedSampler& sampler : replicas) ASSERT_TRUE(sampler.Restore(state).ok());
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(SamplerResumeTest, SameReplicasGoOnBitForBit) {
  const std::vector<SamplerOptions> kinds = {
      {}, {.drop_last = true}, {.mode = SamplerMode::kExactlyOnce}, {.shuffle = false}};
  for (const SamplerOptions& options : kinds) {
    Replicas replicas = MakeReplicas(103, 4, options);
    for (DistributedSampler& sampler : replicas) {
      sampler.SetEpoch(5);
      Read(sampler, 8);
      DistributedSampler resumed(103, 4, sampler.rank(), options);
      ASSERT_TRUE(resumed.Restore(sampler.State()).ok());
      EXPECT_EQ(resumed.epoch(), 5);
      EXPECT_EQ(resumed.position(), 8);
      EXPECT_EQ(ReadAll(resumed), ReadAll(sampler));
    }
  }
}

TEST(SamplerResumeTest, TheUsualLoopGoesOnAndTheNextEpochIsWhole) {
  DistributedSampler sampler(50, 2, 1, {.seed = 9});
  sampler.SetEpoch(3);
  Read(sampler, 10);
  DistributedSampler resumed(50, 2, 1, {.seed = 9});
  ASSERT_TRUE(resumed.Restore(sampler.State()).ok());
  for (int64_t epoch = resumed.epoch(); epoch < 6; ++epoch) {
    resumed.SetEpoch(epoch);
    resumed.Reset();  // as LibTorch's loader does at begin()
    if (epoch > 3) sampler.SetEpoch(epoch);
    EXPECT_EQ(ReadAll(resumed), ReadAll(sampler)) << epoch;
  }
}

TEST(SamplerResumeTest, OnceTheRestIsReadTheEpochIsWholeAgain) {
  Replicas two = MakeReplicas(20, 2);
  Read(two[0], 4);
  DistributedSampler alone(20, 1, 0);
  ASSERT_TRUE(alone.Restore(two[0].State()).ok());
  EXPECT_EQ(alone.size(), 12);
  EXPECT_EQ(ReadAll(alone).size(), 12u);
  alone.Reset();
  EXPECT_EQ(alone.size(), 20);
  EXPECT_EQ(ReadAll(alone).size(), 20u);
}

TEST(SamplerResumeTest, InterruptedAgainAndAgainNothingChanges) {
  DistributedSampler four(103, 4, 0);
  Read(four, 6);
  for (int64_t rank = 0; rank < 3; ++rank) {  // 79 samples are left for 3 replicas: 2 repeats
    DistributedSampler sampler(103, 3, rank);
    ASSERT_TRUE(sampler.Restore(four.State()).ok());
    DistributedSampler uninterrupted = sampler;
    const std::vector<size_t> whole = ReadAll(uninterrupted);
    EXPECT_EQ(whole.size(), 27u);
    std::vector<size_t> pieces;
    while (pieces.size() < whole.size()) {
      const std::vector<size_t> piece = Read(sampler, 4);
      ASSERT_FALSE(piece.empty());
      pieces.insert(pieces.end(), piece.begin(), piece.end());
      DistributedSampler next(103, 3, rank);
      ASSERT_TRUE(next.Restore(sampler.State()).ok());
      sampler = next;
    }
    EXPECT_EQ(pieces, whole);
  }
}

TEST(SamplerResumeTest, OneStateServesReplicasInLockstep) {
  Replicas before = MakeReplicas(1000, 8);
  Census read;
  for (DistributedSampler& sampler : before) {
    sampler.SetEpoch(2);
    Count(Read(sampler, 25), read);
  }
  for (const int64_t num_replicas : {1, 2, 5, 10}) {  // 800 samples are left
    Replicas after = MakeReplicas(1000, num_replicas);
    RestoreAll(after, before[3].State());
    Census all = read;
    for (const auto& [index, times] : ReadAll(after)) all[index] += times;
    EXPECT_EQ(all.size(), 1000u);
    for (const auto& [index, times] : all) EXPECT_EQ(times, 1) << index;
  }
}

TEST(SamplerResumeTest, ReadAheadIsNotCounted) {
  DistributedSampler loader(40, 2, 0, {.seed = 4});
  const std::vector<size_t> all = ReadAll(loader);
  loader.Reset();
  Read(loader, 12);  // by workers; the training loop has had 8
  DistributedSampler resumed(40, 2, 0, {.seed = 4});
  ASSERT_TRUE(resumed.Restore(loader.StateAfter(8)).ok());
  EXPECT_EQ(ReadAll(resumed), std::vector<size_t>(all.begin() + 8, all.end()));
  EXPECT_THROW(loader.StateAfter(13), std::invalid_argument);
  EXPECT_THROW(loader.StateAfter(-1), std::invalid_argument);
}

// A chain of interrupted passes at random numbers of replicas, each read unevenly. The census says
// what the whole epoch came to.
struct Chain {
  int64_t size;
  SamplerOptions options;
  Census read;         // before the last pass
  Census last;         // in the last pass
  Census first_epoch;  // what the first number of replicas would have read
  int64_t last_replicas;
};

Chain RunChain(std::mt19937& dice, int trial) {
  constexpr int64_t kReplicas[] = {1, 3, 7, 100, 2, 4, 16};
  Chain chain;
  chain.size = dice() % (trial % 2 == 0 ? 30 : 500);
  chain.options = {.shuffle = dice() % 4 != 0, .seed = static_cast<int64_t>(dice())};
  chain.options.drop_last = trial % 3 == 1;
  if (trial % 3 == 2) chain.options.mode = SamplerMode::kExactlyOnce;
  const int64_t epoch = dice() % 9;

  Replicas replicas = MakeReplicas(chain.size, kReplicas[dice() % 7], chain.options);
  for (DistributedSampler& sampler : replicas) sampler.SetEpoch(epoch);
  Replicas uninterrupted = replicas;
  chain.first_epoch = ReadAll(uninterrupted);
  const int interruptions = 1 + dice() % 3;
  for (int i = 0; i < interruptions; ++i) {
    const bool lockstep = dice() % 3 == 0;
    const size_t pace = dice() % (replicas[0].size() + 1);
    for (DistributedSampler& sampler : replicas) {
      const size_t skew = lockstep ? 0 : dice() % 4;
      Count(Read(sampler, pace + skew), chain.read);
    }
    std::vector<SamplerState> states = States(replicas);
    std::shuffle(states.begin(), states.end(), dice);
    const auto merged = MergeSamplerStates(states);
    EXPECT_TRUE(merged.ok()) << merged.status();
    const auto stored = SamplerState::FromVector(merged->ToVector());
    EXPECT_TRUE(stored.ok()) << stored.status();
    EXPECT_EQ(*stored, *merged);
    // A pass at the same number of replicas keeps its repeats, which is another test's matter.
    int64_t next = kReplicas[dice() % 7];
    while (next == replicas[0].num_replicas()) next = kReplicas[dice() % 7];
    replicas = MakeReplicas(chain.size, next, chain.options);
    RestoreAll(replicas, *stored);
    for (DistributedSampler& sampler : replicas) sampler.SetEpoch(epoch);
  }
  chain.last = ReadAll(replicas);
  chain.last_replicas = replicas[0].num_replicas();

  for (DistributedSampler& sampler : replicas) sampler.SetEpoch(epoch + 1);
  Replicas fresh = MakeReplicas(chain.size, chain.last_replicas, chain.options);
  for (DistributedSampler& sampler : fresh) sampler.SetEpoch(epoch + 1);
  for (size_t rank = 0; rank < fresh.size(); ++rank) {
    EXPECT_EQ(ReadAll(replicas[rank]), ReadAll(fresh[rank])) << "of the next epoch";
  }
  return chain;
}

TEST(SamplerResumeTest, OtherReplicasReadExactlyTheRestOnceEach) {
  std::mt19937 dice(7);
  for (int trial = 0; trial < 600; ++trial) {
    const Chain chain = RunChain(dice, trial);
    SCOPED_TRACE(testing::Message() << "trial " << trial << ": " << chain.size
                                    << " samples, at last " << chain.last_replicas << " replicas");
    int64_t turns = 0;
    for (const auto& [index, times] : chain.last) {
      turns += times;
      EXPECT_FALSE(chain.read.contains(index)) << "read again: " << index;
    }
    const int64_t distinct = static_cast<int64_t>(chain.last.size());
    int64_t lost = 0;
    for (const auto& [index, times] : chain.first_epoch) {
      if (!chain.read.contains(index) && !chain.last.contains(index)) ++lost;
    }
    if (chain.options.drop_last) {
      EXPECT_EQ(turns, distinct);
      EXPECT_EQ(turns % chain.last_replicas, 0);
      EXPECT_LT(lost, chain.last_replicas);
    } else {
      EXPECT_EQ(lost, 0);
      EXPECT_EQ(distinct + static_cast<int64_t>(chain.read.size()), chain.size);
      if (chain.options.mode == SamplerMode::kExactlyOnce) {
        EXPECT_EQ(turns, distinct);
      } else {
        EXPECT_EQ(turns % chain.last_replicas, 0);
        EXPECT_LT(turns - distinct, chain.last_replicas);
      }
    }
  }
}

TEST(SamplerResumeTest, DropLastFillsUpFromWhatItWouldHaveDropped) {
  // 4 replicas of 10 samples drop 2; 3 replicas then read 6 of the 6 that 4 others left.
  Replicas four = MakeReplicas(10, 4, {.shuffle = false, .drop_last = true});
  for (DistributedSampler& sampler : four) Read(sampler, 1);
  Replicas three = MakeReplicas(10, 3, {.shuffle = false, .drop_last = true});
  RestoreAll(three, four[0].State());
  EXPECT_EQ(ReadAll(three), (Census{{4, 1}, {5, 1}, {6, 1}, {7, 1}, {8, 1}, {9, 1}}));
  // 2 replicas divide what was left, and nothing more is read than was to be.
  Replicas two = MakeReplicas(10, 2, {.shuffle = false, .drop_last = true});
  RestoreAll(two, four[0].State());
  EXPECT_EQ(ReadAll(two), (Census{{4, 1}, {5, 1}, {6, 1}, {7, 1}}));
}

TEST(SamplerResumeTest, ARepeatThatWasReadCountsAsItsSample) {
  // 3 samples for 7 replicas, of which the last alone, whose repeat is of sample 0, has read.
  Replicas seven = MakeReplicas(3, 7, {.shuffle = false});
  EXPECT_EQ(Read(seven[6], 1), (std::vector<size_t>{0}));
  const auto merged = MergeSamplerStates(States(seven));
  ASSERT_TRUE(merged.ok()) << merged.status();
  DistributedSampler alone(3, 1, 0, {.shuffle = false});
  ASSERT_TRUE(alone.Restore(*merged).ok());
  EXPECT_EQ(ReadAll(alone), (std::vector<size_t>{1, 2}));
}

TEST(SamplerResumeTest, AFinishedEpochHasNoRest) {
  Replicas three = MakeReplicas(11, 3);
  ReadAll(three);
  Replicas two = MakeReplicas(11, 2);
  RestoreAll(two, three[0].State());
  EXPECT_TRUE(ReadAll(two).empty());
}

TEST(SamplerResumeTest, RefusesAnotherDatasetOrOtherOptionsAndStaysAsItWas) {
  DistributedSampler saved(569, 2, 0);
  Read(saved, 30);
  DistributedSampler other_size(570, 2, 0);
  const absl::Status status = other_size.Restore(saved.State());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("size=569"));
  EXPECT_THAT(Message(status), HasSubstr("size=570"));
  EXPECT_EQ(other_size.position(), 0);

  DistributedSampler in_order(569, 2, 0, {.shuffle = false});
  EXPECT_THAT(Message(in_order.Restore(saved.State())), HasSubstr("shuffle=1"));
  DistributedSampler dropping(569, 2, 0, {.drop_last = true});
  EXPECT_THAT(Message(dropping.Restore(saved.State())), HasSubstr("drop_last=0"));
  DistributedSampler once(569, 2, 0, {.mode = SamplerMode::kExactlyOnce});
  EXPECT_THAT(Message(once.Restore(saved.State())), HasSubstr("mode=kPadded"));
}

TEST(SamplerResumeTest, TakesTheSeedOfTheState) {
  DistributedSampler saved(100, 2, 0, {.seed = 77});
  Read(saved, 10);
  DistributedSampler resumed(100, 2, 0);
  ASSERT_TRUE(resumed.Restore(saved.State()).ok());
  EXPECT_EQ(resumed.options().seed, 77);
  EXPECT_EQ(ReadAll(resumed), ReadAll(saved));
}

TEST(SamplerResumeTest, RefusesPositionsThatCannotBe) {
  DistributedSampler sampler(100, 4, 0);
  SamplerState state = sampler.State();
  for (const std::vector<int64_t>& positions :
       {std::vector<int64_t>{26}, {-1}, {}, {1, 2}, {1, 2, 3, 26}}) {
    state.passes[0].positions = positions;
    EXPECT_THAT(Message(sampler.Restore(state)), HasSubstr("position"));
  }
  state.passes[0].positions = {0};
  state.passes[0].num_replicas = 0;
  EXPECT_THAT(Message(sampler.Restore(state)), HasSubstr("num_replicas=0"));
  state.passes.clear();
  EXPECT_THAT(Message(sampler.Restore(state)), HasSubstr("0 passes"));
}

TEST(SamplerResumeTest, RefusesNumbersThatAreNoState) {
  DistributedSampler sampler(100, 4, 2);
  const std::vector<int64_t> good = sampler.State().ToVector();
  ASSERT_TRUE(SamplerState::FromVector(good).ok());
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(SamplerState::FromVector(std::span(good).first(length)).ok()) << length;
  }
  std::vector<int64_t> longer = good;
  longer.push_back(0);
  EXPECT_FALSE(SamplerState::FromVector(longer).ok());
  for (const size_t place : {0, 4, 5, 6, 7, 8, 10}) {
    for (const int64_t value : {int64_t{-2}, int64_t{9}, INT64_MAX, INT64_MIN}) {
      std::vector<int64_t> bad = good;
      bad[place] = value;
      EXPECT_FALSE(SamplerState::FromVector(bad).ok()) << place << ": " << value;
    }
  }
}

TEST(SamplerResumeTest, MergingNeedsOneStateOfEachRankOfOneEpoch) {
  Replicas three = MakeReplicas(30, 3);
  std::vector<SamplerState> states = States(three);
  EXPECT_TRUE(MergeSamplerStates(states).ok());
  EXPECT_THAT(Message(MergeSamplerStates(std::span(states).first(2)).status()),
              HasSubstr("2 states of an epoch read by 3 replicas"));
  EXPECT_FALSE(MergeSamplerStates({}).ok());
  std::vector<SamplerState> twice = {states[0], states[1], states[1]};
  EXPECT_THAT(Message(MergeSamplerStates(twice).status()), HasSubstr("rank=1"));
  states[2].epoch = 4;
  EXPECT_THAT(Message(MergeSamplerStates(states).status()), HasSubstr("epoch=4"));
}

}  // namespace
}  // namespace medfusion
