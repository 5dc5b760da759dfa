// How much is whole at once, and when it is gathered.
#include "medfusion/fsdp/fsdp_wrapper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/fsdp/helpers.h"
#include "tests/fsdp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using ::testing::ElementsAre;

// Units of different sizes: what is counted is exact.
TEST(FsdpPagingTest, MemoryOfWholeUnitsIsThatOfTwoNeighboursAndOneGradient) {
  RunRanks(2, [](ProcessGroup& group) {
    const std::vector<int64_t> widths = {kFeatures, 10, 30, 8, 20, 4};
    torch::nn::Sequential net;
    std::vector<int64_t> bytes;  // of each unit, padded to two ranks
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      net->push_back(torch::nn::Linear(widths[i], widths[i + 1]));
      const int64_t numel = (widths[i] + 1) * widths[i + 1];
      bytes.push_back((numel + numel % 2) * 8);
    }
    net->to(at::kDouble);
    FSDPWrapper model(net, EveryModuleAUnit());
    for (int step = 0; step < 4; ++step) {
      model->forward(Input(group.rank())).sum().backward();
    }
    int64_t neighbours = 0;
    for (size_t i = 0; i + 1 < bytes.size(); ++i) {
      neighbours = std::max(neighbours, bytes[i] + bytes[i + 1]);
    }
    EXPECT_EQ(model->sharded_model().units().size(), bytes.size());
    EXPECT_EQ(model->sharded_model().full_buffers().peak_bytes(), neighbours);
    EXPECT_EQ(model->sharded_model().gradient_buffers().peak_bytes(),
              *std::max_element(bytes.begin(), bytes.end()));
  });
}

TEST(FsdpPagingTest, TheNextUnitIsGatheredAheadInTheOrderOfTheFirstStep) {
  RunRanks(2, [](ProcessGroup&) {
    // A layer that looks which units have memory when it runs.
    class Watched : public torch::nn::Module {
     public:
      Watched() {
        for (const char* name : {"a", "b", "c", "d"}) {
          layers.push_back(register_module(name, torch::nn::Linear(3, 3)));
        }
      }
      at::Tensor forward(at::Tensor x) {
        for (auto& layer : layers) {
          x = layer->forward(x);
          if (look) look();
        }
        return x;
      }
      std::vector<torch::nn::Linear> layers;
      std::function<void()> look;
    };
    auto net = std::make_shared<Watched>();
    FSDPWrapper model(net, EveryModuleAUnit());
    std::vector<std::string> seen;
    net->look = [&] {
      std::string names;
      for (const auto& unit : model->sharded_model().units()) {
        if (unit->in_memory()) names += unit->unit();
      }
      seen.push_back(names);
    };
    model->forward(torch::ones({1, 3})).sum().backward();
    EXPECT_THAT(seen, ElementsAre("a", "ab", "bc", "cd"));
    seen.clear();
    model->forward(torch::ones({1, 3})).sum().backward();
    EXPECT_THAT(seen, ElementsAre("ab", "bc", "cd", "cd"));
  });
}

}  // namespace
}  // namespace medfusion::testing
