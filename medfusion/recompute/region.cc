#include "medfusion/recompute/region.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

namespace medfusion::recompute_internal {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

// Ends the second run when nothing more is wanted. No std::exception, so that functions that handle
// those let it pass.
struct NothingMoreWanted {
  const void* frame;
};

bool IsParameterOrItsView(const at::Tensor& tensor) {
  const at::TensorBase& base = tensor.is_view() ? tensor._base() : tensor;
  return base.is_leaf() && base.requires_grad();
}

std::string Describe(at::IntArrayRef sizes, at::ScalarType dtype, c10::Device device) {
  std::ostringstream text;
  text << dtype << " " << sizes << " on " << device;
  return text.str();
}

void CheckUnchanged(const at::Tensor& tensor, int64_t version) {
  TORCH_CHECK(tensor._version() == version,
              "Recompute: a tensor that a region saved for backward, ",
              Describe(tensor.sizes(), tensor.scalar_type(), tensor.device()),
              ", was changed in place: it is at version ", tensor._version(), " and was saved at ",
              version, ". Change a copy instead, or after backward");
}

constexpr const char* kSameEachTime =
    ". A region must compute the same each time: its function must not depend on what changes "
    "between forward and backward";

}  // namespace

// In autograd's graph, in a saved tensor's place.
class Region::Hooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit Hooks(std::shared_ptr<Region> region) : region_(std::move(region)) {}

  ~Hooks() override {
    if (!slot_.has_value()) return;
    const Lock lock(region_->mutex_);
    Slot& slot = region_->slots_[*slot_];
    slot.owned = slot.wanted = false;
    slot.tensor.reset();
  }

  void call_pack_hook(const at::Tensor& tensor) override {
    const Lock lock(region_->mutex_);
    if (IsParameterOrItsView(tensor)) {
      kept_ = tensor.tensor_data();  // without its place in the graph, which owns this
      version_ = tensor._version();
    }
    slot_ = region_->AddSlot(tensor, kept_.defined());
  }

  at::Tensor call_unpack_hook() override {
    if (kept_.defined()) {
      CheckUnchanged(kept_, version_);
      return kept_;
    }
    const Lock lock(region_->mutex_);
    return region_->Take(*slot_);
  }

 private:
  const std::shared_ptr<Region> region_;
  std::optional<size_t> slot_;
  at::Tensor kept_;
  int64_t version_ = 0;
};

