#include "medfusion/distributed/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace medfusion {
namespace {

using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

absl::StatusOr<LaunchEnvironment> Read(const Variables& variables, const LaunchFlags& flags = {}) {
  return ReadLaunchEnvironment(flags, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string ErrorOf(const Variables& variables, const LaunchFlags& flags = {}) {
  const auto result = Read(variables, flags);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(result.status().message());
}

const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "10.0.0.1"},
                             {"MASTER_PORT", "29500"}};

Variables With(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

Variables Without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(LaunchEnvironmentTest, NothingSetMeansOneRankAlone) {
  const auto env = Read({}).value();
  EXPECT_EQ(env.rank, 0);
  EXPECT_EQ(env.world_size, 1);
  EXPECT_EQ(env.source, "none");
}

TEST(LaunchEnvironmentTest, ReadsWhatTorchrunSets) {
  const auto env = Read(With(With(With(kTorchrun, "TORCHELASTIC_RUN_ID", "job7"),
                                  "TORCHELASTIC_USE_AGENT_STORE", "True"),
                             "TORCHELASTIC_RESTART_COUNT", "2"))
                       .value();
  EXPECT_EQ(env.rank, 3);
  EXPECT_EQ(env.world_size, 4);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_world_size, 2);
  EXPECT_EQ(env.master_addr, "10.0.0.1");
  EXPECT_EQ(env.master_port, 29500);
  EXPECT_EQ(env.source, "torchrun");
  EXPECT_TRUE(env.agent_store);
  EXPECT_EQ(env.run_id, "job7/2");
}

TEST(LaunchEnvironmentTest, TwoShellsNeedNoLocalRank) {
  const auto env = Read(Without(Without(kTorchrun, "LOCAL_RANK"), "LOCAL_WORLD_SIZE")).value();
  EXPECT_FALSE(env.local_rank.has_value());
  EXPECT_EQ(env.source, "environment");
  EXPECT_FALSE(env.agent_store);
}

TEST(LaunchEnvironmentTest, ErrorsNameValueSourceAndRemedy) {
  EXPECT_EQ(ErrorOf(With(kTorchrun, "RANK", "4")),
            "RANK=4 is out of range for WORLD_SIZE=4 (environment); expected 0..3");
  EXPECT_EQ(ErrorOf(With(kTorchrun, "RANK", "-1")),
            "RANK=-1 is out of range for WORLD_SIZE=4 (environment); expected 0..3");
  EXPECT_EQ(ErrorOf(With(kTorchrun, "RANK", "two")), "RANK=two (environment) is not an integer");
  EXPECT_EQ(ErrorOf(With(kTorchrun, "RANK", "1.5")), "RANK=1.5 (environment) is not an integer");
  EXPECT_EQ(ErrorOf(With(kTorchrun, "RANK", "99999999999")),
            "RANK=99999999999 (environment) is not an integer");
  EXPECT_EQ(ErrorOf(With(kTorchrun, "WORLD_SIZE", "0")),
            "WORLD_SIZE=0 (environment) is not a number of ranks; expected 1 or more");
  EXPECT_EQ(ErrorOf(With(kTorchrun, "LOCAL_RANK", "2")),
            "LOCAL_RANK=2 is out of range for LOCAL_WORLD_SIZE=2 (environment); expected 0..1");
  EXPECT_EQ(ErrorOf(Without(kTorchrun, "WORLD_SIZE")),
            "WORLD_SIZE is not set (environment), but RANK is; set both, or neither to run alone");
  EXPECT_EQ(ErrorOf(Without(kTorchrun, "RANK")),
            "RANK is not set (environment), but WORLD_SIZE is; set both, or neither to run alone");
  EXPECT_THAT(ErrorOf(Without(kTorchrun, "MASTER_ADDR")),
              HasSubstr("MASTER_ADDR is not set, but 4 ranks (environment) must meet"));
  EXPECT_THAT(ErrorOf(Without(kTorchrun, "MASTER_PORT")), HasSubstr("MASTER_PORT is not set"));
  EXPECT_THAT(ErrorOf(With(kTorchrun, "MASTER_PORT", "70000")),
              HasSubstr("MASTER_PORT=70000 (environment) is not a port; expected 1..65535"));
}

TEST(LaunchEnvironmentTest, ARankAloneNeedsNoMeetingPoint) {
  EXPECT_TRUE(Read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).ok());
}

