#include "medfusion/distributed/launch_environment.h"

#include <absl/status/status.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "medfusion/base/status.h"

namespace medfusion {
namespace {

// The variables of one launcher.
struct Names {
  const char* source;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};

constexpr Names kEnvironment = {"environment", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                                "LOCAL_WORLD_SIZE"};
constexpr Names kSlurm = {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr};
constexpr Names kOpenMpi = {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};

absl::StatusOr<int> ParseInt(const std::string& name, const std::string& value,
                             std::string_view source) {
  int number = 0;
  if (!absl::SimpleAtoi(value, &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, "=", value, " (", std::string(source), ") is not an integer"));
  }
  return number;
}

absl::StatusOr<std::optional<int>> ReadInt(const EnvironmentReader& read, const char* name,
                                           std::string_view source) {
  if (name == nullptr) return std::optional<int>();
  const std::optional<std::string> value = read(name);
  if (!value) return std::optional<int>();
  MEDFUSION_ASSIGN_OR_RETURN(const int number, ParseInt(name, *value, source));
  return std::optional<int>(number);
}

absl::Status CheckRange(const std::string& name, int value, int limit,
                        const std::string& limit_name, std::string_view source) {
  if (value >= 0 && value < limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, "=", value, " is out of range for ",
                                                 limit_name, "=", limit, " (", std::string(source),
                                                 "); expected 0..", limit - 1));
}

absl::Status CheckPositive(const std::string& name, int value, std::string_view source) {
  if (value >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, "=", value, " (", std::string(source),
                                                 ") is not a number of ranks; expected 1 or more"));
}

absl::Status CheckPort(const std::string& name, int port, std::string_view source) {
  if (port >= 1 && port <= 65535) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, "=", port, " (", std::string(source),
                                                 ") is not a port; expected 1..65535"));
}

absl::Status MissingError(std::string_view missing, const std::string& present,
                          std::string_view source) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(missing), " is not set (",
                                                 std::string(source), "), but ", present,
                                                 " is; set both, or neither to run alone"));
}

// Ranks and sizes, which every launcher has in the same form.
absl::StatusOr<LaunchEnvironment> ReadRanks(const EnvironmentReader& read, const Names& names) {
  LaunchEnvironment env;
  env.source = names.source;
  MEDFUSION_ASSIGN_OR_RETURN(const auto rank, ReadInt(read, names.rank, env.source));
  MEDFUSION_ASSIGN_OR_RETURN(const auto world_size, ReadInt(read, names.world_size, env.source));
  if (!rank) return MissingError(names.rank, names.world_size, env.source);
  if (!world_size) return MissingError(names.world_size, names.rank, env.source);
  env.rank = *rank;
  env.world_size = *world_size;
  MEDFUSION_RETURN_IF_ERROR(CheckPositive(names.world_size, env.world_size, env.source));
  MEDFUSION_RETURN_IF_ERROR(
      CheckRange(names.rank, env.rank, env.world_size, names.world_size, env.source));
  MEDFUSION_ASSIGN_OR_RETURN(env.local_rank, ReadInt(read, names.local_rank, env.source));
  MEDFUSION_ASSIGN_OR_RETURN(env.local_world_size,
                             ReadInt(read, names.local_world_size, env.source));
  if (env.local_world_size) {
    MEDFUSION_RETURN_IF_ERROR(
        CheckPositive(names.local_world_size, *env.local_world_size, env.source));
  }
  if (env.local_rank) {
    const int limit = env.local_world_size.value_or(env.world_size);
    MEDFUSION_RETURN_IF_ERROR(
        CheckRange(names.local_rank, *env.local_rank, limit,
                   env.local_world_size ? names.local_world_size : names.world_size, env.source));
  }
  return env;
}

// MASTER_ADDR and MASTER_PORT, or what `env` holds already.
absl::Status ReadMeetingPoint(const EnvironmentReader& read, LaunchEnvironment& env) {
  if (const auto addr = read("MASTER_ADDR")) env.master_addr = *addr;
  MEDFUSION_ASSIGN_OR_RETURN(const auto port, ReadInt(read, "MASTER_PORT", "environment"));
  if (port) env.master_port = *port;
  if (env.world_size == 1) return absl::OkStatus();
  if (env.master_addr.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("MASTER_ADDR is not set, but ", env.world_size, " ranks (", env.source,
                     ") must meet; set it to the host of rank 0 (127.0.0.1 when all ranks are on "
                     "one host)"));
  }
  if (!port && env.master_port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("MASTER_PORT is not set, but ", env.world_size, " ranks (", env.source,
                     ") must meet; set it to a free port of the host of rank 0, e.g. 29500"));
  }
  return CheckPort("MASTER_PORT", env.master_port, "environment");
}

// A port that all processes of a job derive alike and two jobs seldom share; below the ephemeral
// range.
int PortFromJob(std::string_view job) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (unsigned char c : job) hash = (hash ^ c) * 16777619u;
  return 15000 + static_cast<int>(hash % 15000);
}

