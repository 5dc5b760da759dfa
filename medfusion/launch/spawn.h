// Starts the ranks of a job on this machine and sees to it that they end together.
//
//   int main(int argc, char** argv) {
//     if (launched by nobody && ranks > 1) {
//       return medfusion::SpawnRanks({.num_ranks = ranks, .arguments = {argv, argv + argc}});
//     }
//     ... a rank ...
//   }
//
// Needs neither LibTorch nor a process group. For one machine; for several use torchrun, Slurm or
// mpirun, whose variables SetupDistributed reads as well.
#ifndef MEDFUSION_LAUNCH_SPAWN_H_
#define MEDFUSION_LAUNCH_SPAWN_H_

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace medfusion {

struct SpawnOptions {
  int num_ranks = 1;
  // Empty: this program again.
  std::string program;
  // Of every rank, the name in front; usually main's own.
  std::vector<std::string> arguments;
  // Further variables of the ranks' environment.
  std::map<std::string, std::string> environment;
  // Begin each line of output with its rank: "[1] ". Otherwise rank 0 writes to this process's
  // standard output itself, and so sees whether that is a terminal.
  bool prefix_output = false;
  // How long ranks that were told to end (SIGTERM, or the signal that was sent here) may take.
  std::chrono::milliseconds grace = std::chrono::seconds(3);
};

// Starts `num_ranks` processes with torchrun's variables (RANK, LOCAL_RANK, WORLD_SIZE,
// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_ERROR_FILE, and OMP_NUM_THREADS, the
// cores divided by the ranks, unless it is set) and waits for all of them. Standard input is empty
// for them; their output arrives in whole lines.
//
// The first rank that fails decides: the others get SIGTERM and, after the grace period, SIGKILL.
// The last lines on standard error then name the rank, its exit code or signal, and its error (what
// it wrote by WriteErrorFile, else its last lines). SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed
// on to all ranks; a second one kills them. Ranks never outlive this process.
//
// Returns what this process should exit with: 0; the failed rank's code, or 128 + its signal; or
// 128 + the signal that ended the job (130 for Ctrl-C); 1 when a rank could not be started. Call it
// from the main thread, before other threads exist; it takes over the signals named above while it
// runs.
int SpawnRanks(const SpawnOptions& options);

}  // namespace medfusion

#endif  // MEDFUSION_LAUNCH_SPAWN_H_
