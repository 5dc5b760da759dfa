#include "medfusion/deferred_init/random_streams.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>

#include <mutex>
#include <stdexcept>

namespace medfusion {
namespace {

at::Tensor StateOf(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

at::Tensor Displace(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.get<at::CPUGeneratorImpl>()->random();
  return generator.get_state();
}

}  // namespace

RandomStreams::Place RandomStreams::Enter(const at::Generator& generator, int op) {
  if (generator.device().type() != at::kCPU) {
    throw std::logic_error(
        "DeferInit records random numbers of the CPU's generators only; this one is for " +
        generator.device().str());
  }
  const at::Tensor state = StateOf(generator);
  int s = static_cast<int>(streams_.size()) - 1;
  while (s >= 0 && streams_[s].generator != generator) --s;
  if (s < 0 || !at::equal(streams_[s].expected, state)) {
    s = static_cast<int>(streams_.size());
    streams_.push_back({generator, {}, {}, {state}});
  }
  Stream& stream = streams_[s];
  stream.ops.push_back(op);
  stream.expected = Displace(generator);
  return {s, static_cast<int>(stream.ops.size()) - 1};
}

int RandomStreams::Missing(Place place) const {
  const Stream& stream = streams_[place.stream];
  const int known = static_cast<int>(stream.states.size()) - 1;
  return place.position <= known ? -1 : stream.ops[known];
}

at::Generator RandomStreams::At(Place place) const {
  at::Generator generator = at::detail::createCPUGenerator();
  generator.set_state(streams_[place.stream].states[place.position]);
  return generator;
}

void RandomStreams::Passed(Place place, const at::Generator& generator) {
  Stream& stream = streams_[place.stream];
  if (place.position + 1 == static_cast<int>(stream.states.size())) {
    stream.states.push_back(StateOf(generator));
  }
}

void RandomStreams::Leave() {
  for (size_t s = 0; s < streams_.size(); ++s) {
    at::Generator generator = streams_[s].generator;
    bool last = true;
    for (size_t later = s + 1; later < streams_.size(); ++later) {
      last &= streams_[later].generator != generator;
    }
    if (!last || !at::equal(streams_[s].expected, StateOf(generator))) continue;
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(generator.get<at::CPUGeneratorImpl>()->random64());
  }
}

}  // namespace medfusion
