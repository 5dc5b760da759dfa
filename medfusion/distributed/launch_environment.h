// Who am I: rank, world size and meeting point of this process, as its launcher said it.
//
// Pure: reads names and values, opens nothing. docs/errors.md lists the errors.
#ifndef MEDFUSION_DISTRIBUTED_LAUNCH_ENVIRONMENT_H_
#define MEDFUSION_DISTRIBUTED_LAUNCH_ENVIRONMENT_H_

#include <absl/status/statusor.h>

#include <functional>
#include <optional>
#include <string>

namespace medfusion {

struct LaunchEnvironment {
  int rank = 0;
  int world_size = 1;
  // Unset when the launcher does not say; SetupDistributed then counts the ranks of this host.
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  // Where rank 0 listens: a name, an IPv4 or an IPv6 address. Empty when the rank is alone.
  std::string master_addr;
  int master_port = 0;
  // Where the values came from, for messages: "torchrun", "environment", "Slurm", "Open MPI",
  // "flags", "none".
  std::string source = "none";
  // torchrun keeps the store itself (TORCHELASTIC_USE_AGENT_STORE): rank 0 must not listen.
  bool agent_store = false;
  // Distinguishes jobs and restarts that meet in one store.
  std::string run_id;
};

// Looks a variable up: std::nullopt when it is not set.
using EnvironmentReader = std::function<std::optional<std::string>(const std::string& name)>;

// Of this process.
std::optional<std::string> ReadProcessEnvironment(const std::string& name);

// What a program's flags say; they win over the environment. All of rank, world_size, master_addr
// and master_port, or none.
struct LaunchFlags {
  std::optional<int> rank;
  std::optional<int> world_size;
  std::optional<int> local_rank;
  std::optional<std::string> master_addr;
  std::optional<int> master_port;
};

// In this order: flags; RANK and WORLD_SIZE (torchrun, or set by hand); Slurm (srun's SLURM_PROCID,
// SLURM_NTASKS); Open MPI (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE); else one rank alone. Slurm
// and Open MPI do not say where to meet: MASTER_ADDR and MASTER_PORT are taken if set, else the
// first host of the job and a port derived from the job's number. InvalidArgument names the
// variable, its value and its source when one is missing, malformed or out of range.
absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment(
    const LaunchFlags& flags = {}, const EnvironmentReader& read = ReadProcessEnvironment);

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_LAUNCH_ENVIRONMENT_H_