// "node[03-05,9],other" begins with node03.
std::string FirstHost(const std::string& node_list) {
  const size_t open = node_list.find('[');
  const size_t comma = node_list.find(',');
  if (open == std::string::npos || comma < open) return node_list.substr(0, comma);
  const size_t end = node_list.find_first_of("-,]", open);
  const size_t close = node_list.find(']', open);
  if (end == std::string::npos || close == std::string::npos) return node_list;
  const std::string suffix = node_list.substr(close + 1);
  return node_list.substr(0, open) + node_list.substr(open + 1, end - open - 1) +
         suffix.substr(0, suffix.find(','));
}

absl::StatusOr<LaunchEnvironment> ReadTorchrun(const EnvironmentReader& read) {
  MEDFUSION_ASSIGN_OR_RETURN(LaunchEnvironment env, ReadRanks(read, kEnvironment));
  const auto run_id = read("TORCHELASTIC_RUN_ID");
  if (run_id) {
    env.source = "torchrun";
    env.run_id = absl::StrCat(*run_id, "/", read("TORCHELASTIC_RESTART_COUNT").value_or("0"));
    env.agent_store = read("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  }
  MEDFUSION_RETURN_IF_ERROR(ReadMeetingPoint(read, env));
  return env;
}

absl::StatusOr<LaunchEnvironment> ReadSlurm(const EnvironmentReader& read) {
  MEDFUSION_ASSIGN_OR_RETURN(LaunchEnvironment env, ReadRanks(read, kSlurm));
  const std::string job =
      absl::StrCat(read("SLURM_JOB_ID").value_or("0"), ".", read("SLURM_STEP_ID").value_or("0"));
  env.run_id = absl::StrCat("slurm-", job, "/", read("SLURM_RESTART_COUNT").value_or("0"));
  auto nodes = read("SLURM_STEP_NODELIST");
  if (!nodes) nodes = read("SLURM_JOB_NODELIST");
  if (nodes) env.master_addr = FirstHost(*nodes);
  if (read("SLURM_STEP_NUM_NODES").value_or(read("SLURM_NNODES").value_or("")) == "1") {
    env.master_addr = "127.0.0.1";
    env.local_world_size = env.world_size;
  }
  env.master_port = PortFromJob(env.run_id);
  MEDFUSION_RETURN_IF_ERROR(ReadMeetingPoint(read, env));
  return env;
}

absl::StatusOr<LaunchEnvironment> ReadOpenMpi(const EnvironmentReader& read) {
  MEDFUSION_ASSIGN_OR_RETURN(LaunchEnvironment env, ReadRanks(read, kOpenMpi));
  // Several hosts: which of them has rank 0 is not in the environment, so MASTER_ADDR must be.
  if (env.local_world_size == env.world_size) env.master_addr = "127.0.0.1";
  const std::string job =
      read("PMIX_NAMESPACE")
          .value_or(
              read("OMPI_MCA_ess_base_jobid").value_or(read("OMPI_MCA_orte_hnp_uri").value_or("")));
  env.run_id = absl::StrCat("mpi-", job);
  env.master_port = PortFromJob(env.run_id);
  MEDFUSION_RETURN_IF_ERROR(ReadMeetingPoint(read, env));
  return env;
}

absl::StatusOr<LaunchEnvironment> ReadFlags(const LaunchFlags& flags) {
  if (!flags.rank || !flags.world_size) {
    return MissingError(flags.rank ? "--world_size" : "--rank",
                        flags.rank ? "--rank" : "--world_size", "flags");
  }
  LaunchEnvironment env;
  env.source = "flags";
  env.rank = *flags.rank;
  env.world_size = *flags.world_size;
  MEDFUSION_RETURN_IF_ERROR(CheckPositive("--world_size", env.world_size, env.source));
  MEDFUSION_RETURN_IF_ERROR(
      CheckRange("--rank", env.rank, env.world_size, "--world_size", env.source));
  if (flags.local_rank) {
    MEDFUSION_RETURN_IF_ERROR(
        CheckRange("--local_rank", *flags.local_rank, env.world_size, "--world_size", env.source));
  }
  env.local_rank = flags.local_rank;
  if (env.world_size == 1) return env;
  if (!flags.master_addr || flags.master_addr->empty() || !flags.master_port) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--master_addr and --master_port are needed with --world_size=", env.world_size,
        " (flags): where rank 0 listens, e.g. 127.0.0.1 and 29500"));
  }
  env.master_addr = *flags.master_addr;
  env.master_port = *flags.master_port;
  MEDFUSION_RETURN_IF_ERROR(CheckPort("--master_port", env.master_port, env.source));
  return env;
}

}  // namespace

std::optional<std::string> ReadProcessEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment(const LaunchFlags& flags,
                                                        const EnvironmentReader& read) {
  if (flags.rank || flags.world_size) return ReadFlags(flags);
  if (read("RANK") || read("WORLD_SIZE")) return ReadTorchrun(read);
  // A batch script has SLURM_PROCID too; only what srun starts has a step.
  if (read("SLURM_PROCID") && read("SLURM_STEP_ID")) return ReadSlurm(read);
  if (read("OMPI_COMM_WORLD_RANK")) return ReadOpenMpi(read);
  return LaunchEnvironment{};
}

}  // namespace medfusion
