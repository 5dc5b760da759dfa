#include "medfusion/data/tabular_dataset.h"

#include <ATen/ops/empty.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "medfusion/base/status.h"
#include "medfusion/data/targets.h"
#include "medfusion/data/tensors.h"

namespace medfusion {
namespace {

absl::StatusOr<std::vector<std::string>> FeatureNames(const Table& table,
                                                      const TabularOptions& options) {
  std::vector<std::string> names = options.features;
  if (names.empty()) {
    for (const Column& column : table.columns()) {
      if (column.numeric() && column.name != options.target) names.push_back(column.name);
    }
  }
  if (names.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(table.source(), ": no column of numbers is left as a feature"));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const bool twice = std::find(names.begin(), names.begin() + i, names[i]) != names.begin() + i;
    if (!twice && names[i] != options.target) continue;
    return absl::InvalidArgumentError(absl::StrCat(table.source(), ": feature '", names[i], "' ",
                                                   twice ? "is listed twice" : "is the target"));
  }
  return names;
}

absl::Status FillColumn(const Table& table, const std::string& name,
                        TabularOptions::Missing missing, size_t column, at::Tensor& features) {
  MEDFUSION_ASSIGN_OR_RETURN(const std::span<const double> values, table.Numbers(name));
  float* const data = features.mutable_data_ptr<float>();
  const size_t columns = static_cast<size_t>(features.size(1));
  for (size_t row = 0; row < values.size(); ++row) {
    const float value = static_cast<float>(values[row]);
    data[row * columns + column] = value;
    if (std::isinf(value)) {
      return absl::InvalidArgumentError(absl::StrCat(table.Place(row), ": feature '", name,
                                                     "' holds ", values[row],
                                                     ", which does not fit into float32; rescale "
                                                     "the column"));
    }
    if (std::isnan(value) && missing == TabularOptions::Missing::kReject) {
      return absl::InvalidArgumentError(
          absl::StrCat(table.Place(row), ": feature '", name,
                       "' is missing; fill it in, remove the row or the column, or choose "
                       "Missing::kKeep"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TabularDataset> TabularDataset::Create(const Table& table,
                                                      const TabularOptions& options) {
  MEDFUSION_ASSIGN_OR_RETURN(
      Targets targets,
      ReadTargets(table, options.target, options.positive_class, options.class_names));
  TabularDataset dataset;
  MEDFUSION_ASSIGN_OR_RETURN(dataset.feature_names_, FeatureNames(table, options));
  const int64_t rows = static_cast<int64_t>(table.rows());
  const int64_t columns = static_cast<int64_t>(dataset.feature_names_.size());
  dataset.features_ = at::empty({rows, columns}, at::kFloat);
  for (int64_t column = 0; column < columns; ++column) {
    MEDFUSION_RETURN_IF_ERROR(FillColumn(table, dataset.feature_names_[column], options.missing,
                                         column, dataset.features_));
  }
  dataset.targets_ = at::empty({rows}, at::kLong);
  std::copy(targets.labels.begin(), targets.labels.end(),
            dataset.targets_.mutable_data_ptr<int64_t>());
  dataset.class_names_ = std::move(targets.class_names);
  return dataset;
}

Batch TabularDataset::Get(std::span<const size_t> indices) const {
  for (const size_t index : indices) {
    if (index < size()) continue;
    throw std::out_of_range(
        absl::StrCat("sample ", index, " of a data set of ", size(), " samples"));
  }
  const at::Tensor rows = IndexTensor(indices);
  return {features_.index_select(0, rows), targets_.index_select(0, rows),
          std::vector<size_t>(indices.begin(), indices.end())};
}

std::span<const int64_t> TabularDataset::labels() const {
  return {targets_.const_data_ptr<int64_t>(), size()};
}

TabularDataset TabularDataset::Standardized(const Standardizer& standardizer) const {
  TabularDataset dataset = *this;
  dataset.features_ = standardizer.Apply(features_);
  return dataset;
}

}  // namespace medfusion
