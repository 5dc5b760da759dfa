// The DistributedSampler inside torch::data's loader.
//
//   auto sampler = std::make_shared<medfusion::DistributedSampler>(size, world_size, rank);
//   auto loader = torch::data::make_data_loader(
//       dataset, medfusion::TorchDataSampler(sampler), options);
//   for (int64_t epoch = sampler->epoch(); epoch < epochs; ++epoch) {
//     sampler->SetEpoch(epoch);
//     for (auto& batch : *loader) ...
//   }
#ifndef MEDFUSION_SAMPLER_TORCH_DATA_SAMPLER_H_
#define MEDFUSION_SAMPLER_TORCH_DATA_SAMPLER_H_

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "medfusion/sampler/distributed_sampler.h"

namespace medfusion {

// The loader moves the sampler it is given into itself, out of reach: an epoch that is set on the
// caller's own copy, as with LibTorch's DistributedRandomSampler, changes nothing. This one shares
// the DistributedSampler with whoever made it, so that SetEpoch and Restore reach the loader. Use
// each DistributedSampler in one loader.
//
// The loader calls these functions in the thread that iterates over it; call the
// DistributedSampler's in that thread too, between two iterations. Not collective.
//
// A loader with workers reads ahead: for a checkpoint in mid-epoch take
// sampler->StateAfter(samples trained on since the loader's begin()), not State() or save().
class TorchDataSampler : public torch::data::samplers::Sampler<> {
 public:
  // Throws std::invalid_argument for a null pointer.
  explicit TorchDataSampler(std::shared_ptr<DistributedSampler> sampler);

  // DistributedSampler::Reset, which keeps what was just restored. A `new_size` that differs, as
  // chunked datasets give, starts the epoch with that many samples.
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  // DistributedSampler::Next.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  // The state, as one int64 tensor under the key "distributed_sampler".
  void save(torch::serialize::OutputArchive& archive) const override;

  // Restores it. Throws StatusError with DistributedSampler::Restore's text, c10::Error if the
  // archive holds no such tensor.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  std::shared_ptr<DistributedSampler> sampler_;
};

}  // namespace medfusion

#endif  // MEDFUSION_SAMPLER_TORCH_DATA_SAMPLER_H_
