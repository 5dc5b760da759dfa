// Computes what a recording wrote down.
#ifndef MEDFUSION_DEFERRED_INIT_REPLAY_H_
#define MEDFUSION_DEFERRED_INIT_REPLAY_H_

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "medfusion/deferred_init/recording.h"

namespace medfusion {

// The values of tensors of one recording, bit by bit as if nothing had been deferred; those that
// share memory there share it here. Runs only what they depend on, with what is of no further use
// freed at once. The tensors given stay as they are. May be repeated, in parts and in any order.
// Throws std::logic_error when a large tensor from outside of DeferInit was changed since.
std::vector<at::Tensor> Replay(std::span<const at::Tensor> tensors);

// Makes the generator's state before `place` known: runs the earlier draws into scratch memory.
void CatchUp(Recording& recording, RandomStreams::Place place);

}  // namespace medfusion

#endif  // MEDFUSION_DEFERRED_INIT_REPLAY_H_