// The second run's frame: fills slots.
class Region::Rerun final : public SavedTensorFrame {
 public:
  explicit Rerun(Region& region) : region_(region) {
    for (const Slot& slot : region_.slots_) missing_ += slot.wanted && !slot.tensor.defined();
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks> MakeHooks() override {
    return std::make_unique<FillingHooks>(*this);
  }

  void Run() {
    try {
      region_.RunAgain();
    } catch (const NothingMoreWanted& end) {
      if (end.frame != this) throw;
      return;
    }
    const size_t expected = region_.slots_.size();
    const bool more = saved_ > expected && !region_.in_forward_;
    TORCH_CHECK(missing_ == 0 && !more, "Recompute: a region saved ", expected,
                " tensors for backward in forward, and ", saved_, " when it ran again",
                kSameEachTime);
  }

 private:
  // The second run's graph is dropped with it; only a backward inside of the function reads it.
  class FillingHooks final : public torch::autograd::SavedVariableHooks {
   public:
    explicit FillingHooks(Rerun& rerun) : rerun_(rerun) {}
    void call_pack_hook(const at::Tensor& tensor) override {
      tensor_ = tensor.tensor_data();
      rerun_.Save(tensor);
    }
    at::Tensor call_unpack_hook() override { return tensor_; }

   private:
    Rerun& rerun_;
    at::Tensor tensor_;
  };

  void Save(const at::Tensor& tensor) {
    const size_t index = saved_++;
    if (index >= region_.slots_.size()) return;
    Slot& slot = region_.slots_[index];
    TORCH_CHECK(slot.sizes == tensor.sizes() && slot.dtype == tensor.scalar_type() &&
                    slot.device == tensor.device(),
                "Recompute: tensor ", index + 1, " of ", region_.slots_.size(),
                " that a region saves for backward was ",
                Describe(slot.sizes, slot.dtype, slot.device), " in forward and is ",
                Describe(tensor.sizes(), tensor.scalar_type(), tensor.device()),
                " when it runs again", kSameEachTime);
    if (slot.wanted && !slot.tensor.defined()) {
      slot.tensor = tensor.tensor_data();
      slot.version = tensor._version();
      --missing_;
    }
    if (missing_ == 0 && region_.options_.early_stop) throw NothingMoreWanted{this};
  }

  Region& region_;
  size_t missing_ = 0;
  size_t saved_ = 0;
};

void Region::KeepInput(const at::Tensor& tensor) {
  if (tensor.defined() && !tensor.device().is_cpu() &&
      std::find(devices_.begin(), devices_.end(), tensor.device()) == devices_.end()) {
    devices_.push_back(tensor.device());
  }
  const bool inference = tensor.defined() && tensor.is_inference();
  plain_inputs_.push_back(inference ? tensor : at::Tensor());
  inputs_.emplace_back(inference ? at::Tensor() : tensor, /*is_output=*/false);
}

at::Tensor Region::Input(size_t index) const {
  if (plain_inputs_[index].defined()) return plain_inputs_[index];
  try {
    return inputs_[index].unpack();
  } catch (c10::Error& error) {
    error.add_context("while Recompute ran a region again in backward, for its argument tensor " +
                      std::to_string(index + 1));
    throw;
  }
}

size_t Region::AddSlot(const at::Tensor& tensor, bool kept) {
  slots_.push_back(
      {tensor.sizes().vec(), tensor.scalar_type(), tensor.device(), !kept, !kept, at::Tensor()});
  return slots_.size() - 1;
}

at::Tensor Region::Take(size_t index) {
  EnterBackward();
  Slot& slot = slots_[index];
  if (!slot.tensor.defined()) {
    slot.wanted = true;
    try {
      RunAgainFor(index);
    } catch (...) {
      DropTensors();
      throw;
    }
  }
  CheckUnchanged(slot.tensor, slot.version);
  slot.wanted = false;
  return std::move(slot.tensor);
}

// What an earlier backward left over is out of date: parameters may have changed.
void Region::EnterBackward() {
  const int current = torch::autograd::get_current_graph_task_id();
  if (current == backward_ && current != -1) return;
  DropTensors();
  backward_ = current;
  for (Slot& slot : slots_) slot.wanted = slot.owned && current != -1;
  if (current == -1) return;
  torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this(), current] {
    const std::shared_ptr<Region> region = weak.lock();
    if (region == nullptr) return;
    const Lock lock(region->mutex_);
    if (region->backward_ == current) region->DropTensors();
  });
}

void Region::RunAgainFor(size_t index) {
  const ForwardState state(*random_, *autocast_);
  Rerun(*this).Run();
  TORCH_INTERNAL_ASSERT(slots_[index].tensor.defined());
}

void Region::DropTensors() noexcept {
  for (Slot& slot : slots_) slot.tensor.reset();
}

Region::Forward::Forward(std::shared_ptr<Region> region) : region_(std::move(region)) {
  std::vector<c10::Device> devices;
  if (region_->options_.preserve_rng_state) {
    devices = region_->devices_;
    devices.emplace_back(c10::kCPU);
  }
  region_->random_.emplace(devices);
  region_->autocast_ = AutocastState::Now();
  region_->in_forward_ = true;
}

Region::Forward::~Forward() { region_->in_forward_ = false; }

std::unique_ptr<torch::autograd::SavedVariableHooks> Region::Forward::MakeHooks() {
  return std::make_unique<Hooks>(region_);
}

}  // namespace medfusion::recompute_internal
