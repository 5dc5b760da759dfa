#include "medfusion/sampler/torch_data_sampler.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>

#include "medfusion/base/status.h"

namespace medfusion {
namespace {

constexpr char kKey[] = "distributed_sampler";

}  // namespace

TorchDataSampler::TorchDataSampler(std::shared_ptr<DistributedSampler> sampler)
    : sampler_(std::move(sampler)) {
  if (sampler_ == nullptr) {
    throw std::invalid_argument(
        "TorchDataSampler: sampler=nullptr (argument); expected a DistributedSampler to share");
  }
}

void TorchDataSampler::reset(std::optional<size_t> new_size) {
  const int64_t size = static_cast<int64_t>(new_size.value_or(sampler_->dataset_size()));
  if (size == sampler_->dataset_size()) {
    sampler_->Reset();
    return;
  }
  const int64_t epoch = sampler_->epoch();
  *sampler_ =
      DistributedSampler(size, sampler_->num_replicas(), sampler_->rank(), sampler_->options());
  sampler_->SetEpoch(epoch);
}

std::optional<std::vector<size_t>> TorchDataSampler::next(size_t batch_size) {
  return sampler_->Next(batch_size);
}

void TorchDataSampler::save(torch::serialize::OutputArchive& archive) const {
  const std::vector<int64_t> values = sampler_->State().ToVector();
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<int64_t>());
  archive.write(kKey, tensor, /*is_buffer=*/true);
}

void TorchDataSampler::load(torch::serialize::InputArchive& archive) {
  at::Tensor tensor;
  archive.read(kKey, tensor, /*is_buffer=*/true);
  TORCH_CHECK(tensor.scalar_type() == at::kLong && tensor.dim() == 1, "\"", kKey,
              "\" in the archive is not a sampler's state, which is a list of int64: it is of ",
              tensor.scalar_type(), " with ", tensor.dim(), " dimensions");
  tensor = tensor.contiguous();
  const auto state = SamplerState::FromVector(
      std::span(tensor.const_data_ptr<int64_t>(), static_cast<size_t>(tensor.numel())));
  ThrowIfError(state.status());
  ThrowIfError(sampler_->Restore(*state));
}

}  // namespace medfusion