const Variables kSlurm = {{"SLURM_PROCID", "5"},
                          {"SLURM_NTASKS", "8"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_JOB_ID", "4711"},
                          {"SLURM_NNODES", "2"},
                          {"SLURM_JOB_NODELIST", "gpu[03-04]"}};

TEST(LaunchEnvironmentTest, SlurmMeetsAtTheFirstHostOfTheJob) {
  const auto env = Read(kSlurm).value();
  EXPECT_EQ(env.rank, 5);
  EXPECT_EQ(env.world_size, 8);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.source, "Slurm");
  EXPECT_EQ(env.master_addr, "gpu03");
  EXPECT_GE(env.master_port, 15000);
  EXPECT_EQ(Read(With(kSlurm, "SLURM_PROCID", "0")).value().master_port, env.master_port);
  EXPECT_NE(Read(With(kSlurm, "SLURM_JOB_ID", "4712")).value().master_port, env.master_port);
  const auto first = [](const std::string& list) {
    return Read(With(kSlurm, "SLURM_JOB_NODELIST", list)).value().master_addr;
  };
  EXPECT_EQ(first("a1,a2"), "a1");
  EXPECT_EQ(first("solo"), "solo");
  EXPECT_EQ(first("login,gpu[1-3]"), "login");
  EXPECT_EQ(first("gpu[7,9],x"), "gpu7");
  EXPECT_EQ(first("gpu[07]-ib,x"), "gpu07-ib");
}

TEST(LaunchEnvironmentTest, SlurmOnOneNodeMeetsOnLoopback) {
  EXPECT_EQ(Read(With(kSlurm, "SLURM_NNODES", "1")).value().master_addr, "127.0.0.1");
}

TEST(LaunchEnvironmentTest, ABatchScriptIsNotATaskOfItsJob) {
  EXPECT_EQ(Read(Without(kSlurm, "SLURM_STEP_ID")).value().world_size, 1);
}

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_NAMESPACE", "1234"}};

TEST(LaunchEnvironmentTest, OpenMpiOnOneHostMeetsOnLoopback) {
  const auto env = Read(kOpenMpi).value();
  EXPECT_EQ(env.rank, 1);
  EXPECT_EQ(env.source, "Open MPI");
  EXPECT_EQ(env.master_addr, "127.0.0.1");
}

TEST(LaunchEnvironmentTest, OpenMpiOnSeveralHostsAsksForAnAddress) {
  const Variables several = With(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "1");
  EXPECT_THAT(ErrorOf(With(several, "OMPI_COMM_WORLD_LOCAL_RANK", "0")),
              HasSubstr("MASTER_ADDR is not set, but 2 ranks (Open MPI) must meet"));
}

TEST(LaunchEnvironmentTest, TheFirstOfSeveralLaunchersWins) {
  Variables both = kSlurm;
  both.insert(kTorchrun.begin(), kTorchrun.end());
  both.insert(kOpenMpi.begin(), kOpenMpi.end());
  EXPECT_EQ(Read(both).value().source, "environment");
  Variables managers = kSlurm;
  managers.insert(kOpenMpi.begin(), kOpenMpi.end());
  EXPECT_EQ(Read(managers).value().source, "Slurm");
}

TEST(LaunchEnvironmentTest, FlagsWinOverTheEnvironmentAndAreAllOrNothing) {
  LaunchFlags flags;
  flags.rank = 1;
  EXPECT_THAT(ErrorOf(kTorchrun, flags), HasSubstr("--world_size is not set (flags)"));
  flags.world_size = 2;
  EXPECT_THAT(ErrorOf(kTorchrun, flags), HasSubstr("--master_addr and --master_port are needed"));
  flags.master_addr = "::1";
  flags.master_port = 1234;
  const auto env = Read(kTorchrun, flags).value();
  EXPECT_EQ(env.rank, 1);
  EXPECT_EQ(env.source, "flags");
  EXPECT_EQ(env.master_addr, "::1");
  flags.rank = 2;
  EXPECT_EQ(ErrorOf(kTorchrun, flags),
            "--rank=2 is out of range for --world_size=2 (flags); expected 0..1");
}

}  // namespace
}  // namespace medfusion
