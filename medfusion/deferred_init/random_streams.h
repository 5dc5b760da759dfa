// The random numbers of a recording: from which generator, in which state, an operator draws.
#ifndef MEDFUSION_DEFERRED_INIT_RANDOM_STREAMS_H_
#define MEDFUSION_DEFERRED_INIT_RANDOM_STREAMS_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <vector>

namespace medfusion {

// Note [Random numbers out of order]
// Built eagerly, a model's operators draw from one generator, one after another; what an operator
// gets depends on all before it. A recording draws nothing while it is made, and later in any
// order, parts of it several times. So it keeps the generator's state before each operator
// (5 KB each). The first is the one at recording; the next become known as operators run, and an
// operator that is not wanted itself runs once into scratch memory when a later one is.
//
// A generator that is seeded again while recording starts a new stream. Seeding is no operator, so
// each recorded draw moves the generator to a state of our own, and finding it elsewhere at the
// next draw tells.

// Not thread safe. Generators are those of the CPU.
class RandomStreams {
 public:
  struct Place {
    int stream = -1;
    int position = 0;
  };

  // Enters operator number `op` as the next that draws from `generator`.
  Place Enter(const at::Generator& generator, int op);

  // The operator to run first so that the state before `place` becomes known; -1 when it is known.
  int Missing(Place place) const;
  // A generator for the operator at `place`, whose state before is known.
  at::Generator At(Place place) const;
  // The operator at `place` ran with `generator`.
  void Passed(Place place, const at::Generator& generator);

  // Recording ends: gives each generator a new seed, drawn from its old state, so that what comes
  // later is independent of the recorded numbers and the same in every run.
  void Leave();

 private:
  struct Stream {
    at::Generator generator;
    at::Tensor expected;             // the generator's state after the last Enter
    std::vector<int> ops;            // in the order of the draws
    std::vector<at::Tensor> states;  // before each, as far as known; at least the first
  };
  std::vector<Stream> streams_;
};

}  // namespace medfusion

#endif  // MEDFUSION_DEFERRED_INIT_RANDOM_STREAMS_H_
