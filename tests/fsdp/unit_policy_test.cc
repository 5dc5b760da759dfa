#include "medfusion/fsdp/unit_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace medfusion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// root{0} - encoder{1} - layers (container) - layers.0{2}, layers.1{3}
//         - head{4}
ModuleNode Tree() {
  ModuleNode layer0{"encoder.layers.0", "Layer", false, {2}, {}};
  ModuleNode layer1{"encoder.layers.1", "Layer", false, {3}, {}};
  ModuleNode layers{"encoder.layers", "ModuleList", true, {}, {layer0, layer1}};
  ModuleNode encoder{"encoder", "Encoder", false, {1}, {layers}};
  ModuleNode head{"head", "Linear", false, {4}, {}};
  return {"", "Net", false, {0}, {encoder, head}};
}

std::vector<std::string> Describe(const std::vector<PlannedUnit>& units) {
  std::vector<std::string> lines;
  for (const PlannedUnit& unit : units) {
    std::string line = unit.name + ":";
    for (int parameter : unit.parameters) line += " " + std::to_string(parameter);
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> Plan(const UnitPolicy& policy,
                              const std::vector<int64_t>& numels = {1, 10, 100, 100, 10}) {
  return Describe(PlanUnits(Tree(), numels, policy));
}

std::string PlanError(const UnitPolicy& policy) {
  try {
    Plan(policy);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(UnitPolicyTest, ModulesOfTheMinimumSizeBecomeUnitsAndTheRestIsTheRoots) {
  EXPECT_THAT(Plan({.min_num_params = 100}),
              ElementsAre("(root): 0 1 4", "encoder.layers.0: 2", "encoder.layers.1: 3"));
}

TEST(UnitPolicyTest, TheMinimumIsInclusive) {
  EXPECT_THAT(Plan({.min_num_params = 101}), ElementsAre("(root): 0 4", "encoder: 1 2 3"));
}

TEST(UnitPolicyTest, WhatChildrenHaveTakenDoesNotCountForTheirParent) {
  // The encoder holds 210 elements, 10 of them its own.
  EXPECT_THAT(Plan({.min_num_params = 11}),
              ElementsAre("(root): 0 1 4", "encoder.layers.0: 2", "encoder.layers.1: 3"));
}

TEST(UnitPolicyTest, ContainersPassTheirParametersUp) {
  // The list of layers holds 200 elements and is a container.
  EXPECT_THAT(Plan({.min_num_params = 150}), ElementsAre("(root): 0 4", "encoder: 1 2 3"));
}

TEST(UnitPolicyTest, AMinimumOfZeroMakesEveryModuleWithParametersAUnit) {
  EXPECT_THAT(Plan({.min_num_params = 0}),
              ElementsAre("(root): 0", "encoder: 1", "encoder.layers.0: 2", "encoder.layers.1: 3",
                          "head: 4"));
}

TEST(UnitPolicyTest, AHugeMinimumMakesOneUnit) {
  EXPECT_THAT(Plan({}), ElementsAre("(root): 0 1 2 3 4"));
}

TEST(UnitPolicyTest, APredicateDecidesInsteadOfTheSize) {
  std::vector<std::string> asked;
  UnitPolicy policy;
  policy.predicate = [&](const UnitCandidate& candidate) {
    asked.push_back(candidate.path + " " + std::to_string(candidate.numel));
    return candidate.type == "Layer";
  };
  EXPECT_THAT(Plan(policy),
              ElementsAre("(root): 0 1 4", "encoder.layers.0: 2", "encoder.layers.1: 3"));
  EXPECT_THAT(asked,
              ElementsAre("encoder.layers.0 100", "encoder.layers.1 100", "encoder 10", "head 10"));
}

TEST(UnitPolicyTest, NamedModulesAreTheUnitsAlsoContainers) {
  EXPECT_THAT(Plan({.min_num_params = 0, .unit_names = {"encoder.layers", "head"}}),
              ElementsAre("(root): 0 1", "encoder.layers: 2 3", "head: 4"));
}

TEST(UnitPolicyTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  EXPECT_THAT(PlanError({.unit_names = {"encoder.layer"}}),
              HasSubstr("no module 'encoder.layer'; it has encoder, encoder.layers, "
                        "encoder.layers.0, encoder.layers.1, head"));
}

TEST(UnitPolicyTest, ANameThatIsLeftWithoutParametersIsRefused) {
  const std::vector<std::string> names = {"encoder.layers.0", "encoder.layers.1", "encoder.layers"};
  EXPECT_THAT(PlanError({.unit_names = names}),
              HasSubstr("module 'encoder.layers' has no parameters, or they all belong to other"));
}

TEST(UnitPolicyTest, ANegativeMinimumIsRefused) {
  EXPECT_THAT(PlanError({.min_num_params = -1}), HasSubstr("min_num_params is -1; expected 0"));
}

}  // namespace
}  // namespace medfusion
