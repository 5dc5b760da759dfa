#include "medfusion/recompute/run_state.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>

#include <mutex>

namespace medfusion::recompute_internal {
namespace {

constexpr std::array<c10::DeviceType, 2> kDevices = {c10::kCPU, c10::kCUDA};

at::Tensor StateOf(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

RandomState::RandomState(const std::vector<c10::Device>& devices) {
  for (const c10::Device& device : devices) {
    const at::Generator& generator = at::globalContext().defaultGenerator(device);
    states_.emplace_back(generator, StateOf(generator));
  }
}

RandomState RandomState::Now() const {
  RandomState now;
  for (const auto& [generator, state] : states_) {
    now.states_.emplace_back(generator, StateOf(generator));
  }
  return now;
}

void RandomState::Set() const {
  for (const auto& [kept, state] : states_) {
    at::Generator generator = kept;
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state);
  }
}

AutocastState AutocastState::Now() {
  AutocastState now;
  for (size_t i = 0; i < kDevices.size(); ++i) {
    now.devices[i] = {at::autocast::is_autocast_enabled(kDevices[i]),
                      at::autocast::get_autocast_dtype(kDevices[i])};
  }
  now.cache = at::autocast::is_autocast_cache_enabled();
  return now;
}

void AutocastState::Set() const {
  for (size_t i = 0; i < kDevices.size(); ++i) {
    at::autocast::set_autocast_enabled(kDevices[i], devices[i].enabled);
    at::autocast::set_autocast_dtype(kDevices[i], devices[i].dtype);
  }
  at::autocast::set_autocast_cache_enabled(cache);
}

PlainTorchScript::PlainTorchScript() : before_(torch::jit::getGraphExecutorOptimize()) {
  torch::jit::setGraphExecutorOptimize(false);
}

PlainTorchScript::~PlainTorchScript() { torch::jit::setGraphExecutorOptimize(before_); }

ForwardState::ForwardState(const RandomState& random, const AutocastState& autocast)
    : random_(random.Now()), autocast_(AutocastState::Now()), casts_(autocast.any()) {
  random.Set();
  autocast.Set();
  if (casts_) at::autocast::increment_nesting();
}

ForwardState::~ForwardState() {
  // As at the end of an autocast scope: the outermost one forgets the weights that it cast.
  if (casts_ && at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  autocast_.Set();
  random_.Set();
}

}  // namespace medfusion::recompute_internal
