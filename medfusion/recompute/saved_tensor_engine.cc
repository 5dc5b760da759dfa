#include "medfusion/recompute/saved_tensor_engine.h"

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/input_buffer.h>

#include <utility>
#if __has_include(<torch/csrc/autograd/node_creation_hook.h>)
#include <torch/csrc/autograd/node_creation_hook.h>

#include <vector>
#endif

namespace medfusion::recompute_internal {
namespace {

namespace autograd = torch::autograd;

thread_local SavedTensorFrame* innermost = nullptr;

// A shared_ptr or, in newer LibTorch, an intrusive_ptr.
using NodePointer = decltype(autograd::Edge::function);

// Note [An engine that asks]. Never destroyed: threads may run backward until the process ends.
class AskingEngine final : public autograd::Engine {
 public:
  explicit AskingEngine(autograd::Engine& engine) : engine_(engine) {}

  autograd::variable_list execute(const autograd::edge_list& roots,
                                  const autograd::variable_list& inputs, bool keep_graph,
                                  bool create_graph, bool accumulate_grad,
                                  const autograd::edge_list& outputs) override {
    return engine_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<autograd::GraphTask>& graph_task, NodePointer graph_root,
      autograd::InputBuffer&& input_buffer) override {
    return engine_.execute_with_graph_task(graph_task, std::move(graph_root),
                                           std::move(input_buffer));
  }

  std::unique_ptr<autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return engine_.make_anomaly_metadata();
  }

  std::unique_ptr<autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return innermost != nullptr ? innermost->MakeHooks()
                                : engine_.get_default_saved_variable_hooks();
  }

#if __has_include(<torch/csrc/autograd/node_creation_hook.h>)
  std::vector<std::unique_ptr<autograd::NodeCreationHook>> get_node_creation_hooks() override {
    return engine_.get_node_creation_hooks();
  }
#endif

 private:
  autograd::Engine& engine_;
};

autograd::Engine& Ours() {
  static auto* const engine = new AskingEngine(autograd::Engine::get_default_engine());
  return *engine;
}

void Install() {
  static const bool installed = [] {
    Ours();
    autograd::set_default_engine_stub(&Ours);
    return true;
  }();
  static_cast<void>(installed);
  TORCH_CHECK(&autograd::Engine::get_default_engine() == &Ours(),
              "Recompute: another autograd engine was installed after the first region of "
              "recomputation, and autograd no longer asks ours what to do with the tensors that it "
              "saves. Load the library that installs it (PyTorch's Python module, say) before the "
              "first call of Recompute");
}

}  // namespace

SavedTensorFrame::SavedTensorFrame() : outer_(innermost) {
  Install();
  innermost = this;
}

SavedTensorFrame::~SavedTensorFrame() { innermost = outer_; }

}  // namespace medfusion::recompute_internal
