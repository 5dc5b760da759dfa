// A table as features and classes.
#ifndef MEDFUSION_DATA_TABULAR_DATASET_H_
#define MEDFUSION_DATA_TABULAR_DATASET_H_

#include <ATen/core/Tensor.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "medfusion/data/batch.h"
#include "medfusion/data/standardizer.h"
#include "medfusion/data/table.h"

namespace medfusion {

struct TabularOptions {
  enum class Missing {
    kReject,  // a missing feature is an error that names its place
    kKeep,    // it stays NaN; Standardized() turns it into the training mean
  };

  // The column of classes. One of text needs `positive_class` (two classes: that one is 1, the
  // other 0) or `class_names` (the i-th is class i; three classes or more). One of numbers needs
  // neither: it holds 0 .. C-1 itself, and `class_names`, if given, has C names for them.
  std::string target;
  std::string positive_class;
  std::vector<std::string> class_names;

  // The columns of numbers that are features, in this order; empty means all but the target.
  std::vector<std::string> features;
  Missing missing = Missing::kReject;
};

// Immutable; threads may share it. Not collective.
class TabularDataset {
 public:
  // InvalidArgument or NotFound, naming the table, the row's place, the column and the value: a
  // target that is missing or no class, a class without samples, fewer than two classes, no feature
  // columns, a feature that is text, is missing (see `missing`) or does not fit into float32.
  static absl::StatusOr<TabularDataset> Create(const Table& table, const TabularOptions& options);

  size_t size() const { return static_cast<size_t>(targets_.size(0)); }

  // The samples at these positions, in this order; a position may occur several times. Throws
  // std::out_of_range for one that is not below size().
  Batch Get(std::span<const size_t> indices) const;

  const at::Tensor& features() const { return features_; }  // [N, F] float32
  const at::Tensor& targets() const { return targets_; }    // [N] int64
  std::span<const int64_t> labels() const;                  // the same, as numbers
  const std::vector<std::string>& feature_names() const { return feature_names_; }  // F
  const std::vector<std::string>& class_names() const { return class_names_; }      // C, by class

  // The same samples with standardized features. Throws c10::Error when the numbers of columns
  // differ.
  TabularDataset Standardized(const Standardizer& standardizer) const;

 private:
  TabularDataset() = default;

  at::Tensor features_;
  at::Tensor targets_;
  std::vector<std::string> feature_names_;
  std::vector<std::string> class_names_;
};

}  // namespace medfusion

#endif  // MEDFUSION_DATA_TABULAR_DATASET_H_
