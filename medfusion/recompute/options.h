// What a region of recomputation may be told.
#ifndef MEDFUSION_RECOMPUTE_OPTIONS_H_
#define MEDFUSION_RECOMPUTE_OPTIONS_H_

namespace medfusion {

struct RecomputeOptions {
  // The second run draws the same random numbers as the first: the default generators of the CPU
  // and of the devices of the tensors among the arguments. Costs a copy of 5 KB per region; false
  // where nothing inside is random.
  bool preserve_rng_state = true;
  // The second run ends, by an exception that passes through the function, as soon as all needed
  // tensors are there. false runs it to its end and also finds a second run that saves more
  // tensors.
  bool early_stop = true;
};

}  // namespace medfusion

#endif  // MEDFUSION_RECOMPUTE_OPTIONS_H_
