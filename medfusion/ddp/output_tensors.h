// The tensors in whatever a module's forward returns.
#ifndef MEDFUSION_DDP_OUTPUT_TENSORS_H_
#define MEDFUSION_DDP_OUTPUT_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace medfusion {

// Specialise for a type of your own, so that find_unused_parameters sees its tensors:
//
//   template <>
//   struct medfusion::OutputTensors<Detections> {
//     static void Collect(const Detections& d, std::vector<at::Tensor>& tensors) {
//       tensors.push_back(d.boxes);
//     }
//   };
//
// Here for tensors, tuples, pairs, arrays, vectors, maps and optionals of such. Without a
// specialisation everything still works; unused parameters are then found at the end of backward
// instead of its beginning, which overlaps less. A specialisation must name every tensor that the
// loss may use.
template <typename T, typename = void>
struct OutputTensors {};

template <typename T, typename = void>
struct HasOutputTensors : std::false_type {};
template <typename T>
struct HasOutputTensors<T,
                        std::void_t<decltype(OutputTensors<T>::Collect(
                            std::declval<const T&>(), std::declval<std::vector<at::Tensor>&>()))>>
    : std::true_type {};

namespace output_tensors_internal {

template <typename Range>
void CollectRange(const Range& range, std::vector<at::Tensor>& tensors) {
  for (const auto& element : range) {
    OutputTensors<std::decay_t<decltype(element)>>::Collect(element, tensors);
  }
}

template <typename Map>
void CollectValues(const Map& map, std::vector<at::Tensor>& tensors) {
  for (const auto& [key, value] : map) {
    OutputTensors<std::decay_t<decltype(value)>>::Collect(value, tensors);
  }
}

template <typename Tuple>
void CollectTuple(const Tuple& tuple, std::vector<at::Tensor>& tensors) {
  std::apply(
      [&](const auto&... element) {
        (OutputTensors<std::decay_t<decltype(element)>>::Collect(element, tensors), ...);
      },
      tuple);
}

template <bool known>
struct If {};
template <>
struct If<true> {
  using Yes = void;
};
template <typename... T>
using IfKnown = typename If<(HasOutputTensors<T>::value && ...)>::Yes;

}  // namespace output_tensors_internal

template <>
struct OutputTensors<at::Tensor> {
  static void Collect(const at::Tensor& tensor, std::vector<at::Tensor>& tensors) {
    tensors.push_back(tensor);
  }
};

template <typename T>
struct OutputTensors<std::optional<T>, output_tensors_internal::IfKnown<T>> {
  static void Collect(const std::optional<T>& value, std::vector<at::Tensor>& tensors) {
    if (value.has_value()) OutputTensors<T>::Collect(*value, tensors);
  }
};

template <typename T, typename A>
struct OutputTensors<std::vector<T, A>, output_tensors_internal::IfKnown<T>> {
  static void Collect(const std::vector<T, A>& range, std::vector<at::Tensor>& tensors) {
    output_tensors_internal::CollectRange(range, tensors);
  }
};

template <typename T, size_t n>
struct OutputTensors<std::array<T, n>, output_tensors_internal::IfKnown<T>> {
  static void Collect(const std::array<T, n>& range, std::vector<at::Tensor>& tensors) {
    output_tensors_internal::CollectRange(range, tensors);
  }
};

template <typename K, typename V, typename... Rest>
struct OutputTensors<std::map<K, V, Rest...>, output_tensors_internal::IfKnown<V>> {
  static void Collect(const std::map<K, V, Rest...>& map, std::vector<at::Tensor>& tensors) {
    output_tensors_internal::CollectValues(map, tensors);
  }
};

template <typename K, typename V, typename... Rest>
struct OutputTensors<std::unordered_map<K, V, Rest...>, output_tensors_internal::IfKnown<V>> {
  static void Collect(const std::unordered_map<K, V, Rest...>& map,
                      std::vector<at::Tensor>& tensors) {
    output_tensors_internal::CollectValues(map, tensors);
  }
};

template <typename... T>
struct OutputTensors<std::tuple<T...>, output_tensors_internal::IfKnown<std::decay_t<T>...>> {
  static void Collect(const std::tuple<T...>& tuple, std::vector<at::Tensor>& tensors) {
    output_tensors_internal::CollectTuple(tuple, tensors);
  }
};

template <typename A, typename B>
struct OutputTensors<std::pair<A, B>,
                     output_tensors_internal::IfKnown<std::decay_t<A>, std::decay_t<B>>> {
  static void Collect(const std::pair<A, B>& pair, std::vector<at::Tensor>& tensors) {
    output_tensors_internal::CollectTuple(pair, tensors);
  }
};

}  // namespace medfusion

#endif  // MEDFUSION_DDP_OUTPUT_TENSORS_H_
