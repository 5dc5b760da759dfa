// The tensors among a region's arguments.
#ifndef MEDFUSION_RECOMPUTE_ARGUMENT_TENSORS_H_
#define MEDFUSION_RECOMPUTE_ARGUMENT_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace medfusion {

using VisitTensor = std::function<void(at::Tensor&)>;

// Specialise for a type of your own that holds tensors:
//
//   template <>
//   struct medfusion::ArgumentTensors<Batch> {
//     static void Visit(Batch& batch, const VisitTensor& visit) { visit(batch.image); }
//   };
//
// Visit must name the same tensors, in the same order, each time; it may leave some out. Tensors
// that are named are checked for changes in place before they are used again, and are not kept by a
// region inside of another one. Others are kept as they are.
template <typename T>
struct ArgumentTensors {
  static void Visit(T&, const VisitTensor&) {}
};

namespace recompute_internal {

template <typename T>
void VisitTensors(T& value, const VisitTensor& visit) {
  ArgumentTensors<std::decay_t<T>>::Visit(value, visit);
}

template <typename Tuple>
void VisitTuple(Tuple& tuple, const VisitTensor& visit) {
  std::apply([&](auto&... element) { (VisitTensors(element, visit), ...); }, tuple);
}

template <typename Range>
void VisitRange(Range& range, const VisitTensor& visit) {
  for (auto&& element : range) VisitTensors(element, visit);
}

template <typename Map>
void VisitValues(Map& map, const VisitTensor& visit) {
  for (auto& [key, value] : map) VisitTensors(value, visit);
}

}  // namespace recompute_internal

template <>
struct ArgumentTensors<at::Tensor> {
  static void Visit(at::Tensor& tensor, const VisitTensor& visit) { visit(tensor); }
};

template <typename T>
struct ArgumentTensors<std::optional<T>> {
  static void Visit(std::optional<T>& value, const VisitTensor& visit) {
    if (value.has_value()) recompute_internal::VisitTensors(*value, visit);
  }
};

template <typename T, typename A>
struct ArgumentTensors<std::vector<T, A>> {
  static void Visit(std::vector<T, A>& range, const VisitTensor& visit) {
    recompute_internal::VisitRange(range, visit);
  }
};

template <typename T, size_t n>
struct ArgumentTensors<std::array<T, n>> {
  static void Visit(std::array<T, n>& range, const VisitTensor& visit) {
    recompute_internal::VisitRange(range, visit);
  }
};

template <typename K, typename V, typename... Rest>
struct ArgumentTensors<std::map<K, V, Rest...>> {
  static void Visit(std::map<K, V, Rest...>& map, const VisitTensor& visit) {
    recompute_internal::VisitValues(map, visit);
  }
};

template <typename K, typename V, typename... Rest>
struct ArgumentTensors<std::unordered_map<K, V, Rest...>> {
  static void Visit(std::unordered_map<K, V, Rest...>& map, const VisitTensor& visit) {
    recompute_internal::VisitValues(map, visit);
  }
};

template <typename... T>
struct ArgumentTensors<std::tuple<T...>> {
  static void Visit(std::tuple<T...>& tuple, const VisitTensor& visit) {
    recompute_internal::VisitTuple(tuple, visit);
  }
};

template <typename A, typename B>
struct ArgumentTensors<std::pair<A, B>> {
  static void Visit(std::pair<A, B>& pair, const VisitTensor& visit) {
    recompute_internal::VisitTuple(pair, visit);
  }
};

}  // namespace medfusion

#endif  // MEDFUSION_RECOMPUTE_ARGUMENT_TENSORS_H_
